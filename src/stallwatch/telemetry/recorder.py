"""What telemetry is told, by whom, and the promise that telling cannot hurt.

Drivers call :class:`Recorders` at fixed points of a run; it hands on to the span and the metric recorder and swallows
whatever goes wrong there, because no failure of observation may reach the observed program. Nothing here decides
anything: the reasons and outcomes come from the core.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from stallwatch.core.phases import Stall, Tracker
from stallwatch.core.words import AttemptRole, HedgeResult, Outcome, RaceResult, RetryDecision, StallAction
from stallwatch.foreign_errors import told_of
from stallwatch.logs import log
from stallwatch.resolution import ResolvedPolicy

if TYPE_CHECKING:
    from stallwatch.core.classify import Verdict

__all__ = ["AttemptView", "Call", "FollowingView", "Recorder", "Recorders", "RunView", "Usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What was asked for: the request in neutral words, without content."""

    operation: str
    provider: str
    model: str | None
    stream: bool
    server_address: str | None = None
    server_port: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Further request attributes for the span."""
    uploads: bool = False
    """Whether the request carries files, which may be consumed by sending them."""

    @property
    def origin(self) -> str:
        """Where it is sent."""
        return f"{self.server_address}:{self.server_port}"


@dataclass(slots=True, kw_only=True)
class Usage:
    """Token counts as the server last reported them; ``None`` is *not reported*, which is not zero."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    reasoning: int | None = None

    @property
    def known(self) -> bool:
        """Whether the server has reported any."""
        return self.input is not None or self.output is not None


class AttemptView(Protocol):
    """What recorders may read of an attempt that has ended; see ``runtime.attempt``."""

    number: int
    role: AttemptRole
    race: RaceResult | None
    model: str | None
    server_address: str | None
    server_port: int | None
    status_code: int | None
    request_id: str | None
    outcome: Outcome | None
    duration: float
    chunks: int
    characters: int | None
    usage_known: bool

    @property
    def following(self) -> FollowingView | None:
        """What was made of its failure, if it failed."""
        ...


class FollowingView(Protocol):
    """Verdict and decision after a failed attempt; seconds."""

    @property
    def verdict(self) -> Verdict:
        """What classification said."""
        ...

    @property
    def decision(self) -> RetryDecision:
        """What was decided."""
        ...

    @property
    def delay(self) -> float:
        """The wait before the next attempt."""
        ...

    @property
    def server_wait(self) -> float | None:
        """What the server asked for."""
        ...

    @property
    def paced(self) -> bool:
        """Whether the wait was made longer because the whole route is asked less."""
        ...


class ResponseView(Protocol):
    """What was learned from the response."""

    id: str | None
    model: str | None
    usage: Usage
    service_tier: str | None
    fingerprint: str | None
    characters: int
    """Characters of output read so far."""

    def finish_reasons(self, choices: int) -> list[str] | None:
        """Return one reason per choice, ``error`` where none came; None when no chunk had choices at all."""
        ...


class RunView(Protocol):
    """What recorders may read of a run in flight. ``trace`` is theirs to keep."""

    call: Call
    policy: ResolvedPolicy
    tracker: Tracker
    trace: Any
    stall: Stall | None
    error_type: str | None
    error_text: str | None
    status_code: int | None
    request_id: str | None
    interrupt: str
    backstopped: bool

    def quotes_secret(self, text: str) -> bool:
        """Whether a server's text has the client's key in it."""
        ...

    @property
    def attempts(self) -> int:
        """Attempts so far, those on other routes included."""
        ...

    @property
    def stalls(self) -> int:
        """Stalls so far, those on other routes included."""
        ...

    @property
    def following(self) -> FollowingView | None:
        """What was made of the last failure, if there was one."""
        ...

    @property
    def routed(self) -> bool:
        """Whether a router makes this call."""
        ...

    @property
    def scope_name(self) -> str | None:
        """The name of the ``Run`` this is in."""
        ...

    @property
    def cancel_reason(self) -> str | None:
        """The reason the user gave for cancelling."""
        ...

    @property
    def response(self) -> ResponseView | None:
        """What was learned from the response so far."""
        ...


