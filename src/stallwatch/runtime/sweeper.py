"""The one helper thread: it ends what nobody ends, and wakes whom a cancel is for.

* *Orphans.* Finalisers may run in any thread and inside any code, a lock of the telemetry SDK included, so they only
  put the run on the inbox (``SimpleQueue.put`` is safe there). The sweep closes what was left open and ends the span
  with the time of last activity.
* *Cancels.* A user's cancel may come from a signal handler, where no lock may be taken, and from any thread, where no
  event loop may be touched. So it only leaves word here, and the thread does the waking.
* *Backstop.* A span without any activity for the backstop's time is ended; nothing is aborted, and if the stream ends
  later the metrics still tell the truth.

The thread starts with the first stream, ends itself when no stream has been open for ``LINGER`` seconds, and is
forgotten by a forked child. Nothing on a hot path waits for it.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from functools import partial

from stallwatch.clock import monotonic
from stallwatch.runtime import registry

__all__ = ["ensure_running", "insist", "orphan", "soon"]

log = logging.getLogger("stallwatch")

LINGER = 1.0
_LONGEST_SLEEP = 1.0
"""Seconds; nobody wakes the thread when the last stream ends, so this is also how late it may notice."""

_INSIST_EVERY = 0.01
"""Seconds between two attempts to wake the same call."""

Closer = Callable[[], object]
Job = Callable[[], object]


class _Sweeper:
    def __init__(self) -> None:
        self.insisting: list[Callable[[], bool]] = []
        self.inbox: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ensure_running(self) -> None:
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="stallwatch-sweeper", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # No thread to be had: the interpreter is ending, or the process is at its limit.
                    return
                self._thread = thread

    def _run(self) -> None:
        idle_since: float | None = None
        sleep = 0.0
        while True:
            try:
                job: Job | None = self.inbox.get(timeout=sleep)
            except queue.Empty:
                job = None
            if job is not None:
                _do(job)
                # Not held through the next sleep: what it closed is to be freed now.
                job = None
            self.insisting = [wake for wake in self.insisting if _wake(wake)]
            now = monotonic()
            waits = [run.end_span_if_silent(now) for run in registry.live()]
            sleep = min(max(min(waits, default=LINGER / 4), 0.01), _LONGEST_SLEEP)
            if self.insisting:
                sleep = min(sleep, _INSIST_EVERY)
            if waits or not self.inbox.empty():
                idle_since = None
            elif idle_since is None:
                idle_since = now
            elif now - idle_since >= LINGER and self._retire():
                return

    def _retire(self) -> bool:
        with self._lock:
            # Taken down before the last look, so that whoever comes in between sees that it must start a new one.
            here, self._thread = self._thread, None
            if registry.live() or not self.inbox.empty():
                self._thread = here
                return False
            return True


def _do(job: Job) -> None:
    try:
        job()
    except Exception as error:
        # One that fails must not take the thread, and with it all others, along.
        log.warning("stallwatch: a clean-up failed: %s", type(error).__name__, exc_info=error)


def _wake(wake: Callable[[], bool]) -> bool:
    """Return whether it is to be done again."""
    try:
        return wake()
    except Exception as error:
        # As a loop that has been closed meanwhile; the others must be woken all the same.
        log.debug("stallwatch: a call could not be woken: %s", type(error).__name__, exc_info=error)
        return False


def _sweep(run: registry.OpenRun, close: Closer | None) -> None:
    if close is not None:
        try:
            close()
        except Exception:
            # Nobody holds what could not be closed, so there is nobody to tell.
            pass
    run.end_by_sweep()


_state = {"sweeper": _Sweeper()}


def ensure_running() -> None:
    """Start the thread if it does not run; cheap when it does."""
    _state["sweeper"].ensure_running()


def orphan(run: registry.OpenRun, close: Closer | None) -> None:
    """Hand over a run nobody holds any more; ``close`` releases its connection. Safe in finalisers."""
    soon(partial(_sweep, run, close))


def soon(job: Job) -> None:
    """Have ``job`` done by the thread, which must be running for a call of its own; safe in signal handlers."""
    _state["sweeper"].inbox.put(job)


def insist(wake: Callable[[], bool]) -> None:
    """Call ``wake`` now and then again until it returns False; in the helper thread only."""
    if _wake(wake):
        _state["sweeper"].insisting.append(wake)


def _forget() -> None:
    _state["sweeper"] = _Sweeper()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
