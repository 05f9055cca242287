"""Who wakes those that a cancel is for: a helper thread.

A user's cancel may come from a signal handler, where no lock may be taken, and from any thread, where no event loop may
be touched. So it only leaves word here. A wake may come while the next wait is just being entered, and find nobody; so
a call is woken again every few milliseconds until it has ended or stopped waiting.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from stallwatch.foreign_errors import told_of
from stallwatch.logs import log
from stallwatch.runtime import registry
from stallwatch.runtime.helper_thread import HelperThread, Job

__all__ = ["ensure_running", "insist", "soon"]


_EVERY = 0.01
_SELDOM = 0.25
"""Seconds between two attempts to wake the same call: at first, and for one that nothing seems to wake."""

Wake = Callable[[], bool]


class _Waker:
    def __init__(self) -> None:
        self.thread = HelperThread("stallwatch-waker", self._look)
        self.insisting: list[Wake] = []
        self.every = _EVERY

    def _look(self, now: float) -> float | None:
        self.insisting = [wake for wake in self.insisting if _wakes(wake)]
        if self.insisting:
            self.every = min(self.every * 1.1, _SELDOM)
            return self.every
        return None if registry.is_empty() else 1.0


def _wakes(wake: Wake) -> bool:
    """Return whether it is to be done again."""
    try:
        return wake()
    except Exception as error:
        # As a loop that has been closed meanwhile; the others must be woken all the same.
        log.debug("stallwatch: a call could not be woken: %s", told_of(error))
        return False


_state = {"waker": _Waker()}


def ensure_running() -> None:
    """Start the thread if it does not run; cheap when it does."""
    _state["waker"].thread.ensure_running()


def soon(job: Job) -> None:
    """Have ``job`` done by the thread, which must be running for a call of its own; safe in signal handlers."""
    _state["waker"].thread.soon(job)


def insist(wake: Wake) -> None:
    """Call ``wake`` now, and again and again until it returns False; in the thread itself only."""
    if _wakes(wake):
        waker = _state["waker"]
        waker.insisting.append(wake)
        waker.every = _EVERY


def _forget() -> None:
    _state["waker"] = _Waker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
