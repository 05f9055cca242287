"""The clocks' data: the limits of a call, the next deadline, and what a wait may turn out to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stallwatch.core.words import Phase, Wire

__all__ = ["EXTENDED_CAP", "WHOLE_ANSWER_WAIT", "Due", "Limits", "Stall", "Until", "Whole"]

EXTENDED_CAP = 600.0
"""Seconds; the longest a keepalive extension may make a limit."""

WHOLE_ANSWER_WAIT = 5.0
"""Seconds to wait for a late usage chunk once every choice is finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The timeouts of one call in seconds; ``None`` is off."""

    connect: float | None = None
    first_token: float | None = None
    thinking: float | None = None
    idle: float | None = None
    total: float | None = None
    keepalive_factor: float = 2.0
    any_chunk_is_progress: bool = False

    def extended(self, limit: float) -> float:
        """Return how long ``limit`` may become while bytes without progress arrive."""
        return min(limit * self.keepalive_factor, max(EXTENDED_CAP, limit))

    def longest_silence(self) -> float:
        """Return the longest enforced wait without progress; 0 when all are off."""
        patient = [self.extended(limit) for limit in (self.first_token, self.thinking) if limit is not None]
        # Where a phase has no limit of its own, the total is all that bounds its silence.
        unbounded = None in (self.first_token, self.thinking, self.idle)
        plain = (self.connect, self.idle, self.total if unbounded else None)
        return max([*patient, *(limit for limit in plain if limit is not None), 0.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """The instant up to which the scope around a call may last, and the total in seconds it comes from."""

    at: float
    total: float
    set_by: str = "run"
    """Who set that total."""


class Due(NamedTuple):
    """The next deadline: the instant, and which limit it comes from. A tuple: made several times in every call."""

    at: float
    phase: Phase
    limit: float
    allowed: float
    """``limit``, or what the keepalive extension makes of it."""
    silent_wire: bool = False
    """Whether it is the wire clock that runs out, so that no byte came since."""
    scoped: bool = False
    """Whether it is the total of the scope around the call, not of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A wait that passed its deadline. ``limit`` is the configured one, ``waited`` the time charged to it."""

    phase: Phase
    wire: Wire
    limit: float
    allowed: float
    waited: float
    silence: float = 0.0
    """Seconds of waiting since the last progress: more than ``waited`` on a wire that died late, less at a total."""
    scoped: bool = False
    """Whether it was the total of the scope around the call, not of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The answer is complete; the stream may end quietly."""

    waited: float
