"""What ends that nobody ends, by a helper thread.

* *Orphans.* Finalisers may run in any thread and inside any code, a lock of the telemetry SDK included, so they only
  put the run on the inbox. The sweep closes what was left open and ends the span with the time of last activity.
* *Late timers.* The waits of a loop that does not call its timer (a clock that a test has frozen) are looked at all the
  same.
* *Backstop.* A span without any activity for the backstop's time is ended; nothing is aborted, and if the stream ends
  later the metrics still tell the truth.

Both run exporters' code, which may be slow; so what must be quick, waking whom a cancel is for, has a thread of its own
(see ``waker``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from stallwatch.runtime import registry, timers
from stallwatch.runtime.helper_thread import HelperThread

__all__ = ["ensure_running", "orphan"]

Closer = Callable[[], object]


def _look(now: float) -> float | None:
    if registry.is_empty():
        return None
    for watch in timers.watches():
        watch.nudge(now)
    due = registry.silent_from(now)
    if due <= now:
        registry.end_silent_spans(now)
        due = registry.silent_from(now)
    return due - now


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
