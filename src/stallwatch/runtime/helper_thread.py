"""A daemon thread that is there while there is something to do: started late, ended quietly, forgotten by a fork.

Others hand it jobs through ``soon``, which takes no lock of ours and may be called in finalisers and signal handlers.
After each job, and when its last look said so, it looks again. A thread whose looks find nothing for ``LINGER`` seconds
ends itself. Nothing on a hot path waits for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from stallwatch.clock import monotonic
from stallwatch.foreign_errors import told_of
from stallwatch.logs import log

__all__ = ["LINGER", "HelperThread", "Job"]


LINGER = 1.0
_LONGEST_SLEEP = 1.0
"""Seconds; nobody wakes the thread when there is nothing left to do, so this is also how late it may notice."""

Job = Callable[[], object]


class HelperThread:
    """``look`` is given the monotonic instant and returns the seconds until it is due again, None when idle."""

    def __init__(self, name: str, look: Callable[[float], float | None]) -> None:
        self._name = name
        self._look = look
        self._inbox: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failed = False

    def ensure_running(self) -> None:
        """Start the thread if it does not run; cheap when it does."""
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # No thread to be had: the interpreter is ending, or the process is at its limit.
                    return
                self._thread = thread

    def soon(self, job: Job) -> None:
        """Have ``job`` done by the thread, which must have been started for a call under way."""
        self._inbox.put(job)

    def _run(self) -> None:
        idle_since: float | None = None
        sleep = 0.0
        while True:
            try:
                job: Job | None = self._inbox.get(timeout=sleep)
            except queue.Empty:
                job = None
            if job is not None:
                _do(job)
                # Not held through the next sleep: what it closed is to be freed now.
                job = None
            now = monotonic()
            due = self._due(now)
            sleep = min(max(LINGER / 4 if due is None else due, 0.01), _LONGEST_SLEEP)
            if due is not None or not self._inbox.empty():
                idle_since = None
            elif idle_since is None:
                idle_since = now
            elif now - idle_since >= LINGER and self._retire():
                return

    def _due(self, now: float) -> float | None:
        try:
            return self._look(now)
        except Exception as error:
            # Without the thread nothing would be ended or woken any more, in all the process.
            if not self._failed:
                self._failed = True
                log.warning("stallwatch: a look of %s failed: %s", self._name, told_of(error))
            return _LONGEST_SLEEP

    def _retire(self) -> bool:
        with self._lock:
            # Taken down before the last look, so that whoever comes in between sees that it must start a new one.
            here, self._thread = self._thread, None
            if self._due(monotonic()) is not None or not self._inbox.empty():
                self._thread = here
                return False
            return True


def _do(job: Job) -> None:
    try:
        job()
    except Exception as error:
        # One that fails must not take the thread, and with it all others, along.
        log.warning("stallwatch: a clean-up failed: %s", told_of(error))
