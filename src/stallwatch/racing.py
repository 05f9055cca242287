"""How a routed call is driven: one leg after another, or two side by side.

Without a hedge a leg runs in the caller's own thread or task. With one, each leg has a thread (or task) and a scope of
its own inside the caller's run, so that the loser alone can be interrupted, wherever it stands, and the caller's cancel
still reaches all. A leg is over when its answer has made progress, has ended, or has failed. The caller
reads the winner's stream itself.

All legs tell of one call: they share its span, and only the leg that is released in the end ends it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextvars import copy_context
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
from stallwatch.errors import EarlierRouteError
from stallwatch.run import Run
from stallwatch.runtime import closing
from stallwatch.runtime.async_guard import AsyncGuard
from stallwatch.runtime.attempt import Journey, Leg
from stallwatch.runtime.failures import classify, describe
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.sync_guard import SyncGuard
from stallwatch.sdk.current import Place, placing

__all__ = ["AsyncRacer", "Call", "Racer"]

_LOST = "another route answered first"
_LEFT = "the caller was interrupted"

_SOON = 0.002
"""Seconds until a hedge is looked at again whose first leg has not even been opened."""


@dataclass(slots=True, eq=False)
class _Runner:
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
        retries: int,
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
        self._started = monotonic()
        self._legs: list[_Runner] = []
        self._refused = False

    def begin(self) -> _Runner:
        """Make the first leg."""
        if self._share is not None:
            self._share.on_call()
        return self._prepare(self._race.begin(self._started))

    def _prepare(self, launch: Launch) -> _Runner:
        earlier = next((leg.run for leg in reversed(self._legs) if leg.run is not None), None)
        leg = Leg(
            number=launch.leg,
            journey=self._journey,
            earlier=earlier,
            role=launch.role,
            retries=self._retries,
        )
        made = _Runner(launch.leg, launch.route, launch.role, Place(leg))
        self._legs.append(made)
        return made

    # The hedge

    def wait(self) -> float | None:
        """Return the seconds until a hedge is due, or None."""
        due = self._race.due()
        return None if due is None else max(due - monotonic(), 0.0)

    def hedge(self) -> _Runner | None:
        """The first leg has made no progress in time: make the second, if the share admits it."""
        if self._share is None:
            return None
        allowed = self._share.take()
        self._refused = not allowed
        launch = self._race.on_due(allowed=allowed)
        return None if launch is None else self._prepare(launch)

    @property
    def opened(self) -> bool:
        """Whether the first leg has come as far as its span, which the second must find."""
        return self._legs[0].run is not None or self._legs[0].error is not None

    # What comes of legs

    def accept(self, leg: _Runner) -> list[_Runner] | None:
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
                loser.run.race = RaceResult.LOSER
        if run is not None:
            if self._race.hedged:
                _mark_winner(run)
                run.recorders.hedge(
                    run,
                    HedgeResult.WON if leg.role is AttemptRole.HEDGE else HedgeResult.LOST,
                    self.delay or 0.0,
                )
            elif self._refused:
                run.recorders.hedge(run, HedgeResult.REFUSED, self.delay or 0.0)
        leg.release()
        return losers

    def failed(self, leg: _Runner, error: Exception) -> _Runner | None | BaseException:
        """A leg has failed: return the next one, the error to raise, or None while others run."""
        leg.error = error
        following = self._race.on_failure(leg.number, self._decision(leg, error))
        if following is None:
            return None
        if isinstance(following, Launch):
            run = leg.run
            if run is not None and run.failed is not None:
                run.recorders.fallback(run, run.failed, self._title(following.route))
            return self._prepare(following)
        if self._race.hedged and leg.run is not None:
            leg.run.recorders.hedge(leg.run, HedgeResult.FAILED, self.delay or 0.0)
        leg.release()
        self._chain(error, leg)
        return error

    def abandon(self) -> None:
        """The caller was interrupted: end all legs, and the call with them."""
        for leg in self._legs:
            leg.lost = True
            leg.scope.cancel(_LEFT)
        first = next((leg for leg in self._legs if leg.run is not None), None)
        if first is not None and first.run is not None:
            first.run.end(Outcome.CANCELLED)
            first.release()

    def _decision(self, leg: _Runner, error: Exception) -> RetryDecision:
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

    def _chain(self, error: BaseException, last: _Runner) -> None:
        """Hang the earlier routes' errors under the one that is raised, the newest first."""
        for leg in reversed(self._legs):
            if leg is last or leg.error is None or leg.lost:
                continue
            _, text, _ = describe(leg.error, None)
            earlier = EarlierRouteError(self._title(leg.route), text)
            earlier.__cause__ = leg.error
            end = error
            while end.__cause__ is not None:
                end = end.__cause__
            end.__cause__ = earlier
            error = leg.error


def _mark_winner(run: InFlight) -> None:
    run.race = RaceResult.WINNER


