"""One routed call: its legs, what becomes of them, and what is told of it.

A leg is a run on one route. It is over when its answer has made progress, has ended, or has failed. All legs tell of
one call: they share its span, and only the leg that is released in the end ends it. What is decided is decided in
``core.hedging``; how legs are run and interrupted is in ``sync_race`` and ``async_race``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stallwatch.clock import monotonic
from stallwatch.core.attempts import may_fall_back
from stallwatch.core.hedging import Accept, HedgeShare, Launch, LearnedDelay, Race
from stallwatch.core.words import (
    AttemptRole,
    FailureKind,
    FailureReason,
    HedgeResult,
    Outcome,
    RaceResult,
    RetryDecision,
)
from stallwatch.errors import EarlierRouteError, RunCancelledError, TotalTimeoutError
from stallwatch.logs import log
from stallwatch.run import Run
from stallwatch.runtime.attempt import Journey, Leg
from stallwatch.runtime.failures import classify, describe
from stallwatch.runtime.inflight import InFlight
from stallwatch.sdk.current import Place

__all__ = ["LOST", "SOON", "Call", "Runner", "Unanswered"]


LOST = "another route answered first"
_LEFT = "the caller was interrupted"

SOON = 0.002
"""Seconds until a hedge is looked at again whose first leg has not even been opened."""

_UNGOVERNED = 0.25
"""Seconds after which a leg that has not been opened is one of a client in mode ``off``."""


class Unanswered(Exception):
    """A route's stream ended without any progress. Not raised to users: they get the last such stream as it is."""

    def __init__(self) -> None:
        super().__init__("the stream ended without an answer")


@dataclass(slots=True, eq=False)
class Runner:
    """One leg under way."""

    number: int
    route: int
    role: AttemptRole
    place: Place
    scope: Run = field(default_factory=Run)
    result: Any = None
    error: BaseException | None = None
    lost: bool = False

    @property
    def run(self) -> InFlight | None:
        return self.place.run

    @property
    def guard(self) -> Any:
        """The guard of its stream, which another tool's iterator may stand above; None without one."""
        run = self.run
        return None if run is None or run.events is None else run.events()

    def raise_if_unanswered(self) -> None:
        """Raise Unanswered if the stream is over, nothing came of it, and another route may do better."""
        run = self.run
        if run is None or not run.ended or run.following is None or run.tracker.first_token_at is not None:
            return
        failed = run.tracker.outcome in (Outcome.TRUNCATED, Outcome.FAILED)
        if failed and run.following.decision is RetryDecision.FALLBACK:
            raise Unanswered

    def release(self) -> None:
        """This leg is the one that tells how the call ended."""
        if self.run is not None:
            self.run.release()


