"""The asyncio task that waits for a run: cancelled when the wait is a stall, and given back its own count of cancels.

``uncancel`` gives back our own request, and if more requests are pending than when the wait began, the user cancelled
too and wins. The count is compared with that of the wait's beginning, never with zero: a consumer that once swallowed a
cancel keeps a higher count for good.

Where there is neither an asyncio task nor trio nothing is watched, and the transport's own timeouts are the bound.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Awaitable
from contextvars import Context
from typing import Any, TypeVar

from stallwatch.core.words import Outcome
from stallwatch.runtime import closing
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.settling import cause_of
from stallwatch.runtime.timers import Watch, watch_of
from stallwatch.runtime.waiter import Quiet, Waiter, let_an_outer_scope_win

__all__ = ["Quiet", "TaskWaiter", "Waiter", "is_waiting_here", "waiter_of"]

_T = TypeVar("_T")

_UNKNOWN = object()


class TaskWaiter(Waiter):
    """The task that waits for one run, and the means to end its wait."""

    __slots__ = ("_cancels", "loop")

    armed: float | None

    def __init__(self, run: InFlight) -> None:
        super().__init__(run)
        self._cancels = 0
        self.loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    async def watched(self, step: Awaitable[_T]) -> _T:
        """Await ``step`` under the run's deadlines."""
        self.begin()
        try:
            value = await step
        except BaseException as error:
            raised = await self.settled(error)
            if raised is error:
                raise
            raise raised from cause_of(error)
        if self.over():
            raise await self.settled(StopAsyncIteration())
        return value

    def begin(self) -> bool:
        """A task can be ended with nothing around the step."""
        task = self.task = _current_task()
        if task is not None:
            self._cancels = task.cancelling()
            if self.armed is None or self._phase is not self._run.tracker.phase:
                self.look_ahead()
        return True

    def over(self) -> bool:
        """Whether inner code swallowed our cancel."""
        if self._fired:
            return True
        self.task = None
        return False

    async def settled(self, error: BaseException) -> BaseException:
        """End the run and take our own cancel back."""
        task, self.task = self.task, None
        return await self._settle(task, error)

    def breakable(self, step: Awaitable[_T]) -> Awaitable[_T]:
        """Return ``step``: a cancel that comes out of it can be taken back."""
        return step

    @property
    def has_watch(self) -> bool:
        """Whether some wait has been a task's."""
        return self.loop is not None

    @property
    def is_here(self) -> bool:
        """Whether the current task is the one that waits; without asyncio tasks, whether any may be."""
        return self.task is _current_task()

    def _watch_of(self, task: asyncio.Task[Any]) -> Watch:
        loop = task.get_loop()
        if self.loop is None:
            self.loop = weakref.ref(loop)
        return watch_of(loop)

    def stop(self) -> None:
        """Nothing more is to be watched."""
        if self.armed is not None:
            try:
                watch_of(asyncio.get_running_loop()).disarm(self)
            except RuntimeError:
                # Ended outside its loop; the entry goes with the loop.
                self.armed = None

    def wake(self) -> None:
        """End the wait for what has been recorded; from any thread."""
        loop = None if self.loop is None else self.loop()
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, loop, context=Context())

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        run, task = self._run, self.task
        if run.ended or self._fired:
            return
        if task is None:
            # The consumer is busy with something else, and will be told at its next step.
            source = run.source
            if source is not None:
                closing.close_soon(loop, source)
        elif not self._cancel_under_way(task):
            self._fired = True
            task.cancel()

    def close_from_elsewhere(self, source: Any) -> None:
        """Close ``source`` in its loop, from any thread."""
        if self.loop is not None:
            closing.close_from_elsewhere(source, self.loop)

    @property
    def cancelled_by_user(self) -> bool:
        """Whether somebody else has cancelled the waiting task too."""
        task = self.task
        return task is not None and task.cancelling() > self._cancels + self._fired

    async def reclaim(self) -> bool:
        """Take back our own cancel of the current task, which goes on; False when the user cancelled it too."""
        task = self.task
        if task is None or not self._fired or self.cancelled_by_user:
            return False
        self._fired = False
        task.uncancel()
        # Raises when an enclosing anyio scope, the user's, is cancelled.
        await let_an_outer_scope_win()
        return True

    def _interrupt(self, task: asyncio.Task[Any]) -> None:
        task.cancel()

    def _about_to_run(self, task: asyncio.Task[Any]) -> bool:
        # The one private name: a done waiter means that the reader runs next, or that the user's cancel is on its way.
        # Foreign task classes without it are judged by the other observations.
        waiter: Any = getattr(task, "_fut_waiter", _UNKNOWN)
        if waiter is _UNKNOWN:
            return False
        return waiter is None or bool(waiter.done())

    def _cancel_under_way(self, task: asyncio.Task[Any]) -> bool:
        return task.cancelling() > self._cancels

    async def _settle(self, task: asyncio.Task[Any] | None, error: BaseException) -> BaseException:
        if not self._fired or task is None:
            return self._settle_error(error)
        self._fired = False
        if task.uncancel() > self._cancels:
            self._run.end(Outcome.CANCELLED)
            return error if isinstance(error, asyncio.CancelledError) else asyncio.CancelledError()
        return await self._settle_interrupt(
            StopAsyncIteration() if isinstance(error, asyncio.CancelledError) else error
        )


def waiter_of(run: InFlight) -> Waiter:
    """Return the run's waiter, made on first use, for the kind of event loop that runs here."""
    if not isinstance(run.waiter, Waiter):
        run.waiter = _new(run)
    waiter: Waiter = run.waiter
    return waiter


def _new(run: InFlight) -> Waiter:
    if "trio" in sys.modules and _current_task() is None:
        # Only where the program has imported it: most have no trio.
        from stallwatch.runtime import trio_waiter

        if trio_waiter.is_running():
            return trio_waiter.TrioWaiter(run)
    return TaskWaiter(run)


def is_waiting_here(run: InFlight) -> bool:
    """Tell whether the current task is the one that waits for ``run``; without tasks, whether any may be."""
    return isinstance(run.waiter, Waiter) and run.waiter.is_here


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
