"""How many examples each property is given: a fixed few by default, and as many new ones as ``FUZZ_EXAMPLES`` says."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

__all__ = ["examples"]

VARIABLE = "FUZZ_EXAMPLES"


def examples(usual: int) -> Callable[[Any], Any]:
    """Return the settings of a property: always the same ``usual`` examples, unless the environment asks for others."""
    wanted = os.environ.get(VARIABLE)
    return settings(
        max_examples=usual if wanted is None else int(wanted),
        derandomize=wanted is None,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
