"""The one monotonic clock.

Wrapped, not merely imported: tools that freeze time replace every module attribute that *is* ``time.monotonic``, and a
frozen watchdog would never fire.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

__all__ = ["monotonic"]

monotonic: Callable[[], float] = partial(time.monotonic)
"""Seconds, never going backwards; comparable within a process only."""
