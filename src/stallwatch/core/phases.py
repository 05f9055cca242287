"""The clocks of one run: which deadline is next, and whether a wait has become a stall.

Rules
-----
* Time is charged only while the caller waits for the server: from ``on_wait`` to the chunk, the end or ``on_pause``.
  A reader that pauses charges nothing; what it waited before counts on.
* ``first_token`` begins with the attempt, so connecting, queueing, headers and preamble are part of it.
* In ``first_token`` and ``thinking`` two clocks run. The *wire clock* restarts with any body byte; past the limit the
  wire is dead. The *progress clock* restarts with progress only, and because bytes without progress prove a queue or
  a silent thinker, it is granted ``keepalive_factor`` times the limit, at most ``EXTENDED_CAP`` or the limit itself
  if that is longer.
* In ``idle`` only the progress clock runs, without extension.
* ``total`` belongs to the run: it counts the waiting of all attempts and of the pauses between them. ``until`` is the
  instant up to which the scope around it (``stallwatch.Run``) may last, by the clock on the wall; the nearer counts.
* The end mark (``[DONE]``) or a finish reason for every choice ends all clocks but one: the answer is whole, and
  silence, even the total, then ends the stream quietly. Visible output after the last finish reason shows that this
  server's finish reasons end nothing, and the attempt is back in ``idle`` for good.
* A finding that was recorded but not acted upon is not made again in the same silence, and for the total never.
* Terminal states absorb: a run finishes once; a finished run has no deadline, and its numbers stand.

Methods take what happened and the monotonic instant, and never ask the time. Judging whether a passed deadline is
real (late timer, buffered bytes) is in ``judging``; what a chunk means is in ``chunks``. One thread at a time tells of
events, but others may finish the run or look at its clocks, so the order of assignments never shows them a wait that
is longer than it was.
"""

from __future__ import annotations

import math

from stallwatch.core.chunks import HEARTBEAT, VISIBLE, ChunkFacts
from stallwatch.core.deadlines import EXTENDED_CAP, WHOLE_ANSWER_WAIT, Due, Limits, Stall, Until, Whole
from stallwatch.core.words import Outcome, Phase, Wire

__all__ = ["EXTENDED_CAP", "WHOLE_ANSWER_WAIT", "Due", "Limits", "Stall", "Tracker", "Until", "Whole"]

# Python 3.11 takes ten times as long to find a member on its enum as to find a global.
_FIRST_TOKEN, _THINKING, _IDLE, _DONE = Phase.FIRST_TOKEN, Phase.THINKING, Phase.IDLE, Phase.DONE


