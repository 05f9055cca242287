"""The errors stallwatch raises.

A stall is raised as :class:`StreamTimeoutError`, which is at once ``openai.APITimeoutError`` and the built-in
``TimeoutError`` with ``ETIMEDOUT``, so that retry code written for the transport's own read timeout handles it
unchanged. Everything that is not ours passes through as the bare SDK raises it.
"""

from __future__ import annotations

import copy
import errno
from typing import Any, Self

import openai

from stallwatch.core.words import Phase, Wire

__all__ = [
    "EarlierRouteError",
    "RunCancelledError",
    "StallwatchError",
    "StreamInactivityTimeoutError",
    "StreamTimeoutError",
    "TotalTimeoutError",
]

_WIRE_TEXT = {
    Wire.DEAD_WIRE: "no bytes arrived",
    Wire.KEEPALIVE_ONLY: "only keepalives arrived",
    Wire.HEARTBEAT_ONLY: "only empty chunks arrived",
}


class StallwatchError(Exception):
    """The root of what stallwatch raises by itself."""


class StreamTimeoutError(StallwatchError, openai.APITimeoutError, TimeoutError):
    """A wait passed its deadline and the attempt was aborted at the socket.

    ``waited`` is the measured wait charged to ``phase`` and ``limit`` the configured limit (both seconds); while bytes
    without progress arrive a limit may be extended, so ``waited`` can be a multiple of it.
    ``stream_lifetime`` counts from the start of the attempt. Time in which the caller was not reading is never
    part of ``waited``.
    """

    code: str
    errno: int
    phase: str
    limit: float
    waited: float
    wire: str | None
    chunks_received: int
    stream_lifetime: float
    attempt: int
    decision: str | None
    """Why the call was not tried again, as in ``stallwatch.retry.decision``; None where that is not known."""
    set_by: str
    """The layer of configuration that the limit comes from, as in ``stallwatch.policy.rule``, or ``built-in``."""

    def __init__(
        self,
        message: str | None = None,
        *,
        request: Any = None,
        phase: str = Phase.IDLE,
        limit: float = 0.0,
        allowed: float | None = None,
        waited: float = 0.0,
        wire: str | None = None,
        chunks_received: int = 0,
        stream_lifetime: float = 0.0,
        attempt: int = 1,
        set_by: str = "built-in",
    ) -> None:
        text = (
            message
            if message is not None
            else _message(phase, limit, allowed, waited, wire, chunks_received, set_by)
        )
        # The SDK's own initialisers fix the message ("Request timed out."), so they are bypassed; what they would
        # have set is set here, and the field list is one on every SDK line.
        Exception.__init__(self, text)
        self.message = text
        self.request = request
        self.body = None
        self.code = "ETIMEDOUT"  # pyright: ignore[reportIncompatibleVariableOverride]
        self.param = None
        self.type = None
        self.errno = errno.ETIMEDOUT  # pyright: ignore[reportIncompatibleVariableOverride]
        self.strerror = text
        self.phase = str(phase)
        self.limit = limit
        self.waited = waited
        self.wire = None if wire is None else str(wire)
        self.chunks_received = chunks_received
        self.stream_lifetime = stream_lifetime
        self.attempt = attempt
        self.set_by = set_by
        self.decision = None

    def not_tried_again(self, decision: str) -> None:
        """Tell why there was no further attempt, in the message too."""
        self.decision = decision
        self.message = self.strerror = f"{self.message} Attempt {self.attempt}; not tried again: {decision}."
        self.args = (self.message,)

    def __reduce__(self) -> tuple[Any, ...]:
        # The request holds sockets' extensions and callbacks, which neither copy nor pickle can carry.
        state = {name: value for name, value in self.__dict__.items() if name != "request"}
        return (_rebuild, (type(self), self.message, state))

    def again(self) -> Self:
        """Return an equal error without a traceback, to be raised anew without keeping frames alive."""
        copied: Self = copy.copy(self)
        copied.request = self.request
        return copied

    def __str__(self) -> str:
        # TimeoutError's own text would be "[Errno 110] ...".
        return self.message


class StreamInactivityTimeoutError(StreamTimeoutError):
    """The server was silent, or sent nothing that counts as progress, for longer than a phase allows."""


class TotalTimeoutError(StreamTimeoutError):
    """The run used up its total: all attempts, back-off and waiting together."""


class EarlierRouteError(StallwatchError):
    """Never raised: it marks, in the chain under a router's error, that what follows was said by an earlier route.

    ``route`` is that route's name; the error itself is the ``__cause__``.
    """

    def __init__(self, route: str, what: str) -> None:
        super().__init__(f"route {route} had failed before: {what}")
        self.route = route
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.route, self.what), self.__dict__)


class RunCancelledError(StallwatchError, openai.OpenAIError):
    """The user cancelled the run; never retried and never counted as a failure."""

    def __init__(self, reason: str = "cancelled") -> None:
        super().__init__(f"run cancelled: {reason}")
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.reason,), self.__dict__)

    def again(self) -> Self:
        """Return an equal error without a traceback."""
        return copy.copy(self)


def _rebuild(cls: type[StreamTimeoutError], message: str, state: dict[str, Any]) -> StreamTimeoutError:
    error = cls(message)
    error.__dict__.update(state)
    return error


_WALL = ("run", "middleware", "header")
"""Who sets totals that run by the clock on the wall."""


def _advice(phase: str, set_by: str) -> str:
    """Name the setting that is in force: advice to change another would send people in circles."""
    here = {
        "code": "It was set by instrument(...)",
        "client": "It was set by stallwatch.guard(...)",
        "call": "It was set by stallwatch.policy(...) around the call",
        "route": "It was set by the policy of the router's route",
        "run": "It was set by stallwatch.Run(total=...) around the call",
        "middleware": "It was set by StallwatchMiddleware(total=...)",
        "header": "It came with the request, in the header that StallwatchMiddleware(deadline_header=...) names",
    }.get(set_by)
    if set_by.startswith("rule:"):
        here = f"It was set by the rule {set_by.removeprefix('rule:')!r}"
    if here is None:
        return (
            f"Change the limit with STALLWATCH_{phase.upper()}_TIMEOUT or stallwatch.policy({phase}=...); "
            "0 switches it off."
        )
    elsewhere = "" if set_by in ("call", *_WALL) else f", or use stallwatch.policy({phase}=...)"
    return f"{here}: change it there{elsewhere}; 0 switches it off."


_SDK_SAYS = "Request timed out"
"""How the SDK's own timeouts begin. Some tell timeouts by these words alone: LiteLLM makes them its ``Timeout``."""


def _message(
    phase: str,
    limit: float,
    allowed: float | None,
    waited: float,
    wire: str | None,
    chunks: int,
    set_by: str,
) -> str:
    advice = f"Chunks received: {chunks}. {_advice(phase, set_by)}"
    if phase == Phase.TOTAL:
        # The last wait may have been short, so neither progress nor the wire is the point.
        wall = "run used up its total: {:.2f} s"
        what = wall if set_by in _WALL else "call used up its total: {:.2f} s of waiting"
        return f"{_SDK_SAYS}: the {what.format(waited)} (limit {limit:g} s). {advice}"
    what = "" if wire is None else f"; {_WIRE_TEXT[Wire(wire)]}"
    extended = "" if allowed is None or allowed <= limit else f", {allowed:g} s while bytes arrive"
    silence = f"no progress in phase {phase} for {waited:.2f} s (limit {limit:g} s{extended}){what}"
    return f"{_SDK_SAYS}: {silence}. {advice}"
