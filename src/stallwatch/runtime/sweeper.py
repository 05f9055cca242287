"""What ends that nobody ends, by a helper thread.

* *Orphans.* Finalisers may run in any thread and inside any code, a lock of the telemetry SDK included, so they only
  put the run on the inbox. The sweep closes what was left open and ends the span with the time of last activity.
* *Late timers.* A wait whose loop does not call its timer (a clock that a test has frozen) is looked at all the same.
* *Backstop.* A span without any activity for the backstop's time is ended; nothing is aborted, and if the stream ends
  later the metrics still tell the truth.

Both run exporters' code, which may be slow; so what must be quick, waking whom a cancel is for, has a thread of its own
(see ``waker``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from stallwatch.runtime import registry
from stallwatch.runtime.helper_thread import HelperThread

__all__ = ["ensure_running", "orphan"]

Closer = Callable[[], object]


def _look(now: float) -> float | None:
    open_now = registry.live()
    for run in open_now:
        _nudge(run, now)
    return min((run.end_span_if_silent(now) for run in open_now), default=None)


def _nudge(run: registry.OpenRun, now: float) -> None:
    nudge = getattr(getattr(run, "waiter", None), "nudge", None)
    if nudge is not None:
        try:
            nudge(now)
        except RuntimeError:
            # Its loop has been closed at this very moment.
            pass


def _sweep(run: registry.OpenRun, close: Closer | None) -> None:
    if close is not None:
        try:
            close()
        except Exception:
            # Nobody holds what could not be closed, so there is nobody to tell.
            pass
    run.end_by_sweep()


def _new() -> HelperThread:
    return HelperThread("stallwatch-sweeper", _look)


_state = {"thread": _new()}


def ensure_running() -> None:
    """Start the thread if it does not run; cheap when it does."""
    _state["thread"].ensure_running()


def orphan(run: registry.OpenRun, close: Closer | None) -> None:
    """Hand over a run nobody holds any more; ``close`` releases its connection. Safe in finalisers."""
    _state["thread"].soon(partial(_sweep, run, close))


def _forget() -> None:
    _state["thread"] = _new()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
