"""A run in flight: the meeting point of its clocks, its policy, its telemetry and whoever waits for it.

One slotted object per run is the guards' state, the registry's entry and what recorders read. It records reasons before
anything is broken: ``note`` comes first, the abort second, and whatever then surfaces is translated by what was
recorded, never by its class.
"""

from __future__ import annotations

import math
import re
from array import array

from stallwatch.clock import monotonic
from stallwatch.core.chunks import OUTPUT_UNKNOWN, ChunkFacts, only_comments
from stallwatch.core.phases import Due, Stall, Whole
from stallwatch.core.words import Mode, Outcome, Phase, RaceResult, StallAction
from stallwatch.errors import StreamInactivityTimeoutError, StreamTimeoutError, TotalTimeoutError
from stallwatch.resolution import ResolvedPolicy
from stallwatch.runtime import registry, retrying, waking
from stallwatch.runtime.attempt import Leg
from stallwatch.runtime.failures import describe, failure_of
from stallwatch.runtime.run_state import RunState
from stallwatch.telemetry.recorder import Call, Recorders

__all__ = ["FLUSH_EVERY", "InFlight"]

FLUSH_EVERY = 128
"""Gaps kept before they are recorded in one go, always ahead of a wait and never between a chunk and its reader."""

_END_MARK = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]\s*\Z")
"""What the bytes of a completed event stream end with; within a line it is what a model says of the protocol."""

_MARK_END = b"DONE]"

_TAIL = 32
"""Bytes remembered to find that mark in."""


