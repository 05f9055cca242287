"""Waiting for a condition: always with a deadline, and with a message that says what did not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

T = TypeVar("T")


def until(
    condition: Callable[[], T],
    what: str,
    *,
    seconds: float,
    every: float = 0.1,
    telling: Callable[[], object] = str,
) -> T:
    """Return what the condition returns as soon as that is true.

    A condition that raises OSError or LookupError, as before a server answers, does not hold yet. Raises
    AssertionError with ``what`` and what ``telling`` returns after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    problem = ""
    while True:
        try:
            found = condition()
        except (OSError, LookupError) as error:
            problem = f" (last: {type(error).__name__}: {error})"
        else:
            if found:
                return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}{problem} {telling()}".rstrip())
        time.sleep(every)
