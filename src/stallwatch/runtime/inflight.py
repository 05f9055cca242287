"""A run in flight: the meeting point of its clocks, its policy, its telemetry and whoever waits for it.

One slotted object per run is the guards' state, the registry's entry and what recorders read. It holds nothing the
user holds (no stream, no response, no client), so it never keeps anything of theirs alive. It records reasons before
anything is broken: ``note_stall`` comes first, the abort second, and whatever then surfaces is translated by what was
recorded, never by its class.
"""

from __future__ import annotations

import math
import socket
from array import array
from collections.abc import Callable
from typing import Any

from stallwatch.clock import monotonic
from stallwatch.core.chunks import OUTPUT_UNKNOWN, ChunkFacts, only_comments
from stallwatch.core.phases import Due, Stall, Tracker, Whole
from stallwatch.core.words import AttemptRole, Mode, Outcome, Phase, RaceResult, RetryDecision, StallAction
from stallwatch.errors import (
    RunCancelledError,
    StreamInactivityTimeoutError,
    StreamTimeoutError,
    TotalTimeoutError,
)
from stallwatch.resolution import ResolvedPolicy
from stallwatch.run import Run, current
from stallwatch.runtime import registry, retrying, waking
from stallwatch.runtime.attempt import Attempt, ChunkReader, Following, Leg, Retries
from stallwatch.runtime.failures import describe, failure_of
from stallwatch.runtime.routes import Proposal
from stallwatch.telemetry.recorder import Call, Recorders, ResponseView

__all__ = ["FLUSH_EVERY", "InFlight"]

FLUSH_EVERY = 128
"""Gaps kept before they are recorded in one go, always ahead of a wait and never between a chunk and its reader."""

_END_MARKS = (b"data: [DONE]", b"data:[DONE]")
"""What the bytes of a completed event stream end with, white space apart."""

_TAIL = 32
"""Bytes remembered to find that mark in."""


