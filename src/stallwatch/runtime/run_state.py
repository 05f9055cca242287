"""The state of a run: plain fields, and what follows from them.

It holds nothing the user holds (no stream, no response, no client), so it never keeps anything of theirs alive.
"""

from __future__ import annotations

import socket
import threading
import weakref
from array import array
from collections.abc import Callable
from typing import Any

from stallwatch.clock import monotonic
from stallwatch.core.phases import Stall, Tracker, Whole
from stallwatch.core.words import AttemptRole, RaceResult, RetryDecision
from stallwatch.errors import RunCancelledError
from stallwatch.resolution import ResolvedPolicy
from stallwatch.run import Run, current_run
from stallwatch.runtime.attempt import Attempt, ChunkReader, Following, Leg, Retries
from stallwatch.runtime.routes import Proposal, Route
from stallwatch.telemetry.recorder import Call, Recorders, ResponseView

__all__ = ["RunState"]

_NO_RETRIES = Retries()

_SECRET = 12
"""Characters; what is shorter is no key but a word, as local servers take, and may stand in any name."""


class RunState:
    """Everything that is known of one run, from the user's call to its end; of a routed call, on one route.

    ``InFlight`` is what is done with it.
    """

    __slots__ = (
        "__weakref__",
        "_gaps",
        "_untold",
        "answered",
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
        "events",
        "every_gap",
        "failed",
        "following",
        "forgotten",
        "handshake",
        "headers_in",
        "held",
        "interrupt",
        "leg",
        "orphaned",
        "own_stalls",
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
        "route",
        "scope",
        "secret",
        "shadow",
        "source",
        "stall",
        "status_code",
        "tail",
        "trace",
        "tracker",
        "tunnel",
        "waiter",
        "woken",
    )

    def __init__(
        self,
        call: Call,
        policy: ResolvedPolicy,
        recorders: Recorders,
        choices: int = 1,
    ) -> None:
        self.call = call
        self.policy = policy
        self.recorders = recorders
        self.tracker = Tracker(policy.limits, monotonic(), choices)
        self.trace: Any = None
        self.reader: ChunkReader | None = None
        self.interrupt = "none"
        self.scope: Run | None = current_run()
        self._begin_attempts()
        self._begin_below()
        # What was found of its waits, and how it ended.
        self.stall: Stall | None = None
        self.own_stalls = 0
        self.pending: Stall | Whole | None = None
        self.error_type: str | None = None
        self.error_text: str | None = None
        self.status_code: int | None = None
        self.request_id: str | None = None
        self.answerless: str | None = None
        self.closed = self.backstopped = self.forgotten = self.orphaned = False
        self.ended_at: float | None = None
        self.every_gap = policy.gaps == "all"
        self._gaps: array[float] | None = None
        self._untold = True

    def _begin_attempts(self) -> None:
        """How it stands with its attempts; see ``retrying``."""
        self.attempt: Attempt | None = None
        self.failed: Attempt | None = None
        self.decided: Following | None = None
        self.following: Following | None = None
        self.retries = _NO_RETRIES
        self.retries_wanted: int | None = None
        self.proposal: Proposal | None = None
        self.route: Route | None = None
        self.refusal: tuple[RetryDecision, float | None] | None = None
        self.delivered = False
        self.resending = False
        # Its place in a call with several routes; see ``routing``.
        self.leg: Leg | None = None
        self.role = AttemptRole.FIRST
        self.race: RaceResult | None = None
        self.held = False
        self.answered: Attempt | None = None

    def _begin_below(self) -> None:
        """The transport below, and the means to wake whoever waits for it; see ``waking``."""
        self.owners: tuple[Any, ...] = ()
        self.events: weakref.ref[Any] | None = None
        self.request: Any = None
        self.secret: object = None
        self.source: Any = None
        self.shadow: Any = None
        self.waiter: Any = None
        self.woken: threading.Event | None = None
        self.break_off: Callable[[], object] | None = None
        self.handshake: tuple[socket.socket, Callable[[], object] | None] | None = None
        self.read_timeout: float | None = None
        self.headers_in = False
        self.tunnel: tuple[float | None] | None = None
        self.received = 0
        self.tail = b""

    def failed_with(self, error_type: str, error_text: str) -> None:
        """Remember what the span will say of a failure; a server may have given the key back as the code of it."""
        self.error_type = "error" if self.quotes_secret(error_type) else error_type
        self.error_text = error_text

    def quotes_secret(self, text: str) -> bool:
        """Whether a server's text has the client's key in it."""
        secret = self.secret
        return isinstance(secret, str) and len(secret) >= _SECRET and secret.lower() in text.lower()

    @property
    def response(self) -> ResponseView | None:
        """What was learned from the response so far."""
        return None if self.reader is None else self.reader.response

    @property
    def routed(self) -> bool:
        """Whether a router makes this call."""
        return self.leg is not None

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
    def stalls(self) -> int:
        """Stalls so far, those on other routes included."""
        return self.own_stalls if self.leg is None else self.leg.journey.stalls

    @property
    def ended(self) -> bool:
        """Whether the run has its outcome."""
        return self.tracker.outcome is not None

    def total_left(self) -> float | None:
        """Return the seconds of waiting left to the run, or None when neither it nor its scope has a total."""
        now, limits, until = monotonic(), self.policy.limits, self.tracker.until
        left = None if limits.total is None else max(limits.total - self.tracker.waited(now), 0.0)
        if until is None:
            return left
        scoped = max(until.at - now, 0.0)
        return scoped if left is None else min(left, scoped)

    @property
    def cancelled(self) -> bool:
        """Whether the user has cancelled the scope this run is in."""
        return self.scope is not None and self.scope.cancelled

    @property
    def wakeable(self) -> bool:
        """Whether its waits may have to be ended from outside: by the scope's cancel, or by a close in a re-send."""
        return self.scope is not None or self.resending

    @property
    def over(self) -> bool:
        """Whether no further attempt may be started: cancelled, or closed by the user."""
        return self.closed or self.cancelled

    def cancel_error(self) -> RunCancelledError:
        """Return the error that tells of the cancel."""
        return RunCancelledError(self.cancel_reason or "cancelled")
