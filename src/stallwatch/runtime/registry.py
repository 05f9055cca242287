"""The streams open in this process.

Kept for what is observed at collection, for the sweep, for the backstop and for the ends of the process. A run stays
here from its start to its end and holds nothing of the user's, so being listed keeps no stream alive. A forked child
forgets its parent's runs: their sockets are shared, and firing or closing for the parent would break it.
"""

from __future__ import annotations

import atexit
import math
import os
from typing import Protocol

from stallwatch.telemetry.recorder import RunView

__all__ = ["OpenRun", "add", "discard", "live"]


class OpenRun(RunView, Protocol):
    """What a run must offer to be listed: the ends that nobody else brings about."""

    def end_by_sweep(self) -> None:
        """End the run as of its last activity."""

    def end_span_if_silent(self, now: float) -> float:
        """End the span of a run without activity for too long; return the seconds until that may be due."""
        ...

    def forget(self) -> None:
        """The run belongs to the parent of this forked process."""


_live: dict[OpenRun, None] = {}
_state = {"exit_hook": False}
_backstops: set[float] = set()
"""Of the runs listed since the spans were last looked at."""
_SELDOM = 1.0
"""Seconds at least between two looks: where thousands fall silent one after the other, each would be another look."""
_looked = {"at": -math.inf, "due": math.inf}
"""When the spans were last looked at, and when the first of them was due then."""


def add(run: OpenRun) -> None:
    """List a run that has started."""
    if not _state["exit_hook"]:
        # Registered with the first run, hence after the telemetry SDK's own hook and run before it: the last spans
        # are still exported.
        _state["exit_hook"] = True
        atexit.register(_end_all)
    _live[run] = None
    _backstops.add(run.policy.backstop)


def is_empty() -> bool:
    """Tell whether no run is open."""
    return not _live


def silent_from(now: float) -> float:
    """Return the monotonic instant before which no span is to be ended for its silence.

    A run listed after the last look is silent from then on at the earliest. So thousands of open runs are looked at
    only when one of them may be due, which is every few minutes.
    """
    if _looked["at"] > now:
        # By another clock, as tests of a program may have one.
        return now
    due = min(_looked["due"], _looked["at"] + min(list(_backstops), default=math.inf))
    return max(due, _looked["at"] + _SELDOM)


def end_silent_spans(now: float) -> None:
    """End the spans of the runs without activity for too long."""
    _backstops.clear()
    _looked["at"] = now
    _looked["due"] = now + min((run.end_span_if_silent(now) for run in live()), default=math.inf)


def discard(run: OpenRun) -> None:
    """Drop a run that has ended."""
    _live.pop(run, None)


def live() -> list[OpenRun]:
    """Return the runs open now."""
    return list(_live)


def _end_all() -> None:
    for run in live():
        run.end_by_sweep()


def _forget_all() -> None:
    for run in live():
        run.forget()
    _live.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