class InFlight:
    """The state of one run, from the user's call to its end; of a call with several routes, the state on one."""

    __slots__ = (
        "__weakref__",
        "_gaps",
        "answerless",
        "attempt",
        "backstopped",
        "break_off",
        "call",
        "closed",
        "decided",
        "delivered",
        "ended_at",
        "error_text",
        "error_type",
        "failed",
        "following",
        "forgotten",
        "handshake",
        "headers_in",
        "held",
        "interrupt",
        "leg",
        "orphaned",
        "owners",
        "pending",
        "policy",
        "proposal",
        "race",
        "read_timeout",
        "reader",
        "received",
        "recorders",
        "refusal",
        "request",
        "request_id",
        "resending",
        "retries",
        "retries_wanted",
        "role",
        "scope",
        "shadow",
        "source",
        "stall",
        "stalls",
        "status_code",
        "tail",
        "trace",
        "tracker",
        "waiter",
        "woken",
    )

    def __init__(
        self,
        call: Call,
        policy: ResolvedPolicy,
        recorders: Recorders,
        choices: int = 1,
        leg: Leg | None = None,
    ) -> None:
        self.call = call
        self.policy = policy
        self.recorders = recorders
        now = monotonic()
        self.tracker = Tracker(policy.limits, now, choices)
        self.trace: Any = None
        self.scope: Run | None = current()
        self.attempt: Attempt | None = None
        self.leg: Leg | None = None
        self.race: RaceResult | None = None
        self.failed: Attempt | None = None
        self.decided: Following | None = None
        self.following: Following | None = None
        self.role = AttemptRole.FIRST
        self.retries = Retries()
        self.retries_wanted: int | None = None
        self.proposal: Proposal | None = None
        self.refusal: tuple[RetryDecision, float] | None = None
        self.delivered = False
        self.resending = False
        self.held = False
        self.ended_at = 0.0
        self.break_off: Callable[[], object] | None = None
        self.handshake: tuple[socket.socket, Callable[[], object] | None] | None = None
        self.woken: threading.Event | None = None
        self.stall: Stall | None = None
        self.stalls = 0
        self.pending: Stall | Whole | None = None
        self.error_type: str | None = None
        self.error_text: str | None = None
        self.status_code: int | None = None
        self.request_id: str | None = None
        self.answerless: str | None = None
        self.interrupt = "none"
        self.backstopped = False
        self.forgotten = False
        self.orphaned = False
        self.owners: tuple[Any, ...] = ()
        self.closed = False
        self.headers_in = False
        self.received = 0
        self.tail = b""
        self.read_timeout: float | None = None
        self.reader: ChunkReader | None = None
        self.request: Any = None
        self.shadow: Any = None
        self.source: Any = None
        self.waiter: Any = None
        self._gaps: array[float] | None = None
        if leg is None:
            recorders.start(self)
        else:
            self._continue(leg, now)
        if self.scope is not None:
            self.scope.join(self)
            self.tracker.until = self.scope.until
        if call.stream or self.scope is not None:
            registry.add(self)

    def _continue(self, leg: Leg, now: float) -> None:
        """This is one of several routes of a call: they share its span, its start and its total."""
        self.leg, self.held, self.role = leg, True, leg.role
        self.retries_wanted = leg.retries
        earlier = leg.earlier
        if earlier is None:
            self.recorders.start(self)
            return
        self.trace = earlier.trace
        self.stalls, self.stall, self.following = earlier.stalls, earlier.stall, earlier.following
        self.tracker.follow(earlier.tracker, now)

    @property
    def response(self) -> ResponseView | None:
        """What was learned from the response so far."""
        return None if self.reader is None else self.reader.response

    @property
    def scope_name(self) -> str | None:
        """The name of the ``Run`` this is in."""
        return None if self.scope is None else self.scope.title

    @property
    def cancel_reason(self) -> str | None:
        """The reason the user gave for cancelling."""
        return None if self.scope is None else self.scope.reason

    @property
    def attempts(self) -> int:
        """Attempts so far, those on other routes included."""
        return self.tracker.attempts if self.leg is None else self.leg.journey.attempts

    @property
    def ended(self) -> bool:
        """Whether the run has its outcome."""
        return self.tracker.outcome is not None

    # Clocks

    def due(self) -> Due | None:
        """Return the next deadline, or None when nothing is watched."""
        return None if self.policy.mode is Mode.OFF else self.tracker.due()

    def on_bytes(self, data: bytes) -> None:
        """The byte seam saw body bytes."""
        self.received += 1
        self.tracker.on_bytes(monotonic())
        # The newest bytes with the last of those before: the network may cut the mark in two.
        tail = self.tail = (self.tail + data[-_TAIL:])[-_TAIL:]
        marked = tail.rstrip().endswith(_END_MARKS)
        if marked is not self.tracker.end_marked and not only_comments(data):
            self.tracker.on_end_mark(marked)

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

    def facts_of(self, chunk: Any, reader: ChunkReader) -> ChunkFacts:
        """Return what a chunk means; one that cannot be read counts as progress and hurts nobody."""
        try:
            return reader.facts(chunk)
        except Exception:
            return OUTPUT_UNKNOWN

    def on_facts(self, facts: ChunkFacts) -> None:
        """A chunk with this meaning has come."""
        gap = self.tracker.on_chunk(facts, monotonic())
        if gap is not None and self.policy.gaps == "all":
            if self._gaps is None:
                self._gaps = array("d")
            self._gaps.append(gap)

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
        enforce = self.policy.mode is Mode.ENFORCE
        self.tracker.on_stall(found)
        self.stall = found
        self.stalls += 1
        if enforce:
            self.pending = found
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

    def total_left(self) -> float | None:
        """Return the seconds of waiting left to the run, or None when neither it nor its scope has a total."""
        now, limits, until = monotonic(), self.policy.limits, self.tracker.until
        left = None if limits.total is None else max(limits.total - self.tracker.waited(now), 0.0)
        if until is None:
            return left
        scoped = max(until.at - now, 0.0)
        return scoped if left is None else min(left, scoped)

    # Cancelling

    @property
    def cancelled(self) -> bool:
        """Whether the user has cancelled the scope this run is in."""
        return self.scope is not None and self.scope.cancelled

    @property
    def over(self) -> bool:
        """Whether no further attempt may be started: cancelled, or closed by the user."""
        return self.closed or self.cancelled

    def cancel_error(self) -> RunCancelledError:
        """Return the error that tells of the cancel."""
        return RunCancelledError(self.cancel_reason or "cancelled")

    def wake(self) -> None:
        """Wake whoever waits, for what has been recorded before; see ``waking``."""
        waking.wake(self)

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
            attempt=max(self.attempts, 1),
            set_by="run" if stall.scoped else self.policy.decided_by(stall.phase),
        )

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
            self.error_type, self.error_text, self.status_code = describe(error, self.status_code)
            self.request_id = self.request_id or failure_of(error).request_id
        elif outcome is Outcome.TRUNCATED and self.error_type is None:
            self.error_type, self.error_text = "truncated", "the body ended without a finish reason"
        self.flush_gaps()
        retrying.close_attempt(self, outcome, error, now)
        retrying.give_back(self)
        self.ended_at = now
        if not self.held:
            self.recorders.end(self, now)
        if self.handshake is not None:
            self.handshake[0].close()
        # What points back here goes, so that a finished run needs no collection to be freed.
        self.owners = ()
        self.waiter = self.source = self.request = self.break_off = self.handshake = None
        return True

    def release(self) -> None:
        """This route's run is the one that counts: from here on, or since it ended, it tells the end of the whole."""
        self.held = False
        if self.ended:
            self.recorders.end(self, self.ended_at)

    def end_of_body(self) -> None:
        """The body was read to its end: completed, truncated, or failed by the response's own word."""
        if self.closed and not self.tracker.whole:
            self.end(Outcome.CLOSED_EARLY)
            return
        reader = self.reader
        code = None if reader is None else reader.failure()
        if self.answerless is not None:
            self.error_type, self.error_text = self.answerless, "the body held no event at all"
            self.end(Outcome.TRUNCATED)
        elif code is not None:
            self.error_type, self.error_text = code, "the response reported a failure"
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