class Racer:
    """Drives synchronous calls."""

    def call(self, call: Call) -> Any:
        """Return the answer of the first route that gives one; raises the last route's error."""
        return self._in_turn(call) if call.delay is None else self._side_by_side(call)

    def _in_turn(self, call: Call) -> Any:
        leg = call.begin()
        while True:
            try:
                result = self._perform(call, leg)
            except Exception as error:
                following = call.failed(leg, error)
                if not isinstance(following, _Runner):
                    raise
                leg = following
            except BaseException:
                call.abandon()
                raise
            else:
                call.accept(leg)
                return result

    def _perform(self, call: Call, leg: _Runner) -> Any:
        with placing(leg.place):
            result = call.send(leg.route)
        guard = getattr(result, "_iterator", None)
        if isinstance(guard, SyncGuard):
            guard.read_ahead()
        return result

    def _side_by_side(self, call: Call) -> Any:
        over: queue.SimpleQueue[_Runner] = queue.SimpleQueue()
        self._start(call, call.begin(), over)
        try:
            while True:
                leg = self._next(call, over)
                if leg is None:
                    continue
                if leg.error is None:
                    losers = call.accept(leg)
                    for loser in losers or ():
                        loser.scope.cancel(_LOST)
                    return leg.result
                if not isinstance(leg.error, Exception):
                    raise leg.error
                following = call.failed(leg, leg.error)
                if isinstance(following, _Runner):
                    self._start(call, following, over)
                elif following is not None:
                    raise following
        except Exception:
            raise
        except BaseException:
            call.abandon()
            raise

    def _next(self, call: Call, over: queue.SimpleQueue[_Runner]) -> _Runner | None:
        """Return the next leg that is over; start the hedge when it is due first."""
        try:
            return over.get(timeout=call.wait())
        except queue.Empty:
            pass
        if not call.opened:
            try:
                return over.get(timeout=_SOON)
            except queue.Empty:
                return None
        hedge = call.hedge()
        if hedge is not None:
            self._start(call, hedge, over)
        return None

    def _start(self, call: Call, leg: _Runner, over: queue.SimpleQueue[_Runner]) -> None:
        # In a copy of the caller's context each, so that policies, runs and the current span reach both.
        work = copy_context().run
        threading.Thread(
            target=work, args=(self._leg, call, leg, over), name=f"stallwatch-leg-{leg.number}", daemon=True
        ).start()

    def _leg(self, call: Call, leg: _Runner, over: queue.SimpleQueue[_Runner]) -> None:
        try:
            with leg.scope:
                leg.result = self._perform(call, leg)
        except BaseException as error:
            leg.error = error
        if leg.lost:
            _close(leg.result)
        over.put(leg)


class AsyncRacer:
    """Drives asynchronous calls."""

    async def call(self, call: Call) -> Any:
        """Return the answer of the first route that gives one; raises the last route's error."""
        return await (self._in_turn(call) if call.delay is None else self._side_by_side(call))

    async def _in_turn(self, call: Call) -> Any:
        leg = call.begin()
        while True:
            try:
                result = await self._perform(call, leg)
            except Exception as error:
                following = call.failed(leg, error)
                if not isinstance(following, _Runner):
                    raise
                leg = following
            except BaseException:
                call.abandon()
                raise
            else:
                call.accept(leg)
                return result

    async def _perform(self, call: Call, leg: _Runner) -> Any:
        with placing(leg.place):
            result = await call.send(leg.route)
        guard = getattr(result, "_iterator", None)
        if isinstance(guard, AsyncGuard):
            await guard.read_ahead()
        return result

    async def _side_by_side(self, call: Call) -> Any:
        tasks: dict[asyncio.Task[None], _Runner] = {}

        def start(leg: _Runner) -> None:
            tasks[asyncio.create_task(self._leg(call, leg))] = leg

        start(call.begin())
        try:
            while True:
                done, _ = await asyncio.wait(tasks, timeout=call.wait(), return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    hedge = call.hedge() if call.opened else None
                    if hedge is not None:
                        start(hedge)
                    elif not call.opened:
                        await asyncio.sleep(_SOON)
                    continue
                for task in done:
                    leg = tasks.pop(task)
                    if leg.error is None:
                        losers = call.accept(leg)
                        if losers is None:
                            continue
                        _leave(tasks)
                        return leg.result
                    following = call.failed(leg, leg.error) if isinstance(leg.error, Exception) else leg.error
                    if isinstance(following, _Runner):
                        start(following)
                    elif following is not None:
                        raise following
        except Exception:
            _leave(tasks)
            raise
        except BaseException:
            await _end(tasks)
            call.abandon()
            raise

    async def _leg(self, call: Call, leg: _Runner) -> None:
        try:
            async with leg.scope:
                leg.result = await self._perform(call, leg)
        except BaseException as error:
            leg.error = error
            if leg.lost and isinstance(error, asyncio.CancelledError):
                raise


_leaving: set[asyncio.Task[None]] = set()
"""Losers on their way out; the loop itself holds tasks weakly only."""


def _leave(tasks: dict[asyncio.Task[None], _Runner]) -> None:
    """Interrupt the legs that have lost, and wait for none of them."""
    for task, leg in tasks.items():
        leg.lost = True
        task.cancel()
        _leaving.add(task)
        task.add_done_callback(_left(leg))


def _left(leg: _Runner) -> Callable[[asyncio.Task[None]], None]:
    def left(task: asyncio.Task[None]) -> None:
        _leaving.discard(task)
        if leg.result is not None:
            # It answered in the very moment.
            response = getattr(leg.result, "response", None)
            if response is not None:
                closing.close_soon(task.get_loop(), response)

    return left


async def _end(tasks: dict[asyncio.Task[None], _Runner]) -> None:
    """The caller was cancelled: end all legs, and wait until their connections are closed."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _close(result: Any) -> None:
    close = getattr(result, "close", None)
    if close is not None:
        close()
