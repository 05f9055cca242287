"""The event seam, asynchronous: a guard in place of ``AsyncStream._iterator``.

Whoever awaits the next event is watched as ``task_waiter`` says; here it is told what each chunk meant, and after a
stall every further step raises the error again, so that a stalled stream never looks finished. A second reader on the
same stream is left to the SDK, and the first one's wait stays watched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from stallwatch.core.words import Outcome
from stallwatch.errors import RunCancelledError, StreamTimeoutError
from stallwatch.runtime.attempt import ChunkReader
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.settling import cause_of
from stallwatch.runtime.task_waiter import Quiet, waiter_of

__all__ = ["AsyncGuard"]


class AsyncGuard:
    """Iterates the SDK's events for ``run``; everything but the next step is the inner iterator's own."""

    __slots__ = ("__weakref__", "_dead", "_held", "_inner", "_reader", "_run", "_special", "_waiter")

    def __init__(self, inner: AsyncIterator[Any], run: InFlight, reader: ChunkReader) -> None:
        self._inner = inner
        self._run = run
        self._reader = reader
        self._waiter = waiter_of(run)
        self._held: deque[Any] | None = None
        self._dead: StreamTimeoutError | RunCancelledError | None = None
        # Whether a step may be anything but a read: most guards never are.
        self._special = run.scope is not None

    def __aiter__(self) -> AsyncGuard:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def aclose(self) -> None:
        """Close the inner iterator; not every SDK closes the response with it, so its end is told here."""
        await self._inner.aclose()  # type: ignore[attr-defined]  # an async generator
        if not self._run.ended:
            self._run.end_by_close(cancelled=False)
            self._waiter.stop()

    async def read_ahead(self) -> None:
        """Read up to the first progress, or the end, and hold what came for the caller; raises what a step raises."""
        held: deque[Any] = deque()
        tracker, reader = self._run.tracker, self._reader
        try:
            # An answer that is whole without output is one, unless it says itself that it has failed.
            while tracker.first_token_at is None and not (tracker.whole and reader.failure() is None):
                held.append(await self.__anext__())
        except StopAsyncIteration:
            pass
        self._held, self._special = held, True

    async def __anext__(self) -> Any:
        run = self._run
        tracker = run.tracker
        if self._special:
            if self._dead is not None:
                raise self._dead.again()
            if run.cancelled and not run.ended:
                await self._cancel()
            if self._held is not None:
                if self._held:
                    return self._held.popleft()
                self._held = None
        if tracker.outcome is not None or tracker.wait_from is not None:
            # Ended, or a second task reads: the SDK's own answer is right, and the first wait stays watched.
            return await self._inner.__anext__()
        run.wait()
        waiter = self._waiter
        if waiter.begin():
            try:
                chunk = await self._inner.__anext__()
            except BaseException as error:
                raised = self._ended(await waiter.settled(error))
                if raised is error:
                    raise
                raise raised from cause_of(error)
            if waiter.over():
                raise self._ended(await waiter.settled(StopAsyncIteration()))
        else:
            chunk = await self._watched_step()
        run.on_facts(self._reader.facts(chunk))
        return chunk

    async def _watched_step(self) -> Any:
        try:
            return await self._waiter.watched(self._inner.__anext__())
        except BaseException as error:
            raised = self._ended(error)
            if raised is error:
                raise
            raise raised from None

    def _ended(self, error: BaseException) -> BaseException:
        """The wait has ended without a chunk, and ``error`` is what settling made of it: return what is to come out."""
        run = self._run
        if isinstance(error, Quiet):
            error = StopAsyncIteration()
        elif isinstance(error, StopAsyncIteration):
            run.end_of_body()
        elif isinstance(error, (StreamTimeoutError, RunCancelledError)):
            self._dead, self._special = error.again(), True
        if run.ended:
            self._waiter.stop()
        return error

    async def _cancel(self) -> None:
        """The user cancelled while nobody waited: the connection is given up, and this step tells."""
        run = self._run
        error = run.cancel_error()
        self._dead, self._special = error.again(), True
        source = run.source
        run.end(Outcome.CANCELLED)
        self._waiter.stop()
        if source is not None:
            await source.aclose()
        raise error
