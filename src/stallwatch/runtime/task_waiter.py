"""The task that waits for a run: watched from its loop, cancelled when the wait is a stall, and settled once.

Rules
-----
* The waiting task itself is cancelled, from the loop's timer, after a judgement made at that very instant; the reason
  is recorded first. No task, scope or timer per chunk, nothing left open across a yield.
* Settling happens once, in the waiting task: ``uncancel`` gives back our own request, and if more requests are
  pending than when the wait began, the user cancelled too and wins; a cancel that is already under way is not shot at.
  The count is compared with that of the wait's beginning, never with zero: a consumer that once swallowed a cancel
  keeps a higher count for good.
* Where there is no asyncio task (trio), nothing is watched here and the transport's read timeout is the bound.

The same waiter serves the request until the response is handed over, then each step of the stream. Before the headers
the transport's own, tightened timeouts speak first, because the SDK may then retry; the watch follows a moment later
for what they cannot see.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Awaitable
from contextvars import Context
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from stallwatch.core.judging import GRACE, Judge, Judgement
from stallwatch.core.phases import Stall
from stallwatch.core.words import Outcome, Phase
from stallwatch.runtime import closing
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.interrupt import is_readable
from stallwatch.runtime.settling import cause_of, settle
from stallwatch.runtime.timers import watch_of

__all__ = ["Quiet", "TaskWaiter", "is_waiting_here", "waiter_of"]

_T = TypeVar("_T")

TRANSPORT_FIRST = 0.03
"""Seconds by which the transport's own timeouts go ahead of the watch before the headers."""


_UNKNOWN = object()


class Quiet(Exception):
    """The answer is whole: end the iteration without an error."""


