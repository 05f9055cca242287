"""The one monotonic clock.

Wrapped, not merely imported: tools that freeze time replace every module attribute that *is* ``time.monotonic``, and a
frozen watchdog would never fire. One that had time frozen before this module was imported has put a function of its own
in the place; the same clock then has another name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType

__all__ = ["monotonic"]


def _real() -> Callable[[], float]:
    if isinstance(time.monotonic, BuiltinFunctionType) or not hasattr(time, "CLOCK_MONOTONIC"):
        return partial(time.monotonic)
    return partial(time.clock_gettime, time.CLOCK_MONOTONIC)


monotonic: Callable[[], float] = _real()
"""Seconds, never going backwards; comparable within a process only."""