class Tracker:
    """The state of a run's clocks. Create it when the run begins; the first attempt must follow."""

    __slots__ = (
        "_bytes_since_progress",
        "_chunks_since_progress",
        "_connect_after",
        "_open",
        "_progress_charged",
        "_progress_from",
        "_reported",
        "_resumed",
        "_total_charged",
        "_total_reported",
        "_wire_charged",
        "_wire_from",
        "attempt_started",
        "attempts",
        "choices",
        "chunks",
        "end_marked",
        "finished_choices",
        "first_chunk_at",
        "first_token_at",
        "first_visible_at",
        "heartbeats",
        "last_activity",
        "limits",
        "longest_gap",
        "outcome",
        "phase",
        "started",
        "until",
        "wait_from",
    )

    def __init__(self, limits: Limits, now: float, choices: int = 1) -> None:
        self.limits = limits
        self.choices = max(choices, 1)
        self.started = self.last_activity = now
        self.until: Until | None = None
        self.attempts = self.chunks = self.heartbeats = 0
        self.first_chunk_at: float | None = None
        self.first_token_at: float | None = None
        self.first_visible_at: float | None = None
        self.longest_gap: float | None = None
        self.phase = _FIRST_TOKEN
        self.outcome: Outcome | None = None
        self._open = True
        self.wait_from: float | None = now
        """The instant the present wait began; None while the caller does not wait."""
        self._total_charged = 0.0
        self._total_reported = False
        self._begin_attempt(now)

    def _begin_attempt(self, now: float) -> None:
        self.attempt_started = now
        self.finished_choices = 0
        self.end_marked = False
        self._progress_from = self._wire_from = now
        self._progress_charged = self._wire_charged = self._connect_after = 0.0
        self._bytes_since_progress = self._chunks_since_progress = self._reported = self._resumed = False

    def follow(self, earlier: Tracker, now: float) -> None:
        """This run goes on where ``earlier`` has ended, or races it, on another route: they share start and total."""
        self.started = earlier.started
        self.longest_gap = earlier.longest_gap
        self._total_charged = earlier.waited(now)

    # What happens before the body

    def on_attempt(self, now: float) -> None:
        """A request is about to be sent; its clocks start, and the caller waits from here on."""
        if self.outcome is not None:
            return
        self.attempts += 1
        self._begin_attempt(now)
        self.phase = _FIRST_TOKEN
        if self.wait_from is None:
            self.wait_from = now
        self.last_activity = now

    def on_connecting(self, now: float) -> None:
        """The attempt has got its place in the pool and opens a connection; trying once more restarts nothing."""
        if self.phase is _FIRST_TOKEN:
            self._connect_after = self.silence(now)
            self.phase = Phase.CONNECT

    def on_connected(self, now: float) -> None:
        """The connection stands, TLS included."""
        if self.phase is Phase.CONNECT:
            self.phase = _FIRST_TOKEN
            self.last_activity = now

    def on_back_off(self, now: float) -> None:
        """The attempt failed and the caller waits for the next: only the total runs."""
        if self.outcome is not None:
            return
        self.on_wait(now)
        self.phase = Phase.TOTAL
        self.finished_choices = 0
        self.last_activity = now

    # What happens while the body is read

    @property
    def waiting(self) -> bool:
        """Whether the caller is waiting for the server."""
        return self.wait_from is not None

    def on_wait(self, now: float) -> None:
        """The caller begins to wait for the server, unless it waits already."""
        if self.wait_from is not None or self.outcome is not None:
            return
        self._progress_from = now - self._progress_charged
        self._wire_from = now - self._wire_charged
        self.wait_from = now

    def on_pause(self, now: float) -> None:
        """The caller stops waiting, without a chunk (or is done with the one it got)."""
        begun = self.wait_from
        if begun is None:
            return
        self.wait_from = None
        # A run that nobody holds any more is ended as of its last activity, which may lie before the wait.
        if now < begun:  # noqa: PLR1730 - max() costs three times as much, per chunk
            now = begun
        self._total_charged += now - begun
        self._progress_charged = now - self._progress_from
        self._wire_charged = now - self._wire_from

    def on_bytes(self, now: float) -> None:
        """Body bytes arrived."""
        if self.outcome is not None:
            return
        self._wire_from = self.last_activity = now
        self._wire_charged = 0.0
        self._bytes_since_progress = True

    def on_end_mark(self, marked: bool) -> None:
        """The newest bytes end with the protocol's end mark, or do not: what looked like one may have been content."""
        self.end_marked = marked

    def on_chunk(self, facts: ChunkFacts, now: float) -> float | None:
        """A chunk reached the caller, whose wait ends. Return the server wait since the last progress, if this is some.

        The first progress of a run ends no gap between chunks, so it returns None as well.
        """
        if facts is VISIBLE and self.phase is _IDLE and self.first_visible_at is not None:
            # As in nearly all chunks, visible output goes on: ``on_pause`` and ``_on_progress`` in one.
            begun, gap = self.wait_from, self._progress_charged
            if begun is not None:
                self.wait_from = None
                self._total_charged += now - begun
                gap = now - self._progress_from
            self.chunks += 1
            self.last_activity = now
            self._progress_charged = self._wire_charged = 0.0
            self._bytes_since_progress = self._chunks_since_progress = self._reported = False
            if self.longest_gap is None or gap > self.longest_gap:
                self.longest_gap = gap
            return gap
        if self.outcome is not None:
            return None
        self.chunks += 1
        self.last_activity = now
        if self.first_chunk_at is None:
            self.first_chunk_at = now
        self.on_pause(now)
        if facts is HEARTBEAT:
            self.heartbeats += 1
        if facts.progress or self.limits.any_chunk_is_progress:
            return self._on_progress(facts, now)
        self._wire_charged = 0.0
        self._bytes_since_progress = self._chunks_since_progress = True
        return None

    def _on_progress(self, facts: ChunkFacts, now: float) -> float | None:
        gap = self._progress_charged
        phase = self.phase
        if self._reported and gap > (self.longest_gap or 0.0):
            # A stall that was only observed has gone on: this is how long it really was.
            self.longest_gap = gap
        self._progress_charged = self._wire_charged = 0.0
        self._bytes_since_progress = self._chunks_since_progress = self._reported = False
        if facts.output:
            self._on_output(facts.visible, now)
        if facts.finishes or facts.terminal:
            self.finished_choices = self.choices if facts.terminal else self.finished_choices + facts.finishes
        if self.finished_choices >= self.choices and not self._resumed:
            self.phase = _DONE
        elif facts.visible:
            self.phase = _IDLE
        elif phase is not _IDLE:
            self.phase = _THINKING
        if phase is not _IDLE and phase is not _THINKING and phase is not _DONE:
            return None
        if self.longest_gap is None or gap > self.longest_gap:
            self.longest_gap = gap
        return gap

    def _on_output(self, visible: bool, now: float) -> None:
        if self.first_token_at is None:
            self.first_token_at = now
        if visible:
            if self.first_visible_at is None:
                self.first_visible_at = now
            if self.phase is _DONE:
                self._resumed = True

    @property
    def whole(self) -> bool:
        """Whether every choice is finished or the end mark has come, so that nothing but usage can follow."""
        return self.end_marked or self.finished_choices >= self.choices

    # Deadlines

    def due(self) -> Due | None:
        """Return the next deadline of the present wait, or None when nothing runs."""
        begun = self.wait_from
        if begun is None or self.outcome is not None:
            return None
        nearest = None if self._reported else self._due_of_phase()
        if self._total_reported:
            return nearest
        total, until = self.limits.total, self.until
        at = math.inf if total is None else begun + total - self._total_charged
        scoped = until is not None and until.at < at
        if until is not None and scoped:
            at, total = until.at, until.total
        if total is None or (nearest is not None and nearest.at <= at):
            return nearest
        done = self.end_marked or self.phase is _DONE
        return Due(at=at, phase=_DONE if done else Phase.TOTAL, limit=total, allowed=total, scoped=scoped)

    def _due_of_phase(self) -> Due | None:
        limits = self.limits
        phase = _DONE if self.end_marked else self.phase
        if phase is _IDLE or phase is _DONE:
            if limits.idle is None:
                return None
            allowed = limits.idle if phase is _IDLE else min(limits.idle, WHOLE_ANSWER_WAIT)
            return Due(at=self._progress_from + allowed, phase=phase, limit=limits.idle, allowed=allowed)
        if phase is Phase.TOTAL:
            return None
        patient = self._patient(_THINKING if phase is _THINKING else _FIRST_TOKEN)
        # Body bytes prove a connection, whoever forgot to tell of it.
        if phase is Phase.CONNECT and limits.connect is not None and not self._bytes_since_progress:
            at = self._progress_from + self._connect_after + limits.connect
            if patient is None or at < patient.at:
                return Due(at=at, phase=phase, limit=limits.connect, allowed=limits.connect)
        return patient

    def _patient(self, phase: Phase) -> Due | None:
        limits = self.limits
        limit = limits.thinking if phase is _THINKING else limits.first_token
        if limit is None:
            return None
        extended = limits.extended(limit)
        wire, progress = self._wire_from + limit, self._progress_from + extended
        if wire <= progress:
            return Due(at=wire, phase=phase, limit=limit, allowed=limit, silent_wire=True)
        return Due(at=progress, phase=phase, limit=limit, allowed=extended)

    def judge(self, now: float) -> Stall | Whole | None:
        """Return what the present wait has become at ``now``; None while its deadline lies ahead."""
        due = self.due()
        if due is None or now < due.at:
            return None
        silence = self.silence(now)
        if due.phase is _DONE:
            return Whole(waited=silence)
        return Stall(
            phase=due.phase,
            wire=Wire.DEAD_WIRE if due.silent_wire else self._wire(),
            limit=due.limit,
            allowed=due.allowed,
            # No difference of two instants alone: rounding must not make it less than what was allowed.
            waited=due.allowed + (now - due.at),
            silence=silence,
            scoped=due.scoped,
        )

    def _wire(self) -> Wire:
        if self._chunks_since_progress:
            return Wire.HEARTBEAT_ONLY
        return Wire.KEEPALIVE_ONLY if self._bytes_since_progress else Wire.DEAD_WIRE

    def on_stall(self, found: Stall | Whole) -> None:
        """What ``judge`` found was recorded: a stall's silence enters the longest gap, and it is not found again."""
        if self.outcome is not None:
            return
        if isinstance(found, Whole):
            self._reported = self._total_reported = True
            return
        if found.phase is Phase.TOTAL:
            self._total_reported = True
        else:
            self._reported = True
        if found.silence > (self.longest_gap or 0.0):
            self.longest_gap = found.silence

    def on_survived(self) -> None:
        """A stall was recorded, and then there was an answer all the same: the clocks of the phase run again."""
        self._reported = False

    # The end

    def waited(self, now: float) -> float:
        """Return the seconds of waiting charged to the run so far."""
        begun = self.wait_from
        return self._total_charged + (0.0 if begun is None else max(now - begun, 0.0))

    def silence(self, now: float) -> float:
        """Return the seconds of waiting since the last progress."""
        return max(self._progress_charged if self.wait_from is None else now - self._progress_from, 0.0)

    def finish(self, outcome: Outcome, now: float) -> bool:
        """End the run. True for the one call that ended it; later calls change nothing."""
        try:
            # Atomic, so that a sweep and a reader in two threads cannot both win.
            del self._open
        except AttributeError:
            return False
        self.outcome = outcome
        self.on_pause(now)
        self.phase = _DONE
        return True
