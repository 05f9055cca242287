"""A body that survives the attempt it came from: read on from another, as long as nothing of it was handed on.

Rules
-----
* Nothing is delivered twice. What counts is what has passed the byte seam, comments apart: the first event is held
  back until it is whole (see ``core.opening``), and once it has passed, every failure is raised.
* The facts of a failure are taken where it surfaces, by the record first: an interrupted read may look like anything.
* What failed is closed before the wait, so that no attempt holds a connection while it is over.
* The request is sent again through the client's own ``request``, below the same run: its authentication, redirects
  and own retries are the SDK's. What that raises is raised to the reader.
* The response the user holds takes over status, headers and the rest from the one that answered. Closing it closes the
  body that is live, also while the request is being sent again.
* A connection lost inside the first event, and not to be tried again: what was held back passes ahead of the error.
* An error in the first event is a failure of the attempt. If it is not to be tried again it passes, and the SDK raises
  it as ever. A body that ends without any event is a failure too, but not one the SDK raises, so neither do we.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import anyio

from stallwatch.runtime import task_waiter, waker, waking
from stallwatch.runtime.replaceable import Again, Splice
from stallwatch.runtime.waiter import Broken

__all__ = ["AsyncSplice", "SyncSplice"]


class SyncSplice(Splice):
    """The body of a synchronous response."""

    __slots__ = ()

    def read(self) -> bytes | None:
        """Return the next bytes to hand on, None at the end."""
        if self.pieces is None:
            self.pieces = iter(self.inner)
        self.raise_if_cancelled()
        while True:
            try:
                data: bytes | None = next(self.pieces, None)
            except Exception as error:
                failure = self._failure(error)
                if failure is None or not self._follows(failure):
                    held = self._held_at(error)
                    if not held:
                        raise
                    self.pieces = _raising(error)
                    return held
                self._error = error
                if not self._try_again():
                    return None
                continue
            if data is None:
                rest, follows = self._end()
                if not follows or not self._try_again():
                    return rest
                continue
            passed, failure = self._pass_on(data)
            if failure is not None and not self._try_again():
                return None
            if passed:
                return passed

    def close(self) -> None:
        """Close the body that is live."""
        self.inner.close()

    def abandon(self) -> None:
        """Close it below what the HTTP library put around it, which tells the response how long it took."""
        getattr(self.inner, "_stream", self.inner).close()

    def leave(self) -> None:
        """The reader has left: end the iterator under it, which gives its connection up."""
        close = getattr(self.pieces, "close", None)
        if close is not None:
            close()

    def _try_again(self) -> bool:
        """Wait, send the request again and read on from the answer; False when the user has closed meanwhile."""
        run, again = self._run, self._again
        following = run.decided
        if again is None or following is None:
            return False
        waker.ensure_running()
        run.resending = True
        try:
            self.inner.close()
            waking.sleep(run, following.delay)
            if run.closed:
                return False
            if not again.replayable:
                self._give_up()
            response = again.send()
        except Exception:
            if run.closed and not run.cancelled:
                return False
            raise
        finally:
            run.resending = False
        if self._begin_again(response):
            self.pieces = iter(self.inner if again.reads_raw(response) else response.iter_bytes())
            return True
        response.close()
        self._give_up()
        return False


class AsyncSplice(Splice):
    """The body of an asynchronous response."""

    __slots__ = ()

    async def read(self) -> bytes | None:
        """Return the next bytes to hand on, None at the end."""
        if self.pieces is None:
            self.pieces = aiter(self.inner)
        self.raise_if_cancelled()
        while True:
            try:
                step: Awaitable[bytes | None] = anext(self.pieces, None)
                if not self._run.delivered:
                    step = task_waiter.waiter_of(self._run).breakable(step)
                data = await step
            except (Exception, asyncio.CancelledError) as error:
                if not await self._follows_error(error):
                    held = self._held_at(error)
                    if not held:
                        raise
                    self.pieces = _raising_async(error)
                    return held
                if not await self._try_again():
                    return None
                continue
            if data is None:
                rest, follows = self._end()
                if not follows or not await self._try_again():
                    return rest
                continue
            passed, failure = self._pass_on(data)
            if failure is not None and not await self._try_again():
                return None
            if passed:
                return passed

    async def close(self) -> None:
        """Close the body that is live."""
        await self.inner.aclose()

    async def abandon(self) -> None:
        """Close it below what the HTTP library put around it, which tells the response how long it took."""
        await getattr(self.inner, "_stream", self.inner).aclose()

    async def leave(self) -> None:
        """The reader has left: end the iterator under it.

        Where nobody holds the stream any more, the iterator is nobody's either, and the event loop closes it by itself.
        """
        close = getattr(self.pieces, "aclose", None)
        if close is not None and not self._run.orphaned:
            await close()

    async def _follows_error(self, error: BaseException) -> bool:
        run = self._run
        waiter = task_waiter.waiter_of(run)
        if isinstance(error, asyncio.CancelledError) and not waiter.fired:
            return False
        failure = self._failure(error)
        if failure is None or waiter.cancelled_by_user or not self._follows(failure):
            return False
        self._error = error if isinstance(error, Exception) else None
        return not waiter.fired or await waiter.reclaim()

    async def _try_again(self) -> bool:
        run, again = self._run, self._again
        following = run.decided
        if again is None or following is None:
            return False
        waiter = task_waiter.waiter_of(run)
        waker.ensure_running()
        run.resending = True
        waiter.before_headers = True
        try:
            await self.inner.aclose()
            waiter.look_ahead()
            response = await waiter.breakable(self._ask_again(again, following.delay))
        except (asyncio.CancelledError, Broken):
            if run.closed and not run.cancelled and waiter.fired and await waiter.reclaim():
                return False
            raise
        finally:
            run.resending = False
            waiter.headers_are_in()
            waiter.look_ahead()
        if self._begin_again(response):
            self.pieces = aiter(self.inner if again.reads_raw(response) else response.aiter_bytes())
            return True
        await response.aclose()
        self._give_up()
        return False

    async def _ask_again(self, again: Again, delay: float) -> Any:
        await anyio.sleep(delay)
        if not again.replayable:
            self._give_up()
        return await again.send()


def _raising(error: BaseException) -> Iterator[bytes]:
    raise error
    yield b""


async def _raising_async(error: BaseException) -> AsyncIterator[bytes]:
    raise error
    yield b""
