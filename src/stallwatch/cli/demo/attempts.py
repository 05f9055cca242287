"""What became of each attempt of a guarded call, as its span's events tell it, beside what the server saw of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from stallwatch.catalogue import Attr, Event
from stallwatch.cli.demo.record import EventRecord, Exchange, RunRecord
from stallwatch.core.words import AttemptRole, Outcome, RaceResult, RetryDecision

__all__ = ["AttemptRecord", "attempts_of", "hedge_result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt; ``ended`` and ``duration`` are in seconds, the first of them since the program's request."""

    number: int
    role: str
    ended: float
    duration: float
    outcome: str | None
    decision: str | None
    delay: float | None
    """Seconds of back-off before the retry, when that was decided."""
    race: str | None
    fallback_to: str | None
    """The name of the route that was asked next."""
    exchange: Exchange | None

    @property
    def name(self) -> str:
        """What it is called where there is little room."""
        return f"attempt {self.number}" if self.role == AttemptRole.FIRST else f"{self.number}: {self.role}"

    def fate(self) -> str:
        """Say what became of it, and what was decided."""
        after = f"{self.duration:.2f} s"
        if self.race == RaceResult.LOSER:
            return f"lost the race after {after}"
        won = "won the race, " if self.race == RaceResult.WINNER else ""
        if self.outcome == Outcome.COMPLETED:
            return f"{won}completed in {after}"
        return f"{won}{self.outcome} after {after}: {self._decided()}"

    def _decided(self) -> str:
        match self.decision:
            case RetryDecision.RETRY:
                return f"retry in {self.delay or 0.0:.2f} s"
            case RetryDecision.FALLBACK:
                return f"fallback to {self.fallback_to or 'another route'}"
            case _:
                return f"no more, {self.decision}"


def attempts_of(run: RunRecord) -> tuple[AttemptRecord, ...]:
    """Return the attempts by number; none without a span."""
    return tuple(sorted(_attempts(run), key=lambda attempt: attempt.number))


def hedge_result(run: RunRecord) -> str | None:
    """Return how the race went for the hedge; None if there was no race."""
    events = () if run.span is None else run.span.events
    return next((event.get(Attr.HEDGE_RESULT) for event in events if event.name == Event.HEDGE), None)


def _attempts(run: RunRecord) -> Iterator[AttemptRecord]:
    events = () if run.span is None else run.span.events
    for event, following in pairwise([*events, None]):
        if event is None or event.name != Event.ATTEMPT:
            continue
        number = int(event.get(Attr.ATTEMPT_NUMBER) or 0)
        yield AttemptRecord(
            number=number,
            role=str(event.get(Attr.ATTEMPT_ROLE)),
            ended=event.at,
            duration=float(event.get(Attr.ATTEMPT_DURATION) or 0.0),
            outcome=event.get(Attr.OUTCOME),
            decision=event.get(Attr.RETRY_DECISION),
            delay=event.get(Attr.RETRY_DELAY),
            race=event.get(Attr.ATTEMPT_RACE),
            fallback_to=_route_after(following),
            # The server's requests and the attempts are in the same order: each begins with its request.
            exchange=run.exchanges[number - 1] if 0 < number <= len(run.exchanges) else None,
        )


def _route_after(following: EventRecord | None) -> str | None:
    """A fallback is told right after the attempt that made it necessary."""
    if following is None or following.name != Event.FALLBACK:
        return None
    to: str | None = following.get(Attr.FALLBACK_TO)
    return to