class TaskWaiter:
    """The task that waits for one run, and the means to end its wait."""

    __slots__ = (
        "__weakref__",
        "_cancels",
        "_fired",
        "_judge",
        "_phase",
        "_run",
        "armed",
        "before_headers",
        "loop",
        "socket",
        "task",
    )

    def __init__(self, run: InFlight) -> None:
        self._run = run
        self._judge = Judge()
        self._phase: Phase | None = None
        self._fired = False
        self._cancels = 0
        self.task: asyncio.Task[Any] | None = None
        self.armed: float | None = None
        self.before_headers = False
        self.socket: Any = None
        self.loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    async def watched(self, step: Awaitable[_T]) -> _T:
        """Await ``step`` under the run's deadlines; raises the timeout error, or ``Quiet`` when the answer is whole.

        Ends the run whenever an error comes out; StopAsyncIteration passes, for the caller to end it.
        """
        task = self.task = _current_task()
        if task is not None:
            self._cancels = task.cancelling()
            if self.armed is None or self._phase is not self._run.tracker.phase:
                self.look_ahead()
        try:
            value = await step
        except BaseException as error:
            self.task = None
            raised = await self._settle(task, error)
            if raised is error:
                raise
            raise raised from cause_of(error)
        self.task = None
        if self._fired:
            # Inner code swallowed the cancel; the stall stands.
            raise await self._settle(task, StopAsyncIteration())
        return value

    def look_ahead(self) -> None:
        """Make sure the watch looks at the present deadline; call when it may have come closer."""
        task, due = self.task, self._run.due()
        self._phase = self._run.tracker.phase
        if task is not None and self.loop is None:
            self.loop = weakref.ref(task.get_loop())
        if due is not None and task is not None:
            watch_of(task.get_loop()).arm(self, self._instant(due.at))

    def headers_are_in(self) -> None:
        """From here on the watch speaks for itself, a moment earlier than it has been armed for."""
        self.before_headers = False
        self._phase = None

    def stop(self) -> None:
        """Nothing more is to be watched."""
        if self.armed is not None:
            try:
                watch_of(asyncio.get_running_loop()).disarm(self)
            except RuntimeError:
                # Ended outside its loop; the entry goes with the loop.
                self.armed = None

    def wake(self) -> None:
        """End the wait for what has been recorded; from any thread. Where nobody waits, give the connection up."""
        loop = None if self.loop is None else self.loop()
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, loop, context=Context())

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        run, task = self._run, self.task
        if run.ended or self._fired:
            return
        if task is None:
            # The consumer is busy with something else, and will be told at its next step.
            if run.source is not None:
                closing.close_soon(loop, run.source)
        elif task.cancelling() <= self._cancels:
            self._fired = True
            task.cancel()

    @property
    def fired(self) -> bool:
        """Whether the waiting task has been cancelled from here."""
        return self._fired

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
        await _let_an_outer_scope_win()
        return True

    def _instant(self, at: float) -> float:
        return at + TRANSPORT_FIRST if self.before_headers else at

    def on_due(self, now: float) -> float | None:
        """Judge the wait; see ``timers.Watched``."""
        run, task = self._run, self.task
        due = None if task is None or self._fired else run.due()
        if due is None or task is None:
            return None
        at = self._instant(due.at)
        if now < at:
            return at
        ruling = self._judge.rule(
            now,
            at,
            wait=run.tracker.wait_from or 0.0,
            received=run.received,
            ready=_about_to_run(task),
            closed=run.closed,
            readable=is_readable(self.socket),
        )
        if ruling is Judgement.AGAIN:
            return 0.0
        if ruling is Judgement.GRANT:
            return now + GRACE
        return self._fire(task, now)

    def _fire(self, task: asyncio.Task[Any], now: float) -> float | None:
        run = self._run
        if task.cancelling() > self._cancels:
            # The user's cancel is under way, in some clean-up that awaits: it wins, however long that takes.
            return None
        found = run.tracker.judge(now)
        if found is not None and run.note(found):
            self._fired = True
            task.cancel()
            return None
        # Only observed: progress makes a new deadline, which must be looked at although the phase may be the same.
        self._phase = None
        following = run.due()
        return None if following is None else max(self._instant(following.at), now + 0.001)

    async def _settle(self, task: asyncio.Task[Any] | None, error: BaseException) -> BaseException:
        run = self._run
        if self._fired and task is not None:
            self._fired = False
            if task.uncancel() > self._cancels:
                run.end(Outcome.CANCELLED)
                return error if isinstance(error, asyncio.CancelledError) else asyncio.CancelledError()
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
                settle(run, error)
                return error
            try:
                await _let_an_outer_scope_win()
            except BaseException as cancel:
                run.end(Outcome.CANCELLED)
                return cancel
            error = StopAsyncIteration() if isinstance(error, asyncio.CancelledError) else error
        elif isinstance(error, StopAsyncIteration) and not isinstance(run.pending, Stall):
            if run.cancelled and not run.tracker.whole:
                run.end(Outcome.CANCELLED)
                return run.cancel_error()
            return error
        return settle(run, error) or Quiet()


def waiter_of(run: InFlight) -> TaskWaiter:
    """Return the run's waiter, made on first use."""
    if not isinstance(run.waiter, TaskWaiter):
        run.waiter = TaskWaiter(run)
    waiter: TaskWaiter = run.waiter
    return waiter


def is_waiting_here(run: InFlight) -> bool:
    """Tell whether the current task is the one that waits for ``run``; without asyncio tasks, whether any may be."""
    waiter = run.waiter
    return isinstance(waiter, TaskWaiter) and waiter.task is _current_task()


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _about_to_run(task: asyncio.Task[Any]) -> bool:
    # The one private name: a done waiter means that the reader runs next, or that the user's cancel is on its way.
    # Foreign task classes without it are judged by the other observations.
    waiter: Any = getattr(task, "_fut_waiter", _UNKNOWN)
    if waiter is _UNKNOWN:
        return False
    return waiter is None or bool(waiter.done())


async def _let_an_outer_scope_win() -> None:
    if anyio.current_effective_deadline() == -math.inf:
        # An enclosing anyio scope, the user's, is cancelled too: its own cancellation must come out, not our error.
        await anyio.lowlevel.checkpoint_if_cancelled()
