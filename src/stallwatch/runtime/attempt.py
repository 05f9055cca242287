"""What is known of one attempt: an HTTP request of a run, those made by the SDK itself included.

Plain records. An attempt is opened when its request is about to be sent and told of exactly once, together with what
followed: an attempt's verdict means little without the decision that was made of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from stallwatch.core.words import AttemptRole, FailureKind, FailureReason, Outcome, RaceResult, RetryDecision

if TYPE_CHECKING:
    from stallwatch.core.chunks import ChunkFacts
    from stallwatch.core.classify import Verdict
    from stallwatch.runtime.inflight import InFlight
    from stallwatch.telemetry.recorder import ResponseView

__all__ = ["Attempt", "ChunkReader", "Following", "Journey", "Leg", "Retries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """What was made of a failed attempt: the verdict, what was decided, and the wait before the next; seconds."""

    verdict: Verdict
    decision: RetryDecision
    delay: float = 0.0
    server_wait: float | None = None
    """What the server asked for."""
    paced: bool = False
    """Whether the wait was made longer because the whole route is asked less for now."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One HTTP request of a run."""

    number: int
    """From 1, over all routes of the run."""
    started: float
    """Monotonic instant."""
    role: AttemptRole
    model: str | None
    server_address: str | None
    server_port: int | None
    chunks_before: int = 0
    """Chunks and characters the run had received when this attempt began."""
    characters_before: int = 0
    race: RaceResult | None = None
    """How it came out of a race with another attempt."""
    status_code: int | None = None
    request_id: str | None = None
    outcome: Outcome | None = None
    duration: float = 0.0
    chunks: int = 0
    characters: int | None = None
    """Characters of generated output received; None where the response cannot be read."""
    usage_known: bool = False
    """Whether the server reported its token usage; what it did not report is unknown, not zero."""
    following: Following | None = None
    """Only of an attempt that failed."""
    _open: bool = field(default=True, repr=False, compare=False)

    def claim(self) -> bool:
        """Return True to the one who is to close it: a leg may end in its thread while it is told lost in another."""
        try:
            # Atomic.
            del self._open
        except AttributeError:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How many retries a run may have: those the SDK makes by itself, and all together."""

    by_sdk: int = 0
    allowed: int = 0


class Journey:
    """What the legs of one call have in common: a call that has several routes has a run on each it asks."""

    __slots__ = ("_numbers", "attempts", "eligible", "ran_out", "routes_left", "stalls")

    def __init__(
        self, eligible: frozenset[FailureKind | FailureReason], routes_left: Callable[[int], int]
    ) -> None:
        self.eligible = eligible
        self.routes_left = routes_left
        self._numbers = itertools.count(1)
        self.attempts = 0
        """Attempts so far, on all legs."""
        self.stalls = 0
        self.ran_out = False
        """Whether the total, which is the call's, has been found spent."""

    def first_to_run_out(self) -> bool:
        """Return whether this leg is the first to find the total spent: that is one stall, not one a leg."""
        first, self.ran_out = not self.ran_out, True
        return first

    def number(self) -> int:
        """Return the number of an attempt that begins; legs may run in several threads."""
        self.attempts = number = next(self._numbers)
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A run's place in its call; ``earlier`` is the run on the route asked before."""

    number: int
    journey: Journey
    earlier: InFlight | None
    role: AttemptRole
    retries: int | None
    """Retries wanted on this route; None for what a policy sets, and none where none does."""


class ChunkReader(Protocol):
    """Reads the SDK's chunk objects; the response as learned so far is its other face."""

    @property
    def response(self) -> ResponseView:
        """What was learned from the response so far."""
        ...

    def facts(self, chunk: Any) -> ChunkFacts:
        """Return what a chunk means; one that cannot be read counts as progress and hurts nobody."""
        ...

    @property
    def has_end_mark(self) -> bool:
        """Whether the protocol read so far marks its end, so that a body without the mark was cut."""
        ...

    def failure(self) -> str | None:
        """Return the error code the response itself reported, if it says that it failed."""
        ...

    def code_of(self, error: BaseException) -> str | None:
        """Return the code that an error frame carried, if ``error`` is one and the code may be told."""
        ...
