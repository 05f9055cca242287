"""What of a body is held back, and what follows when it fails: shared by both kinds of ``splicing``.

Nothing that has passed the byte seam can be taken back, so the first event is kept until it is whole. The facts of a
failure are taken where it surfaces, by the record first: an interrupted read may look like anything.
"""

from __future__ import annotations

from typing import Any, Protocol

from stallwatch.core.chunks import only_comments
from stallwatch.core.classify import Failure
from stallwatch.core.opening import Opening
from stallwatch.core.phases import Stall
from stallwatch.core.words import Phase, RetryDecision
from stallwatch.runtime import retrying
from stallwatch.runtime.error_frames import failure_in
from stallwatch.runtime.failures import failure_of
from stallwatch.runtime.inflight import InFlight

__all__ = ["Again", "Splice"]


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
