from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzz.oracle import Observed


@pytest.fixture(scope="module")
def played() -> Iterator[Observed]:
    """What plays the calls of a module."""
    observed = Observed()
    yield observed
    observed.close()