class Call:
    """One routed call: ``send`` makes it on a route, ``title`` names one; ``retries`` are those of each route."""

    def __init__(
        self,
        send: Callable[[int], Any],
        title: Callable[[int], str],
        *,
        routes: int,
        retries: int | None,
        eligible: frozenset[FailureKind | FailureReason],
        delay: float | None,
        share: HedgeShare | None,
        learned: LearnedDelay | None,
    ) -> None:
        self.send = send
        self.delay = delay
        self._title = title
        self._retries = retries
        self._share = share
        self._learned = learned
        self._race = Race(routes=routes, delay=delay)
        self._journey = Journey(eligible, self._race.routes_left)
        self._started = 0.0
        self._legs: list[Runner] = []
        self._refused = False

    def begin(self) -> Runner:
        """Make the first leg."""
        self._started = monotonic()
        if self._share is not None:
            self._share.on_call()
        return self._prepare(self._race.begin(self._started))

    def _prepare(self, launch: Launch) -> Runner:
        earlier = next((leg.run for leg in reversed(self._legs) if leg.run is not None), None)
        leg = Leg(
            number=launch.leg,
            journey=self._journey,
            earlier=earlier,
            role=launch.role,
            retries=self._retries,
        )
        made = Runner(launch.leg, launch.route, launch.role, Place(leg))
        self._legs.append(made)
        return made

    # The hedge

    def wait(self) -> float | None:
        """Return the seconds until a hedge is due, or None."""
        due = self._race.due()
        return None if due is None else max(due - monotonic(), 0.0)

    def hedge(self) -> Runner | None:
        """The first leg has made no progress in time: make the second, if the share admits it."""
        if self._share is None:
            return None
        allowed = self._share.take()
        self._refused = not allowed
        launch = self._race.on_due(allowed=allowed)
        if launch is None:
            return None
        log.info(
            "no progress within %.2f s, asking route %s too", self.delay or 0.0, self._title(launch.route)
        )
        return self._prepare(launch)

    @property
    def opened(self) -> bool:
        """Whether the first leg has come as far as its span, which the second must find."""
        return self._legs[0].run is not None or self._legs[0].error is not None

    def forgo_hedge(self) -> bool:
        """Give up a hedge whose first leg is still not opened long after it was due: it is not governed."""
        late = monotonic() - self._started - (self.delay or 0.0) > _UNGOVERNED
        if late:
            self._race.on_due(allowed=False)
        return late

    # What comes of legs

    def accept(self, leg: Runner) -> list[Runner] | None:
        """A leg has answered: return the losers, or None when it is a loser itself."""
        verdict = self._race.on_progress(leg.number)
        if not isinstance(verdict, Accept):
            return None
        if self._learned is not None and self._legs[0].error is None:
            self._learned.learn(monotonic() - self._started)
        losers = [self._legs[number] for number in verdict.losers]
        run = leg.run
        for loser in losers:
            loser.lost = True
            if loser.run is not None:
                loser.run.lose()
        if run is not None:
            if self._race.hedged:
                run.race = RaceResult.WINNER
            self._tell_of_hedge(run, HedgeResult.WON if leg.role is AttemptRole.HEDGE else HedgeResult.LOST)
        leg.release()
        return losers

    def _tell_of_hedge(self, run: InFlight | None, result: HedgeResult) -> None:
        if run is not None and (self._race.hedged or self._refused):
            run.recorders.hedge(run, result if self._race.hedged else HedgeResult.REFUSED, self.delay or 0.0)

    def failed(self, leg: Runner, error: Exception) -> Runner | None | BaseException:
        """A leg has failed: return the next one, the error to raise, or None while others run."""
        leg.error = error
        following = self._race.on_failure(leg.number, self._decision(leg, error))
        if following is None:
            return None
        over = isinstance(error, _NOBODYS)
        if isinstance(following, Launch):
            run = leg.run
            if run is not None and run.failed is not None:
                run.recorders.fallback(run, run.failed, self._title(leg.route), self._title(following.route))
            log.info("going on with route %s", self._title(following.route))
            return self._prepare(following)
        for other in self._legs:
            if other is not leg and other.error is None and other.run is not None:
                other.lost = True
                other.run.lose()
        if not over:
            self._tell_of_hedge(leg.run, HedgeResult.FAILED)
        leg.release()
        self._chain(error, leg)
        return error

    def forget(self, leg: Runner) -> None:
        """A hedge could not be started; the first leg goes on alone."""
        self._race.withdraw(leg.number)
        self._legs.remove(leg)
        self._refused = True

    def interrupt_the_rest(self) -> None:
        """The call has failed: legs that are still under way are of no use any more."""
        for leg in self._legs:
            if leg.error is None and leg.result is None:
                leg.lost = True
                leg.scope.cancel(LOST)

    @property
    def live(self) -> bool:
        """Whether a leg is still under way."""
        return any(leg.result is None and leg.error is None for leg in self._legs)

    def abandon(self) -> None:
        """The caller was interrupted: end all legs, each where it stands, and the call with them."""
        for leg in self._legs:
            leg.lost = True
            leg.scope.cancel(_LEFT)
        # A leg that had failed before told of its failure; the one that is interrupted tells how the call ended.
        for leg in reversed(self._legs):
            if leg.run is not None and leg.run.tracker.outcome in (None, Outcome.CANCELLED):
                leg.release()
                return
        if self._legs:
            self._legs[-1].release()

    def _decision(self, leg: Runner, error: Exception) -> RetryDecision:
        run = leg.run
        if run is not None:
            return RetryDecision.FAIL_FAST if run.following is None else run.following.decision
        return may_fall_back(
            verdict=classify(error),
            delivered=False,
            cancelled=False,
            total_left=None,
            routes_left=self._race.routes_left(leg.number),
            eligible=self._journey.eligible,
        )

    def _chain(self, error: BaseException, last: Runner) -> None:
        """Hang the earlier routes' errors under the one that is raised, the newest first."""
        for leg in reversed(self._legs):
            if leg is last or leg.error is None or leg.lost or isinstance(leg.error, _NOBODYS):
                continue
            _, text, _ = describe(leg.error, None)
            earlier = EarlierRouteError(self._title(leg.route), text)
            mine, theirs = _chain_of(error), _chain_of(leg.error)
            if not {*map(id, mine)} & {*map(id, theirs)}:
                # Where both have an error object in common, hanging the one under the other would make a ring.
                earlier.__cause__ = leg.error
            mine[-1].__cause__ = earlier
            if earlier.__cause__ is None:
                return
            error = leg.error


_NOBODYS = (RunCancelledError, TotalTimeoutError)
"""Errors that no route is to blame for: what the user ended, or the call's own total."""


def _chain_of(error: BaseException) -> list[BaseException]:
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    return chain