class Recorder(Protocol):
    """One way of telling: spans, or metrics."""

    def start(self, run: RunView) -> None:
        """A run begins; the caller is inside the user's own call."""

    def gaps(self, run: RunView, gaps: array[float]) -> None:
        """Server waits between chunks, in seconds."""

    def stall(self, run: RunView, stall: Stall, action: StallAction) -> None:
        """A wait was judged a stall; nothing has been aborted yet."""

    def attempt(self, run: RunView, attempt: AttemptView) -> None:
        """An attempt ended."""

    def fallback(self, run: RunView, failed: AttemptView, route: str, to: str) -> None:
        """The call goes on with the route named ``to``, after ``failed`` on ``route``."""

    def hedge(self, run: RunView, result: HedgeResult, delay: float) -> None:
        """A race was decided; the second attempt was due after ``delay`` seconds. ``run`` is the one that counts."""

    def backstop(self, run: RunView, now: float) -> None:
        """Nobody seems to end this run: its span ends now, its numbers stay open."""

    def end(self, run: RunView, now: float) -> None:
        """The run ended; ``now`` is the monotonic instant at which it did."""


class Recorders:
    """The fan-out; every call is safe to make from anywhere."""

    __slots__ = ("_all", "_failed", "metrics", "spans")

    def __init__(self, spans: Any, metrics: Recorder) -> None:
        self.spans = spans
        self.metrics = metrics
        self._all: tuple[Recorder, ...] = (spans, metrics)
        self._failed = False

    def _swallow(self, error: Exception) -> None:
        if not self._failed:
            # Once: a broken exporter must not flood the host's log.
            self._failed = True
            log.warning("telemetry of stallwatch failed and is ignored: %s", told_of(error))

    def start(self, run: RunView) -> None:
        """See Recorder.start."""
        for recorder in self._all:
            try:
                recorder.start(run)
            except Exception as error:
                self._swallow(error)

    def gaps(self, run: RunView, gaps: array[float]) -> None:
        """See Recorder.gaps."""
        try:
            self.metrics.gaps(run, gaps)
        except Exception as error:
            self._swallow(error)

    def stall(self, run: RunView, stall: Stall, action: StallAction) -> None:
        """See Recorder.stall."""
        for recorder in self._all:
            try:
                recorder.stall(run, stall, action)
            except Exception as error:
                self._swallow(error)

    def go_on(self, run: RunView, earlier: RunView) -> None:
        """The call goes on as ``run``, on another route."""
        run.trace = earlier.trace
        try:
            self.spans.go_on(run)
        except Exception as error:
            self._swallow(error)

    def whole(self, run: RunView, outcome: Outcome) -> None:
        """The event that ends the answer has come, and the caller is about to see it."""
        try:
            self.spans.whole(run, outcome)
        except Exception as error:
            self._swallow(error)

    def attempt(self, run: RunView, attempt: AttemptView) -> None:
        """See Recorder.attempt."""
        for recorder in self._all:
            try:
                recorder.attempt(run, attempt)
            except Exception as error:
                self._swallow(error)

    def fallback(self, run: RunView, failed: AttemptView, route: str, to: str) -> None:
        """See Recorder.fallback."""
        for recorder in self._all:
            try:
                recorder.fallback(run, failed, route, to)
            except Exception as error:
                self._swallow(error)

    def hedge(self, run: RunView, result: HedgeResult, delay: float) -> None:
        """See Recorder.hedge."""
        for recorder in self._all:
            try:
                recorder.hedge(run, result, delay)
            except Exception as error:
                self._swallow(error)

    def backstop(self, run: RunView, now: float) -> None:
        """See Recorder.backstop."""
        for recorder in self._all:
            try:
                recorder.backstop(run, now)
            except Exception as error:
                self._swallow(error)

    def end(self, run: RunView, now: float) -> None:
        """See Recorder.end."""
        # Metrics first: their exemplars need the span's context, and the span is the visible end.
        for recorder in reversed(self._all):
            try:
                recorder.end(run, now)
            except Exception as error:
                self._swallow(error)

    def activate(self, run: RunView) -> object | None:
        """Make the run's span current for the code that follows; give the result to ``deactivate``."""
        try:
            token: object | None = self.spans.activate(run)
        except Exception as error:
            self._swallow(error)
            return None
        return token

    def deactivate(self, token: object | None) -> None:
        """Undo ``activate`` in the same frame."""
        if token is not None:
            try:
                self.spans.deactivate(token)
            except Exception as error:
                self._swallow(error)
