"""Whoever waits asynchronously for a run: watched by a timer, interrupted when the wait is a stall, settled once.

Rules
-----
* The waiting task itself is interrupted, from the timer, after a judgement made at that very instant; the reason is
  recorded first. No task, scope or timer per chunk, nothing left open across a yield.
* Settling happens once, in the waiting task. If the user cancelled too, the user wins, and a cancel that is already
  under way is not shot at.
* A wait that was interrupted may go on with another attempt: then the interrupt is taken back where the attempt was
  waited for, which is why such steps are awaited through ``breakable``.

The same waiter serves the request until the response is handed over, then each step of the stream. Before the headers
the transport's own, tightened timeouts speak first, because the SDK may then retry; the watch follows a moment later
for what they cannot see. How a task is interrupted and how its cancels are told apart is ``task_waiter``'s (asyncio)
and ``trio_waiter``'s.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from stallwatch.core.judging import GRACE, Judge, Judgement
from stallwatch.core.phases import Stall
from stallwatch.core.words import Outcome, Phase
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.interrupt import is_readable
from stallwatch.runtime.settling import settle
from stallwatch.runtime.timers import Watch

__all__ = ["Broken", "Quiet", "Waiter"]

_T = TypeVar("_T")

TRANSPORT_FIRST = 0.03
"""Seconds by which the transport's own timeouts go ahead of the watch before the headers."""


class Quiet(Exception):
    """The answer is whole: end the iteration without an error."""


class Broken(Exception):
    """What a breakable step raises that was interrupted, where that is not a cancel of the task."""


class Waiter:
    """The wait for one run, and the means to end it."""

    __slots__ = (
        "__weakref__",
        "_fired",
        "_judge",
        "_phase",
        "_run",
        "armed",
        "before_headers",
        "socket",
        "task",
    )

    def __init__(self, run: InFlight) -> None:
        self._run = run
        self._judge: Judge | None = None
        self._phase: Phase | None = None
        self._fired = False
        self.task: Any = None
        self.armed: float | None = None
        self.before_headers = False
        self.socket: Any = None

    # Of the event loop

    async def watched(self, step: Awaitable[_T]) -> _T:
        """Await ``step`` under the run's deadlines; raises the timeout error, or ``Quiet`` when the answer is whole.

        Ends the run whenever an error comes out; StopAsyncIteration passes, for the caller to end it.
        """
        raise NotImplementedError

    def begin(self) -> bool:
        """The current task begins to wait, in a step that it awaits itself; ``over`` or ``settled`` must follow in it.

        False where a wait cannot be ended but in ``watched``: then nothing has begun.
        """
        return False

    def over(self) -> bool:
        """The wait ended with a value; True when the stall stands all the same, to be settled."""
        raise NotImplementedError

    async def settled(self, error: BaseException) -> BaseException:
        """The wait ended with ``error``: end the run, and return what is to come out."""
        raise NotImplementedError

    def breakable(self, step: Awaitable[_T]) -> Awaitable[_T]:
        """Return what awaits ``step``, so that another attempt may follow if it is interrupted: see ``reclaim``."""
        raise NotImplementedError

    @property
    def has_watch(self) -> bool:
        """Whether a timer watches, or could watch, these waits."""
        raise NotImplementedError

    @property
    def is_here(self) -> bool:
        """Whether the current task is the one that waits; where tasks cannot be told, whether any may be."""
        raise NotImplementedError

    def look_ahead(self) -> None:
        """Make sure the watch looks at the present deadline; call when it may have come closer."""
        task, due = self.task, self._run.due()
        # Where nobody waits, the next wait looks for itself.
        self._phase = None if task is None else self._run.tracker.phase
        if task is not None and due is not None:
            self._watch_of(task).arm(self, self._instant(due.at))

    def stop(self) -> None:
        """Nothing more is to be watched."""
        raise NotImplementedError

    def wake(self) -> None:
        """End the wait for what has been recorded; from any thread. Where nobody waits, give the connection up."""
        raise NotImplementedError

    def close_from_elsewhere(self, source: Any) -> None:
        """Close ``source`` in its event loop, from any thread."""
        raise NotImplementedError

    async def reclaim(self) -> bool:
        """Take back our own interrupt of the current task, which goes on; False when the user cancelled it too."""
        raise NotImplementedError

    @property
    def cancelled_by_user(self) -> bool:
        """Whether somebody else has cancelled the waiting task too."""
        raise NotImplementedError

    def _watch_of(self, task: Any) -> Watch:
        raise NotImplementedError

    def _interrupt(self, task: Any) -> None:
        raise NotImplementedError

    def _about_to_run(self, task: Any) -> bool:
        """Tell whether the task has what it waited for, or somebody's cancel, and runs next."""
        raise NotImplementedError

    def _cancel_under_way(self, task: Any) -> bool:
        """Tell whether the user has cancelled the task, which may still be in some clean-up that awaits."""
        raise NotImplementedError

    # Of every loop

    def headers_are_in(self) -> None:
        """From here on the watch speaks for itself, a moment earlier than it has been armed for."""
        self.before_headers = False
        self._phase = None

    @property
    def fired(self) -> bool:
        """Whether the waiting task has been interrupted from here."""
        return self._fired

    def _instant(self, at: float) -> float:
        return at + TRANSPORT_FIRST if self.before_headers else at

    def on_due(self, now: float) -> float | None:
        """Judge the wait; see ``timers.Watched``."""
        run, task = self._run, self.task
        due = None if task is None or self._fired else run.due()
        if due is None:
            return None
        at = self._instant(due.at)
        if now < at:
            return at
        if self._judge is None:
            # Only now: most waits are never due.
            self._judge = Judge()
        ruling = self._judge.rule(
            now,
            at,
            wait=run.tracker.wait_from or 0.0,
            received=run.received,
            ready=self._about_to_run(task),
            closed=run.closed,
            readable=is_readable(self.socket),
        )
        if ruling is Judgement.AGAIN:
            return 0.0
        if ruling is Judgement.GRANT:
            return now + GRACE
        return self._fire(task, now)

    def _fire(self, task: Any, now: float) -> float | None:
        run = self._run
        if self._cancel_under_way(task):
            # It wins, however long that takes.
            return None
        found = run.tracker.judge(now)
        if found is not None and run.note(found):
            self._fired = True
            self._interrupt(task)
            return None
        # Only observed: progress makes a new deadline, which must be looked at although the phase may be the same.
        self._phase = None
        following = run.due()
        return None if following is None else max(self._instant(following.at), now + 0.001)

    def _settle_error(self, error: BaseException) -> BaseException:
        """Return what is to be raised for ``error``, which no interrupt of ours has brought about."""
        run = self._run
        if isinstance(error, StopAsyncIteration) and not isinstance(run.pending, Stall):
            if run.cancelled and not run.tracker.whole:
                run.end(Outcome.CANCELLED)
                return run.cancel_error()
            return error
        return settle(run, error) or Quiet()

    async def _settle_interrupt(self, error: BaseException) -> BaseException:
        """Return what is to be raised for ``error``, which came after our interrupt and of no cancel of the task."""
        run = self._run
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            settle(run, error)
            return error
        try:
            await let_an_outer_scope_win()
        except BaseException as cancel:
            run.end(Outcome.CANCELLED)
            return cancel
        return settle(run, error) or Quiet()


async def let_an_outer_scope_win() -> None:
    """Raise the cancellation of an enclosing anyio or trio scope, the user's, if there is one."""
    if anyio.current_effective_deadline() == -math.inf:
        await anyio.lowlevel.checkpoint_if_cancelled()
