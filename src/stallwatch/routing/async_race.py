"""Asynchronous routed calls: one leg after another in the caller's task, or two side by side.

Side by side, each leg has a task and a scope of its own inside the caller's run; a loser's task is cancelled, and
nobody waits for it. The caller reads the winner's stream itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from stallwatch.routing.call import LOST, SOON, Call, Runner, Unanswered
from stallwatch.runtime import closing
from stallwatch.runtime.async_guard import AsyncGuard
from stallwatch.sdk.current import placing

__all__ = ["AsyncRacer"]


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
                if isinstance(following, Runner):
                    leg = following
                elif isinstance(error, Unanswered):
                    return leg.result
                else:
                    raise
            except BaseException:
                call.abandon()
                raise
            else:
                call.accept(leg)
                return result

    async def _perform(self, call: Call, leg: Runner) -> Any:
        with placing(leg.place):
            result = await call.send(leg.route)
        guard = leg.guard
        if isinstance(guard, AsyncGuard):
            await guard.read_ahead()
            leg.result = result
            leg.raise_if_unanswered()
        return result

    async def _side_by_side(self, call: Call) -> Any:
        tasks: dict[asyncio.Task[None], Runner] = {}
        self._start(call, call.begin(), tasks)
        try:
            while True:
                leg = await self._next(call, tasks)
                if leg is None:
                    continue
                if leg.error is None:
                    if call.accept(leg) is not None:
                        _leave(tasks)
                        return leg.result
                    continue
                following = call.failed(leg, leg.error) if isinstance(leg.error, Exception) else leg.error
                if isinstance(following, Runner):
                    self._start(call, following, tasks)
                elif isinstance(following, Unanswered):
                    return leg.result
                elif following is not None:
                    raise following
        except Exception:
            _leave(tasks)
            raise
        except BaseException:
            for task in tasks:
                task.cancel()
            # First, because what follows may be cancelled once more.
            call.abandon()
            if tasks:
                await asyncio.wait(tasks)
            raise

    async def _next(self, call: Call, tasks: dict[asyncio.Task[None], Runner]) -> Runner | None:
        """Return a leg that is over; start the hedge when it is due first."""
        done, _ = await asyncio.wait(tasks, timeout=call.wait(), return_when=asyncio.FIRST_COMPLETED)
        if done:
            return tasks.pop(done.pop())
        if call.opened:
            hedge = call.hedge()
            if hedge is not None:
                self._start(call, hedge, tasks)
        elif not call.forgo_hedge():
            await asyncio.sleep(SOON)
        return None

    def _start(self, call: Call, leg: Runner, tasks: dict[asyncio.Task[None], Runner]) -> None:
        tasks[asyncio.create_task(self._leg(call, leg))] = leg

    async def _leg(self, call: Call, leg: Runner) -> None:
        try:
            async with leg.scope:
                leg.result = await self._perform(call, leg)
        except BaseException as error:
            leg.error = error
            if leg.lost and isinstance(error, asyncio.CancelledError):
                raise


_leaving: set[asyncio.Task[None]] = set()
"""Losers on their way out; the loop itself holds tasks weakly only."""


def _leave(tasks: dict[asyncio.Task[None], Runner]) -> None:
    """Interrupt the legs that have lost, and wait for none of them."""
    for task, leg in tasks.items():
        leg.lost = True
        if leg.run is None or leg.run.ended:
            task.cancel()
        else:
            # Through its scope, which knows what the task is at: a second cancel would break into the closing of its
            # connection, which not every HTTP library survives.
            leg.scope.cancel(LOST)
        _leaving.add(task)
        task.add_done_callback(_left(leg))


def _left(leg: Runner) -> Callable[[asyncio.Task[None]], None]:
    def left(task: asyncio.Task[None]) -> None:
        _leaving.discard(task)
        if leg.result is not None:
            # It answered in the very moment.
            response = getattr(leg.result, "response", None)
            if response is not None:
                closing.close_soon(task.get_loop(), response)

    return left
