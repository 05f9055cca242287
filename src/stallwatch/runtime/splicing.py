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
from typing import Any, Protocol

import anyio

from stallwatch.core.chunks import only_comments
from stallwatch.core.classify import Failure
from stallwatch.core.opening import Opening
from stallwatch.core.phases import Stall
from stallwatch.core.words import Phase, RetryDecision
from stallwatch.runtime import retrying, task_waiter, waker, waking
from stallwatch.runtime.error_frames import failure_in
from stallwatch.runtime.failures import failure_of
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.waiter import Broken

__all__ = ["Again", "AsyncSplice", "Splice", "SyncSplice"]


class Again(Protocol):
    """The request of a body, to be sent again."""

    @property
    def replayable(self) -> bool:
        """Whether it can be sent again as it was."""
        ...

    def reads_raw(self, response: Any) -> bool:
        """Tell whether the bytes of ``response`` are what the user's response decodes; else they come decoded."""
        ...

    def send(self) -> Any:
        """Send it and return the response (in the asynchronous case an awaitable); raises what the SDK raises."""
        ...

    def adopt(self, response: Any) -> bool:
        """Make the user's response look like ``response``; False when its body cannot take the place of the first."""
        ...


class Splice:
    """What both kinds share; ``inner`` is the byte stream that is live."""

    # One lives as long as each open stream.
    __slots__ = (
        "_again",
        "_chunks_before",
        "_encoded",
        "_error",
        "_opening",
        "_run",
        "_stall",
        "event_stream",
        "inner",
        "pieces",
        "settled",
    )

    def __init__(
        self, inner: Any, run: InFlight, *, event_stream: bool, encoded: bool, again: Again | None
    ) -> None:
        self.inner = inner
        self.event_stream = event_stream
        self._encoded = encoded
        self._run = run
        self._again = again
        self.pieces: Any = None
        self.settled = False
        """Whether nothing is held back and nothing can be sent again any more: pieces pass as they are."""
        self._chunks_before = run.tracker.chunks
        self._error: Exception | None = None
        self._stall: Stall | None = None
        self._opening = self._new_opening()

    def _new_opening(self) -> Opening | None:
        return Opening() if self.event_stream and not self._encoded else None

    def raise_if_cancelled(self) -> None:
        """Said at every read once more, because not every transport can be woken, and some have bytes in hand."""
        if self._run.cancelled and not self._run.ended:
            raise self._run.cancel_error()

    def _pass_on(self, data: bytes) -> tuple[bytes, Failure | None]:
        """Return what of new bytes may be handed on, or the failure that they tell of."""
        run, opening = self._run, self._opening
        run.on_bytes(data)
        if opening is None:
            if self._encoded:
                # What it says cannot be seen here, only that its decoder has begun.
                self._again = None
            elif not run.delivered and not (self.event_stream and only_comments(data)):
                self._settle_down()
            return data, None
        passed = opening.take(data)
        if not opening.over:
            return passed, None
        failure = failure_in(opening.event or b"")
        self._opening = None
        if failure is not None and self._follows(failure):
            return b"", failure
        self._settle_down()
        return passed, None

    def _end(self) -> tuple[bytes | None, bool]:
        """The body is over: return what was still held back, and whether another attempt follows."""
        run, opening = self._run, self._opening
        rest = b"" if opening is None else opening.rest()
        if rest:
            self._settle_down()
            return rest, False
        if not run.call.stream or run.ended or run.over:
            return None, False
        if run.delivered or self._encoded:
            if run.reader is not None and not run.tracker.chunks and not self.event_stream:
                # The SDK has found no event in it, and ends the iteration without a word.
                run.answerless, run.delivered = "not_event_stream", False
            return None, False
        run.answerless = "empty_stream" if self.event_stream else "not_event_stream"
        follows = self._follows(Failure(body="empty" if self.event_stream else "not_event_stream"))
        if follows:
            run.answerless = None
        return None, follows

    def _follows(self, failure: Failure) -> bool:
        """Decide; True when another attempt is to be made."""
        run, again = self._run, self._again
        if run.ended:
            return False
        self._stall = run.pending if isinstance(run.pending, Stall) else None
        following = retrying.after_failure(run, failure, replayable=again is not None and again.replayable)
        return following.decision is RetryDecision.RETRY

    def _failure(self, error: BaseException) -> Failure | None:
        """Return the facts of what surfaced, or None when it is not for this run to try again."""
        run = self._run
        if run.ended or run.over or run.delivered or run.tracker.chunks > self._chunks_before:
            return None
        if isinstance(run.pending, Stall):
            return None if run.pending.phase is Phase.TOTAL else Failure(stalled=True)
        return failure_of(error) if isinstance(error, Exception) and run.pending is None else None

    def _held_at(self, error: BaseException) -> bytes:
        """Return what was held back when the connection was lost for good, to be handed on ahead of ``error``."""
        run, opening = self._run, self._opening
        if (
            opening is None
            or run.ended
            or run.over
            or run.pending is not None
            or not isinstance(error, Exception)
        ):
            return b""
        rest = opening.rest()
        if rest:
            self._settle_down()
        return rest

    def _settle_down(self) -> None:
        """Something passes: from here on there is nothing to be sent again, and nothing is kept for it."""
        self._run.delivered = self.settled = True
        self._opening = self._again = None

    def _begin_again(self, response: Any) -> bool:
        """Read on from ``response``; False when the user has closed meanwhile, or it is of another kind."""
        again = self._again
        if again is None or self._run.closed or not again.adopt(response):
            return False
        self.inner = response.stream
        self.event_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        self._opening = self._new_opening()
        return True

    def _give_up(self) -> None:
        """There is no body to go on with: raise what made another attempt necessary, unless the user has closed."""
        if self._run.closed:
            return
        if self._stall is not None:
            raise self._run.timeout_error(self._stall)
        if self._error is not None:
            raise self._error


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
