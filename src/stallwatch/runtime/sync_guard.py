"""The event seam, synchronous: a guard in place of ``Stream._iterator``.

The guard does not interrupt; the bounded read below it does (see ``interrupt``). Its work is to charge waiting time,
to tell the clocks what each chunk meant, and to have what surfaces settled by the record. After a stall every further
step raises the error again, so that a stalled stream never looks finished.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from stallwatch.core.phases import Stall
from stallwatch.errors import StreamTimeoutError
from stallwatch.runtime.inflight import ChunkReader, InFlight
from stallwatch.runtime.settling import cause_of, settle

__all__ = ["SyncGuard"]


class SyncGuard:
    """Iterates the SDK's events for ``run``; everything but ``next`` is the inner iterator's own."""

    __slots__ = ("__weakref__", "_dead", "_inner", "_reader", "_run")

    def __init__(self, inner: Iterator[Any], run: InFlight, reader: ChunkReader) -> None:
        self._inner = inner
        self._run = run
        self._reader = reader
        self._dead: StreamTimeoutError | None = None

    def __iter__(self) -> SyncGuard:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        """Close the inner iterator; not every SDK closes the response with it, so its end is told here."""
        self._inner.close()  # type: ignore[attr-defined]  # a generator
        if not self._run.ended:
            self._run.end_by_close(cancelled=False)

    def __next__(self) -> Any:
        run = self._run
        if self._dead is not None:
            raise self._dead.again()
        if run.ended or run.tracker.waiting:
            # Ended, or a second thread reads: the SDK's own answer is right, and the first wait stays watched.
            return next(self._inner)
        run.waiter = threading.get_ident()
        run.wait()
        try:
            chunk = next(self._inner)
        except StopIteration as end:
            if isinstance(run.pending, Stall):
                # A close-delimited body ends cleanly when its socket is shut down.
                self._raise(end)
            run.end_of_body()
            raise
        except BaseException as error:
            self._raise(error)
            raise
        run.on_facts(run.facts_of(chunk, self._reader))
        return chunk

    def _raise(self, error: BaseException) -> None:
        """Raise what the record says; return when it is ``error`` itself."""
        raised = settle(self._run, error)
        if raised is None:
            raise StopIteration from None
        if raised is error:
            return
        if isinstance(raised, StreamTimeoutError):
            self._dead = raised.again()
        raise raised from cause_of(error)
