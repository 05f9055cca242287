"""Which route is asked next, and whose answer counts: fallback and hedging as one race.

Rules
-----
* A call begins on its first route. When that fails in a way another route may mend, the next route is asked: a
  *fallback*. When it has made no progress for the hedge's delay, the next route is asked beside it: a *hedge*. There is
  at most one hedge in a call; with a single route it is that route again.
* The first *progress* wins. Headers, role and empty chunks are no progress: a server that is about to stall sends them
  too. What is whole without any progress counts when it has ended.
* Only the loser is interrupted. A leg that fails while another runs decides nothing.
* When the last leg fails, its error is the call's; the drivers chain the earlier ones to it.
* Hedges spend a share of the calls, earned before it is spent, so that a slow day doubles nobody's load.

Legs are numbered from 0 in the order in which they are started. Nothing here waits; when a hedge is due is told by
``due``. What may be hedged at all, and how a leg is read and interrupted, is the drivers' business.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from stallwatch.core.words import AttemptRole, RetryDecision

__all__ = ["MIN_SAMPLES", "Accept", "Fail", "HedgeShare", "Launch", "LearnedDelay", "Race"]

SAMPLES = 200
"""Times to first progress kept per route: enough for a 99th percentile, few enough to follow a change."""

MIN_SAMPLES = 20
"""Below that a percentile is a guess, and no hedge is started."""

SAVED_HEDGES = 10.0
"""Hedges saved up at most, so that a quiet hour does not pay for a burst that doubles the load."""

_ONE = 1 - 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Ask this route now."""

    leg: int
    route: int
    role: AttemptRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """This leg's answer is the call's; interrupt the losers."""

    leg: int
    losers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """This leg's error is the call's."""

    leg: int


class Race:
    """The state of one call over ``routes`` routes; ``delay`` is the hedge's in seconds, None for no hedge."""

    __slots__ = ("_delay", "_hedged", "_live", "_next", "_routes", "_started", "_winner", "roles")

    def __init__(self, *, routes: int, delay: float | None) -> None:
        self._routes = routes
        self._delay = delay
        self._started = 0.0
        self._next = 0
        self._live: set[int] = set()
        self._hedged = False
        self._winner: int | None = None
        self.roles: list[AttemptRole] = []

    def begin(self, now: float) -> Launch:
        """The call begins."""
        self._started = now
        return self._launch(AttemptRole.FIRST)

    def _launch(self, role: AttemptRole) -> Launch:
        leg, route = len(self.roles), min(self._next, self._routes - 1)
        self._next += 1
        self.roles.append(role)
        self._live.add(leg)
        return Launch(leg=leg, route=route, role=role)

    @property
    def decided(self) -> bool:
        """Whether a leg has won."""
        return self._winner is not None

    @property
    def hedged(self) -> bool:
        """Whether a hedge was started."""
        return AttemptRole.HEDGE in self.roles

    def routes_left(self, leg: int) -> int:
        """Return how many others there are to rely on when ``leg`` fails: routes not asked yet, and legs under way."""
        return max(self._routes - self._next, 0) + len(self._live - {leg})

    def due(self) -> float | None:
        """Return the instant at which a hedge is due, or None when none will be."""
        # A fallback is asked because nothing else is left; it is the second chance already.
        if self._delay is None or self._hedged or self.decided or len(self.roles) > 1:
            return None
        return self._started + self._delay

    def on_due(self, *, allowed: bool) -> Launch | None:
        """The first leg has made no progress in time; ``allowed`` tells whether the share admits a hedge."""
        self._hedged = True
        return self._launch(AttemptRole.HEDGE) if allowed else None

    def withdraw(self, leg: int) -> None:
        """A hedge that was to be started could not be; it is as if it had been refused."""
        self._live.discard(leg)
        self.roles.pop()
        self._next -= 1

    def on_progress(self, leg: int) -> Accept | None:
        """A leg has made progress, or ended well; None when another has won before."""
        if self.decided:
            return None
        self._winner = leg
        self._live.discard(leg)
        return Accept(leg=leg, losers=tuple(sorted(self._live)))

    def on_failure(self, leg: int, decision: RetryDecision) -> Launch | Fail | None:
        """A leg has failed and ``decision`` was made of it; None while others run."""
        self._live.discard(leg)
        if self.decided:
            return None
        goes_on = decision is RetryDecision.FALLBACK
        if goes_on and self._live:
            return None
        if goes_on and self._next < self._routes:
            return self._launch(AttemptRole.FALLBACK)
        # What may not be mended by another route may still be answered by the leg that runs already.
        return None if self._live and decision is not RetryDecision.CANCELLED else Fail(leg=leg)


class HedgeShare:
    """The share of a router's calls that may be hedged."""

    __slots__ = ("_saved", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._saved = 0.0

    def on_call(self) -> None:
        """A call that might be hedged begins."""
        self._saved = min(self._saved + self._share, max(SAVED_HEDGES, self._share))

    def take(self) -> bool:
        """Spend a hedge; False when none is saved up."""
        if self._share >= 1:
            return True
        if self._saved < _ONE:
            return False
        self._saved -= 1
        return True


class LearnedDelay:
    """A percentile of the times to first progress of late; ``percentile`` is between 0 and 100."""

    __slots__ = ("_percentile", "_samples")

    def __init__(self, percentile: float) -> None:
        self._percentile = percentile
        self._samples: deque[float] = deque(maxlen=SAMPLES)

    def learn(self, seconds: float) -> None:
        """A first leg has made progress after that time, or had made none by then."""
        self._samples.append(seconds)

    def delay(self) -> float | None:
        """Return the delay in seconds, or None while too little is known."""
        if len(self._samples) < MIN_SAMPLES:
            return None
        ordered = sorted(self._samples)
        return ordered[min(int(len(ordered) * self._percentile / 100), len(ordered) - 1)]