class InFlight(RunState):
    """A run, from the user's call to its end; of a call with several routes, the run on one of them."""

    __slots__ = ()

    def __init__(
        self,
        call: Call,
        policy: ResolvedPolicy,
        recorders: Recorders,
        choices: int = 1,
        leg: Leg | None = None,
    ) -> None:
        super().__init__(call, policy, recorders, choices)
        if leg is None:
            recorders.start(self)
        else:
            self._continue(leg)
        if self.scope is not None:
            self.scope.join(self)
            self.tracker.until = self.scope.until
        if call.stream or self.scope is not None:
            registry.add(self)

    def _continue(self, leg: Leg) -> None:
        """This is one of several routes of a call: they share its span, its start and its total."""
        self.leg, self.held, self.role = leg, True, leg.role
        self.retries_wanted = leg.retries
        earlier = leg.earlier
        if earlier is None:
            self.recorders.start(self)
            return
        self.recorders.go_on(self, earlier)
        self.stall, self.following = earlier.stall, earlier.following
        self.tracker.follow(earlier.tracker, monotonic())

    # Clocks

    def due(self) -> Due | None:
        """Return the next deadline, or None when nothing is watched."""
        return None if self.policy.mode is Mode.OFF else self.tracker.due()

    def on_bytes(self, data: bytes) -> None:
        """The byte seam saw body bytes."""
        self.received += 1
        tracker = self.tracker
        tracker.on_bytes(monotonic())
        # The newest bytes with the last of those before: the network may cut the mark in two.
        tail = self.tail = data[-_TAIL:] if len(data) >= _TAIL else (self.tail + data)[-_TAIL:]
        if _MARK_END in tail or tracker.end_marked:
            marked = _END_MARK.search(tail) is not None
            # A comment does not undo the mark; but what begins with a colon may be the rest of the mark's own line.
            if marked is not tracker.end_marked and (marked or not only_comments(data)):
                tracker.on_end_mark(marked)

    def on_bytes_below(self, data: bytes) -> None:
        """Body bytes came that no seam above will see: a hook reads the response, or it is not streamed at all.

        Read in one go, a stream's bytes are all the progress that can be told.
        """
        self.on_bytes(data)
        if self.call.stream and not only_comments(data):
            self.on_facts(OUTPUT_UNKNOWN)
            self.wait()

    def wait(self) -> None:
        """The caller begins to wait; gaps are written out first, while nobody has a chunk in hand."""
        gaps = self._gaps
        if gaps is not None and len(gaps) >= FLUSH_EVERY:
            self.flush_gaps()
        self.tracker.on_wait(monotonic())

    def on_facts(self, facts: ChunkFacts) -> None:
        """A chunk with this meaning has come."""
        gap = self.tracker.on_chunk(facts, monotonic())
        if gap is not None and self.every_gap:
            gaps = self._gaps
            if gaps is None:
                gaps = self._gaps = array("d")
            gaps.append(gap)
        if facts.terminal:
            failed = self.reader is not None and self.reader.failure() is not None
            self.recorders.whole(self, Outcome.FAILED if failed else Outcome.COMPLETED)

    def flush_gaps(self) -> None:
        """Record the gaps kept so far."""
        gaps, self._gaps = self._gaps, None
        if gaps:
            self.recorders.gaps(self, gaps)

    # Stalls

    def note(self, found: Stall | Whole) -> bool:
        """Record what a wait has become, before anything is broken. True when the attempt shall now be aborted."""
        if isinstance(found, Whole):
            if self.policy.mode is Mode.ENFORCE:
                self.pending = found
                return True
            self.tracker.on_stall(found)
            return False
        # What the user's own scope allows is enforced in every mode.
        enforce = self.policy.mode is Mode.ENFORCE or found.scoped
        self.tracker.on_stall(found)
        self.stall = found
        self.own_stalls += 1
        if self.leg is not None and not (found.phase is Phase.TOTAL and self.leg.journey.ran_out):
            self.leg.journey.stalls += 1
        if enforce:
            self.pending = found
        if self.leg is None or found.phase is not Phase.TOTAL or self.leg.journey.first_to_run_out():
            self.recorders.stall(self, found, StallAction.ABORT if enforce else StallAction.OBSERVE)
        return enforce

    def survived(self) -> None:
        """The headers are in: whatever the transport below reported and overcame by itself was no stall."""
        if self.pending is not None:
            self.pending = None
            self.tracker.on_survived()

    def on_back_off(self) -> None:
        """The attempt has failed and another will follow: only the total runs on."""
        self.pending = None
        self.tracker.on_back_off(monotonic())

    def wake(self) -> bool:
        """Wake whoever waits, for what has been recorded before; True when somebody still does. See ``waking``."""
        return waking.wake(self)

    def timeout_error(self, stall: Stall) -> StreamTimeoutError:
        """Return the error that tells of ``stall``."""
        kind = TotalTimeoutError if stall.phase is Phase.TOTAL else StreamInactivityTimeoutError
        tracker = self.tracker
        return kind(
            request=self.request,
            phase=stall.phase,
            limit=stall.limit,
            allowed=stall.allowed,
            waited=stall.waited,
            wire=stall.wire,
            chunks_received=tracker.chunks,
            stream_lifetime=monotonic() - tracker.attempt_started,
            attempt=max(self.attempts, 1) if self.attempt is None else self.attempt.number,
            set_by=self._set_by(stall),
        )

    def _set_by(self, stall: Stall) -> str:
        until = self.tracker.until
        return until.set_by if stall.scoped and until is not None else self.policy.decided_by(stall.phase)

    # Ends

    def end(self, outcome: Outcome, error: BaseException | None = None, at: float | None = None) -> bool:
        """End the run; True for the one call that ended it. ``at`` is the instant, by default now."""
        if self.forgotten:
            return False
        now = monotonic() if at is None else at
        if not self.tracker.finish(outcome, now):
            return False
        registry.discard(self)
        if self.scope is not None:
            self.scope.leave(self)
        if error is not None and outcome in (Outcome.FAILED, Outcome.STALLED):
            name, text, self.status_code = describe(error, self.status_code)
            code = None if self.reader is None else self.reader.code_of(error)
            self.failed_with(name if code is None else code, text)
            self.request_id = self.request_id or failure_of(error).request_id
        elif outcome is Outcome.TRUNCATED and self.error_type is None:
            self.failed_with("truncated", "the body ended without a finish reason")
        self.flush_gaps()
        retrying.close_attempt(self, outcome, error, now)
        retrying.give_back(self)
        self.ended_at = now
        if not self.held:
            self._tell(now)
        if self.handshake is not None:
            self.handshake[0].close()
        # What points back here goes, so that a finished run needs no collection to be freed.
        self.owners = ()
        self.waiter = self.source = self.request = self.break_off = self.handshake = None
        return True

    def release(self) -> None:
        """This route's run is the one that counts: from here on, or since it ended, it tells the end of the whole."""
        self.held = False
        answered, self.answered = self.answered, None
        if answered is not None:
            answered.race = self.race
            self.recorders.attempt(self, answered)
        if self.ended_at is not None:
            self._tell(self.ended_at)

    def lose(self) -> None:
        """Another route's answer counts: this attempt is told of as it stands, before the call's span can end."""
        self.race = RaceResult.LOSER
        answered, self.answered = self.answered, None
        if answered is not None:
            answered.race = self.race
            self.recorders.attempt(self, answered)
        retrying.close_attempt(self, Outcome.CANCELLED, None, monotonic())

    def _tell(self, at: float) -> None:
        try:
            # Atomic: a leg may end in its thread while it is released in another.
            del self._untold
        except AttributeError:
            return
        self.recorders.end(self, at)

    def end_of_body(self) -> None:
        """The body was read to its end: completed, truncated, or failed by the response's own word."""
        if self.closed and not self.tracker.whole:
            self.end(Outcome.CLOSED_EARLY)
            return
        reader = self.reader
        code = None if reader is None else reader.failure()
        if self.call.stream and reader is not None and self.tracker.end_marked and not self.tracker.chunks:
            # Nothing but the end mark; releases differ in whether they read on behind it.
            self.answerless, self.delivered = "empty_stream", False
        if self.answerless is not None:
            self.failed_with(self.answerless, "the body held no event at all")
            self.end(Outcome.TRUNCATED)
        elif code is not None:
            self.failed_with(code, "the response reported a failure")
            self.end(Outcome.FAILED)
        elif reader is None or self.tracker.whole or not reader.has_end_mark:
            self.end(Outcome.COMPLETED)
        else:
            self.end(Outcome.TRUNCATED)

    def end_by_close(self, *, cancelled: bool) -> None:
        """The user closed the response between reads."""
        if self.tracker.whole:
            self.end_of_body()
        else:
            self.end(Outcome.CANCELLED if cancelled or self.cancelled else Outcome.CLOSED_EARLY)

    def end_by_sweep(self) -> None:
        """Nobody holds the response any more: the run ended when it was last active."""
        if self.tracker.whole:
            self.end(Outcome.COMPLETED, at=self.tracker.last_activity)
        else:
            outcome = Outcome.CANCELLED if self.cancelled else Outcome.ABANDONED
            self.end(outcome, at=self.tracker.last_activity)

    def end_span_if_silent(self, now: float) -> float:
        """End the span when nothing has happened for the backstop's time, and return the seconds until that is due.

        Nothing is aborted, and the run goes on: its metrics will tell how it really ended.
        """
        if self.backstopped:
            return math.inf
        left = self.tracker.last_activity + self.policy.backstop - now
        if left <= 0:
            self.backstopped = True
            self.recorders.backstop(self, now)
        return left

    def forget(self) -> None:
        """This is a forked child: the run belongs to the parent."""
        self.forgotten = True
        if self.shadow is not None:
            self.shadow.forget()
