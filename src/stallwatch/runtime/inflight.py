"""A run in flight: the meeting point of its clocks, its policy, its telemetry and whoever waits for it.

One slotted object per run is the guards' state, the registry's entry and what recorders read. It holds nothing the
user holds (no stream, no response, no client), so it never keeps anything of theirs alive. It records reasons before
anything is broken: ``note_stall`` comes first, the abort second, and whatever then surfaces is translated by what was
recorded, never by its class.
"""

from __future__ import annotations

import math
from array import array
from typing import Any, Protocol

from stallwatch.clock import monotonic
from stallwatch.core.chunks import OUTPUT_UNKNOWN, ChunkFacts, only_comments
from stallwatch.core.phases import Due, Stall, Tracker, Whole
from stallwatch.core.words import Mode, Outcome, Phase, StallAction
from stallwatch.errors import StreamInactivityTimeoutError, StreamTimeoutError, TotalTimeoutError
from stallwatch.resolution import ResolvedPolicy
from stallwatch.runtime import registry
from stallwatch.runtime.failures import describe
from stallwatch.telemetry.recorder import Call, Recorders, ResponseView

__all__ = ["FLUSH_EVERY", "ChunkReader", "InFlight"]

FLUSH_EVERY = 128
"""Gaps kept before they are recorded in one go, always ahead of a wait and never between a chunk and its reader."""

_END_MARKS = (b"data: [DONE]", b"data:[DONE]")
"""What the bytes of a completed event stream end with, white space apart."""

_TAIL = 32
"""Bytes remembered to find that mark in."""


class ChunkReader(Protocol):
    """Reads the SDK's chunk objects; the response as learned so far is its other face."""

    @property
    def response(self) -> ResponseView:
        """What was learned from the response so far."""
        ...

    def facts(self, chunk: Any) -> ChunkFacts:
        """Return what a chunk means."""
        ...

    @property
    def has_end_mark(self) -> bool:
        """Whether the protocol read so far marks its end, so that a body without the mark was cut."""
        ...

    def failure(self) -> str | None:
        """Return the error code the response itself reported, if it says that it failed."""
        ...


class InFlight:
    """The state of one run, from the user's call to its end."""

    __slots__ = (
        "__weakref__",
        "_gaps",
        "backstopped",
        "call",
        "closed",
        "error_text",
        "error_type",
        "forgotten",
        "headers_in",
        "interrupt",
        "orphaned",
        "owners",
        "pending",
        "policy",
        "read_timeout",
        "reader",
        "received",
        "recorders",
        "request",
        "request_id",
        "shadow",
        "source",
        "stall",
        "stalls",
        "status_code",
        "tail",
        "trace",
        "tracker",
        "waiter",
    )

    def __init__(self, call: Call, policy: ResolvedPolicy, recorders: Recorders, choices: int = 1) -> None:
        self.call = call
        self.policy = policy
        self.recorders = recorders
        self.tracker = Tracker(policy.limits, monotonic(), choices)
        self.trace: Any = None
        self.stall: Stall | None = None
        self.stalls = 0
        self.pending: Stall | Whole | None = None
        self.error_type: str | None = None
        self.error_text: str | None = None
        self.status_code: int | None = None
        self.request_id: str | None = None
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
        recorders.start(self)
        if call.stream:
            registry.add(self)

    @property
    def response(self) -> ResponseView | None:
        """What was learned from the response so far."""
        return None if self.reader is None else self.reader.response

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
        """The attempt failed and the SDK will try again: its record is closed, and only the total runs on."""
        now = monotonic()
        outcome = Outcome.STALLED if isinstance(self.pending, Stall) else Outcome.FAILED
        self.recorders.attempt(self, now - self.tracker.attempt_started, outcome.value)
        self.pending = None
        self.tracker.on_back_off(now)

    def total_left(self) -> float | None:
        """Return the seconds of waiting left to the run, or None when its total is off."""
        total = self.policy.limits.total
        return None if total is None else max(total - self.tracker.waited(monotonic()), 0.0)

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
            attempt=max(tracker.attempts, 1),
            set_by=self.policy.decided_by(stall.phase),
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
        if error is not None and outcome in (Outcome.FAILED, Outcome.STALLED):
            self.error_type, self.error_text, self.status_code = describe(error, self.status_code)
        elif outcome is Outcome.TRUNCATED:
            self.error_type, self.error_text = "truncated", "the body ended without a finish reason"
        self.flush_gaps()
        tracker = self.tracker
        self.recorders.attempt(self, now - tracker.attempt_started, outcome.value)
        self.recorders.end(self, now)
        # What points back here goes, so that a finished run needs no collection to be freed.
        self.owners = ()
        self.waiter = self.source = self.request = None
        return True

    def end_of_body(self) -> None:
        """The body was read to its end: completed, truncated, or failed by the response's own word."""
        if self.closed and not self.tracker.whole:
            self.end(Outcome.CLOSED_EARLY)
            return
        reader = self.reader
        code = None if reader is None else reader.failure()
        if code is not None:
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
            self.end(Outcome.CANCELLED if cancelled else Outcome.CLOSED_EARLY)

    def end_by_sweep(self) -> None:
        """Nobody holds the response any more: the run ended when it was last active."""
        if self.tracker.whole:
            self.end(Outcome.COMPLETED, at=self.tracker.last_activity)
        else:
            self.end(Outcome.ABANDONED, at=self.tracker.last_activity)

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
