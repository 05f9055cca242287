"""Synchronous routed calls: one leg after another in the caller's thread, or two side by side.

Side by side, each leg has a thread and a scope of its own inside the caller's run, so that the loser alone can be
interrupted, wherever it stands, and the caller's cancel still reaches all. The caller reads the winner's stream itself.
"""

from __future__ import annotations

import queue
import threading
from contextvars import copy_context
from typing import Any

from stallwatch.clock import monotonic
from stallwatch.routing.call import LOST, SOON, Call, Runner, Unanswered
from stallwatch.runtime.sync_guard import SyncGuard
from stallwatch.sdk.current import placing

__all__ = ["Racer"]

_CLOSING = 0.2
"""Seconds; the longest a caller that was interrupted is kept for that."""


class Racer:
    """Drives synchronous calls."""

    def call(self, call: Call) -> Any:
        """Return the answer of the first route that gives one; raises the last route's error."""
        return self._in_turn(call, call.begin()) if call.delay is None else self._side_by_side(call)

    def _in_turn(self, call: Call, leg: Runner) -> Any:
        while True:
            try:
                result = self._perform(call, leg)
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

    def _perform(self, call: Call, leg: Runner) -> Any:
        with placing(leg.place):
            result = call.send(leg.route)
        guard = leg.guard
        if isinstance(guard, SyncGuard):
            guard.read_ahead()
            leg.result = result
            leg.raise_if_unanswered()
        return result

    def _side_by_side(self, call: Call) -> Any:
        over: queue.SimpleQueue[Runner] = queue.SimpleQueue()
        first = call.begin()
        try:
            self._start(call, first, over)
        except RuntimeError:
            # No thread to be had: without one there is no race.
            return self._in_turn(call, first)
        try:
            while True:
                leg = self._next(call, over)
                if leg is None:
                    continue
                if leg.error is None:
                    for loser in call.accept(leg) or ():
                        loser.scope.cancel(LOST)
                        _close(loser.result)
                    return leg.result
                if not isinstance(leg.error, Exception):
                    raise leg.error
                following = call.failed(leg, leg.error)
                if isinstance(following, Runner):
                    self._start(call, following, over)
                elif isinstance(following, Unanswered):
                    return leg.result
                elif following is not None:
                    raise following
        except Exception:
            call.interrupt_the_rest()
            raise
        except BaseException:
            call.abandon()
            self._wait_for_the_end(call, over)
            raise

    def _wait_for_the_end(self, call: Call, over: queue.SimpleQueue[Runner]) -> None:
        """Give the legs, which have been woken, the moment they need to close their connections."""
        until = monotonic() + _CLOSING
        while call.live and (left := until - monotonic()) > 0:
            try:
                over.get(timeout=left)
            except queue.Empty:
                return

    def _next(self, call: Call, over: queue.SimpleQueue[Runner]) -> Runner | None:
        """Return the next leg that is over; start the hedge when it is due first."""
        try:
            return over.get(timeout=call.wait())
        except queue.Empty:
            pass
        if not call.opened:
            if call.forgo_hedge():
                return None
            try:
                return over.get(timeout=SOON)
            except queue.Empty:
                return None
        hedge = call.hedge()
        if hedge is not None:
            try:
                self._start(call, hedge, over)
            except RuntimeError:
                call.forget(hedge)
        return None

    def _start(self, call: Call, leg: Runner, over: queue.SimpleQueue[Runner]) -> None:
        # In a copy of the caller's context each, so that policies, runs and the current span reach both.
        work = copy_context().run
        threading.Thread(
            target=work, args=(self._leg, call, leg, over), name=f"stallwatch-leg-{leg.number}", daemon=True
        ).start()

    def _leg(self, call: Call, leg: Runner, over: queue.SimpleQueue[Runner]) -> None:
        try:
            with leg.scope:
                leg.result = self._perform(call, leg)
        except BaseException as error:
            leg.error = error
        over.put(leg)
        # Looked at behind that, as the other side sets the one before it looks at the other.
        if leg.lost:
            _close(leg.result)


def _close(result: Any) -> None:
    close = getattr(result, "close", None)
    if close is not None:
        close()
