"""One lazily re-armed timer per event loop, for all waits on it.

An asyncio loop's is here; ``trio_waiter`` has a trio run's, which differs only in how a callback is had called later.

A heap of (instant, sequence, weak waiter). The loop's timer is set only when an earlier instant is pushed; a wait that
restarts before its entry comes up costs nothing, the entry is pushed back when it is looked at. Entries of waiters that
ended are dropped when they come up, and all at once when they outnumber the living.

A loop whose clock stands still, as in tests, or that has no turns calls no timer; another thread finds that out and has
the watch look (``nudge``).

The watch must not hold its loop: it is the value of a weak-keyed map whose key is the loop. So no timer handle is kept,
and no timer is taken back; one that is no longer wanted finds nothing due. Instead the instants of all timers that are
set are known, and a further one is set only before the earliest of them. Each is there once, so they are no more than
the different timeouts in use.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import weakref
from contextvars import Context
from typing import Any, Protocol

from stallwatch.clock import monotonic
from stallwatch.foreign_errors import told_of
from stallwatch.logs import log

__all__ = ["Watch", "Watched", "watch_of", "watches"]


_EARLY = 0.0005
"""Seconds; some loops fire that much too early, and re-arming for less would spin."""

_EMPTY_BEFORE_COMPACTING = 64

OVERDUE = 0.5
"""Seconds by which a timer must be late before somebody else has the watch look."""


class Watched(Protocol):
    """Somebody whose wait may come due."""

    armed: float | None
    """The instant of the entry that counts, kept by the watch."""

    def on_due(self, now: float) -> float | None:
        """Act on the wait if it is due; return when to look again (0: in the loop's next turn), None for never."""
        ...


class Watch:
    """The timer of one loop."""

    __slots__ = ("__weakref__", "_dead", "_heap", "_loop", "_nudged", "_sequence", "_timers")

    def __init__(self, loop: Any) -> None:
        self._loop = weakref.ref(loop)
        self._nudged = False
        self._heap: list[tuple[float, int, weakref.ref[Watched]]] = []
        # The instants of the loop's timers that are set, the earliest last.
        self._timers: list[float] = []
        self._sequence = itertools.count()
        self._dead = 0
        _all.add(weakref.ref(self, _all.discard))

    def arm(self, who: Watched, at: float) -> None:
        """Make sure that ``who`` is asked at ``at`` or a little later."""
        if who.armed is not None:
            if who.armed <= at:
                return
            self._dead += 1
        who.armed = at
        heapq.heappush(self._heap, (at, next(self._sequence), weakref.ref(who)))
        self._set_timer(at)

    def disarm(self, who: Watched) -> None:
        """Forget ``who``; its entry goes when it comes up, or earlier."""
        if who.armed is None:
            return
        who.armed = None
        self._dead += 1
        if self._dead > _EMPTY_BEFORE_COMPACTING and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if _counts(entry)]
            heapq.heapify(self._heap)
            self._dead = 0

    def _set_timer(self, at: float) -> None:
        if self._timers and self._timers[-1] <= at:
            return
        self._call_later(max(at - monotonic(), 0.0), at)
        self._timers.append(at)

    def _call_later(self, delay: float, timer: float) -> None:
        """Have ``_fire`` called with ``timer`` after so many seconds."""
        # An empty context: by default the callback would run in that of whichever request armed it.
        asyncio.get_running_loop().call_later(delay, self._fire, timer, context=Context())

    def _call_soon(self, who: Watched) -> None:
        """Have ``_look`` called in the loop's next turn, when the reader has had its own."""
        asyncio.get_running_loop().call_soon(self._look, who, context=Context())

    def _fire(self, timer: float) -> None:
        # By its instant: a loop with coarse timers may call two of the same millisecond in either order.
        self._timers.remove(timer)
        self.look()

    def look(self) -> None:
        """Ask everybody who is due."""
        self._nudged = False
        now = monotonic()
        soon: list[Watched] = []
        later: list[tuple[Watched, float]] = []
        while self._heap and self._heap[0][0] <= now + _EARLY:
            entry = heapq.heappop(self._heap)
            who = entry[2]()
            if who is None or who.armed != entry[0]:
                self._dead = max(self._dead - 1, 0)
                continue
            who.armed = None
            again = _ask(who, now)
            if again == 0:
                soon.append(who)
            elif again is not None:
                later.append((who, again))
        for who, at in later:
            # Only now: an instant within the tolerance would come up again in the loop above, without end.
            self.arm(who, at)
        for who in soon:
            self._call_soon(who)
        if self._heap:
            self._set_timer(self._heap[0][0])

    def nudge(self, now: float) -> None:
        """Have the watch look in its loop if its timer is long overdue; from any thread."""
        # A copy, because the loop's own thread goes on meanwhile.
        for earliest in self._timers[-1:]:
            if now - earliest > OVERDUE and not self._nudged:
                loop = self._loop()
                if loop is not None:
                    # Once until it is done: a loop that is not run just now would gather them.
                    self._nudged = True
                    self._look_from_elsewhere(loop)

    def _look_from_elsewhere(self, loop: Any) -> None:
        try:
            loop.call_soon_threadsafe(self.look, context=Context())
        except Exception:
            # It has been closed, or is of a kind that will not have it: then its own timer is all there is.
            pass

    def _look(self, who: Watched) -> None:
        if who.armed is not None:
            return
        again = _ask(who, monotonic())
        if again == 0:
            self._call_soon(who)
        elif again is not None:
            self.arm(who, again)


def _ask(who: Watched, now: float) -> float | None:
    try:
        return who.on_due(now)
    except Exception as error:
        # One wait that cannot be judged must not take the others' timer with it.
        log.warning("stallwatch: a wait could not be judged: %s", told_of(error))
        return None


def _counts(entry: tuple[float, int, weakref.ref[Watched]]) -> bool:
    who = entry[2]()
    return who is not None and who.armed == entry[0]


_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = weakref.WeakKeyDictionary()


def watch_of(loop: asyncio.AbstractEventLoop) -> Watch:
    """Return the watch of a loop."""
    found = _watches.get(loop)
    if found is None:
        found = _watches[loop] = Watch(loop)
    return found


_all: set[weakref.ref[Watch]] = set()


def watches() -> list[Watch]:
    """Return the watches of all loops; from any thread."""
    return [watch for one in list(_all) if (watch := one()) is not None]


if hasattr(os, "register_at_fork"):
    # The loops are the parent's, and so is what wakes them.
    os.register_at_fork(after_in_child=_all.clear)
