"""The trio task that waits for a run: its wait is a scope without a deadline, cancelled when it is a stall.

trio has no other public way to interrupt a task, and none that counts: a scope that was cancelled from outside as well
lets the cancellation through, so the user's wins by trio's own rules. What it costs is that a scope once cancelled
cannot be taken back. So whatever another attempt may follow on is awaited in a scope of its own (``breakable``), and
the innermost is the one that is cancelled.

The timer of a trio run is a system task that sleeps. trio hands out readiness and not bytes, so a task that is about to
run still has them in its socket, where the judgement sees them; two turns before each further judgement let it run.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, TypeVar

import trio
from trio import lowlevel

from stallwatch.foreign_errors import told_of
from stallwatch.logs import log
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.settling import cause_of, settle
from stallwatch.runtime.timers import Watch, Watched
from stallwatch.runtime.waiter import Broken, Waiter, let_an_outer_scope_win

__all__ = ["TrioWaiter", "is_running"]


_T = TypeVar("_T")

_TURNS = 2
"""Between two judgements of the same wait; in one, trio may run the two tasks in either order."""


def is_running() -> bool:
    """Tell whether this is code of a trio task."""
    try:
        lowlevel.current_task()
    except RuntimeError:
        return False
    return True


class _TrioWatch(Watch):
    """The timer of one trio run."""

    __slots__ = ()

    def _call_later(self, delay: float, timer: float) -> None:
        _spawn(self._after, delay, timer)

    async def _after(self, delay: float, timer: float) -> None:
        await trio.sleep(delay)
        self._fire(timer)

    def _look_from_elsewhere(self, loop: lowlevel.TrioToken) -> None:
        try:
            loop.run_sync_soon(self.look)
        except trio.RunFinishedError:
            pass

    def _call_soon(self, who: Watched) -> None:
        _spawn(self._after_turns, who)

    async def _after_turns(self, who: Watched) -> None:
        # Whoever was ready at the last judgement has run when these are over.
        for _ in range(_TURNS):
            await lowlevel.checkpoint()
        self._look(who)


def _spawn(task: Callable[..., Awaitable[object]], *arguments: Any) -> None:
    try:
        lowlevel.spawn_system_task(_quietly, task, *arguments, context=Context())
    except RuntimeError:
        # The run is ending, and only asynchronous generators are still being closed.
        pass


async def _quietly(task: Callable[..., Awaitable[object]], *arguments: Any) -> None:
    try:
        await task(*arguments)
    except Exception as error:
        # From a system task an error would take the whole run along.
        log.debug("stallwatch: a task of its own has failed: %s", told_of(error))


_watches: weakref.WeakKeyDictionary[lowlevel.TrioToken, _TrioWatch] = weakref.WeakKeyDictionary()


class TrioWaiter(Waiter):
    """The task that waits for one run, and the means to end its wait."""

    __slots__ = ("_scope", "_token")

    def __init__(self, run: InFlight) -> None:
        super().__init__(run)
        self._token = lowlevel.current_trio_token()
        self._scope: trio.CancelScope | None = None

    async def watched(self, step: Awaitable[_T]) -> _T:
        """Await ``step`` under the run's deadlines."""
        self.task = lowlevel.current_task()
        if self.armed is None or self._phase is not self._run.tracker.phase:
            self.look_ahead()
        try:
            with trio.CancelScope() as self._scope:
                value = await step
                if not self._fired:
                    return value
        except Broken:
            pass
        except BaseException as error:
            self._scope = self.task = None
            raised = await self._settle(error)
            if raised is error:
                raise
            raise raised from cause_of(error)
        finally:
            self._scope = self.task = None
        # Interrupted; and if inner code swallowed that, the stall stands.
        raise await self._settle(StopAsyncIteration())

    async def breakable(self, step: Awaitable[_T]) -> _T:
        """Await ``step`` in a scope of its own; raises Broken when that is cancelled."""
        outer = self._scope
        try:
            with trio.CancelScope() as self._scope:
                value = await step
                if self._fired and outer is not None:
                    # It came at the very moment of the interrupt, which stands: the next wait finds that out.
                    outer.cancel()
                return value
        finally:
            self._scope = outer
        raise Broken

    @property
    def has_watch(self) -> bool:
        """Always: there is a task."""
        return True

    @property
    def is_here(self) -> bool:
        """Whether the current task is the one that waits."""
        return is_running() and self.task is lowlevel.current_task()

    def _watch_of(self, task: Any) -> Watch:
        found = _watches.get(self._token)
        if found is None:
            found = _watches[self._token] = _TrioWatch(self._token)
        return found

    def stop(self) -> None:
        """Nothing more is to be watched."""
        if self.armed is not None:
            self._watch_of(None).disarm(self)

    def wake(self) -> None:
        """End the wait for what has been recorded; from any thread."""
        self._in_its_run(self._wake)

    def _in_its_run(self, call: Callable[..., object], *arguments: Any) -> None:
        try:
            self._token.run_sync_soon(call, *arguments)
        except trio.RunFinishedError:
            pass

    def _wake(self) -> None:
        run = self._run
        if run.ended or self._fired:
            return
        if self._scope is None:
            # The consumer is busy with something else, and will be told at its next step.
            source = run.source
            if source is not None:
                _close_soon(source)
        elif not self._cancel_under_way(self.task):
            self._fired = True
            self._scope.cancel()

    def close_from_elsewhere(self, source: Any) -> None:
        """Close ``source`` in its run, from any thread."""
        self._in_its_run(_close_soon, source)

    @property
    def cancelled_by_user(self) -> bool:
        """Whether somebody else has cancelled the waiting task too."""
        return self._cancel_under_way(self.task)

    async def reclaim(self) -> bool:
        """The interrupted scope is behind us; False when there was none."""
        if not self._fired:
            return False
        self._fired = False
        await let_an_outer_scope_win()
        return True

    def _interrupt(self, task: Any) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def _about_to_run(self, task: Any) -> bool:
        return False

    def _cancel_under_way(self, task: Any) -> bool:
        # A private name: another task's state cannot be asked for. Without it the user still wins, but a stall that was
        # found while his cancel was in some clean-up is told of.
        status = getattr(self._scope, "_cancel_status", None)
        return bool(getattr(status, "effectively_cancelled", False))

    async def _settle(self, error: BaseException) -> BaseException:
        fired, self._fired = self._fired, False
        if not fired:
            return self._settle_error(error)
        if not isinstance(error, Exception):
            # A cancellation that our scope has let through is the user's.
            settle(self._run, error)
            return error
        return await self._settle_interrupt(error)


def _close_soon(source: Any) -> None:
    _spawn(_close, source)


async def _close(source: Any) -> None:
    await source.aclose()
