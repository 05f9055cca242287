"""The event seam, synchronous: a guard in place of ``Stream._iterator``.

The guard does not interrupt; the bounded read below it does (see ``interrupt``). Its work is to charge waiting time,
to tell the clocks what each chunk meant, and to have what surfaces settled by the record. After a stall every further
step raises the error again, so that a stalled stream never looks finished.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from stallwatch.core.phases import Stall
from stallwatch.core.words import Outcome
from stallwatch.errors import RunCancelledError, StreamTimeoutError
from stallwatch.runtime.attempt import ChunkReader
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.settling import cause_of, settle

__all__ = ["SyncGuard"]


class SyncGuard:
    """Iterates the SDK's events for ``run``; everything but ``next`` is the inner iterator's own."""

    __slots__ = ("__weakref__", "_dead", "_held", "_inner", "_reader", "_run", "_special")

    def __init__(self, inner: Iterator[Any], run: InFlight, reader: ChunkReader) -> None:
        self._inner = inner
        self._run = run
        self._reader = reader
        self._held: deque[Any] | None = None
        self._dead: StreamTimeoutError | RunCancelledError | None = None
        # Whether a step may be anything but a read: most guards never are.
        self._special = run.scope is not None

    def __iter__(self) -> SyncGuard:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        """Close the inner iterator; not every SDK closes the response with it, so its end is told here."""
        self._inner.close()  # type: ignore[attr-defined]  # a generator
        if not self._run.ended:
            self._run.end_by_close(cancelled=False)

    def read_ahead(self) -> None:
        """Read up to the first progress, or the end, and hold what came for the caller; raises what ``next`` raises."""
        held: deque[Any] = deque()
        tracker, reader = self._run.tracker, self._reader
        try:
            # An answer that is whole without output is one, unless it says itself that it has failed.
            while tracker.first_token_at is None and not (tracker.whole and reader.failure() is None):
                held.append(next(self))
        except StopIteration:
            pass
        self._held, self._special = held, True

    def __next__(self) -> Any:
        run = self._run
        tracker = run.tracker
        if self._special:
            if self._dead is not None:
                raise self._dead.again()
            if run.cancelled and not run.ended:
                self._cancel()
            if self._held is not None:
                if self._held:
                    return self._held.popleft()
                self._held = None
        if tracker.outcome is not None or tracker.wait_from is not None:
            # Ended, or a second thread reads: the SDK's own answer is right, and the first wait stays watched.
            return next(self._inner)
        run.waiter = threading.get_ident()
        run.wait()
        try:
            chunk = next(self._inner)
        except StopIteration as end:
            if isinstance(run.pending, Stall) or (run.cancelled and not run.tracker.whole):
                # A close-delimited body ends cleanly when its socket is shut down.
                self._raise(end)
            run.end_of_body()
            raise
        except BaseException as error:
            self._raise(error)
            raise
        run.on_facts(self._reader.facts(chunk))
        return chunk

    def _raise(self, error: BaseException) -> None:
        """Raise what the record says; return when it is ``error`` itself."""
        raised = settle(self._run, error)
        if raised is None:
            raise StopIteration from None
        if raised is error:
            return
        if isinstance(raised, (StreamTimeoutError, RunCancelledError)):
            self._dead, self._special = raised.again(), True
        raise raised from cause_of(error)

    def _cancel(self) -> None:
        """The user cancelled while nobody waited: the connection is given up, and this step tells."""
        run = self._run
        error = run.cancel_error()
        self._dead, self._special = error.again(), True
        source = run.source
        run.end(Outcome.CANCELLED)
        if source is not None:
            source.close()
        raise error
