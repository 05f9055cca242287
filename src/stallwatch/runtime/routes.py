"""What this process knows of each route: its retry budget and the queue of its retries.

A route is where a request goes (an origin such as ``https://api.example.com:443``, and a model), and the runs of a
process that share one must share what they know of it: otherwise each of a thousand runs would come back by itself,
and all of them at once. What is decided is decided in ``core.budget`` and ``core.pacing``; here are only the lock
around them and the list of routes.

The list is bounded. A route that is forgotten while runs still use it lives on with them; the next run to ask for it
begins with a new one. A forked child knows nothing of its parent's routes: both would spend the same budget.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from stallwatch.core.budget import LONGEST_SERVER_WAIT, RetryBudget, back_off
from stallwatch.core.pacing import Pacing, Slot

__all__ = ["CAPACITY", "Proposal", "Route", "RouteKey", "Routes", "forget_routes", "route_of"]

CAPACITY = 256
"""Routes kept, the ones used last: more than a program talks to, few enough to cost nothing when one in every request
is new."""

RouteKey = tuple[str, str | None]
"""Origin (scheme, host and port, and nothing else of the URL) and model."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """What a route can offer to a run that wants to try again. If it is not used, give it back."""

    delay: float
    """Seconds to wait: back-off or the server's wish, and the queue."""
    server_wait: float | None
    """Seconds the server asked for."""
    paced: bool
    """Whether the queue made the wait longer."""
    budget_left: bool
    """Whether the route may see this retry."""
    _held: list[tuple[Slot, float]] = field(default_factory=list, repr=False)
    """The slot, and how much the budget was drawn on; empty when nothing is held (any more)."""


class Route:
    """One route. Its methods may be called from any thread; instants are monotonic."""

    __slots__ = ("_budget", "_lock", "_pacing")

    def __init__(self) -> None:
        self._budget = RetryBudget()
        self._pacing = Pacing()
        self._renew_lock()

    def _renew_lock(self) -> None:
        # Reentrant, because a signal handler may make a call of its own while this thread is in here.
        self._lock = threading.RLock()

    def on_call(self, now: float) -> None:
        """A run begins here."""
        with self._lock:
            self._budget.on_call(now)

    def on_success(self, now: float) -> None:
        """An attempt was answered."""
        with self._lock:
            self._pacing.on_success(now)

    def wait(self, now: float, *, delay: float, server_wait: float | None = None) -> float:
        """Return the seconds a retry would have to wait now, the queue included; reserves nothing."""
        with self._lock:
            return self._pacing.wait(now, max(delay, server_wait or 0.0))

    def count(self, now: float, *, delay: float, server_wait: float | None = None) -> Proposal:
        """An attempt failed and the SDK will try again after ``delay`` seconds without asking.

        It is counted, and the budget refuses it nothing; but it takes its place in the queue, where that is no longer
        than is ever slept.
        """
        with self._lock:
            self._pacing.on_failure(now, server_wait)
            drawn = self._budget.count(now)
            slot = self._pacing.reserve(now, delay)
            if slot.delay > LONGEST_SERVER_WAIT:
                slot = Slot(delay=delay)
            return Proposal(
                delay=slot.delay,
                server_wait=server_wait,
                paced=slot.paced,
                budget_left=True,
                _held=[(slot, drawn)],
            )

    def propose(self, *, retry: int, server_wait: float | None, now: float, random: float) -> Proposal:
        """Tell of an attempt that failed in a way that may be retried, and reserve what its retry needs.

        ``retry`` is how many retries the run has made, ``random`` a number from 0 up to, not including, 1. Whatever is
        decided then, what is not used must go to ``give_back``, also when the wait is cut short. Where the wait is too
        long to be slept or the budget is spent, nothing is reserved.
        """
        own = back_off(retry, random) if server_wait is None else server_wait
        with self._lock:
            self._pacing.on_failure(now, server_wait)
            slot = self._pacing.reserve(now, own)
            if slot.delay > LONGEST_SERVER_WAIT:
                return Proposal(delay=slot.delay, server_wait=server_wait, paced=slot.paced, budget_left=True)
            if not self._budget.take(now):
                self._pacing.release(slot)
                return Proposal(delay=own, server_wait=server_wait, paced=False, budget_left=False)
            return Proposal(
                delay=slot.delay,
                server_wait=server_wait,
                paced=slot.paced,
                budget_left=True,
                _held=[(slot, 1.0)],
            )

    def give_back(self, proposal: Proposal, now: float) -> None:
        """Give back what a retry that will not be made has reserved; a second time changes nothing."""
        with self._lock:
            if proposal._held:
                slot, drawn = proposal._held.pop()
                self._pacing.release(slot)
                self._budget.put_back(now, drawn)


class Routes:
    """The routes used last, by key."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._routes: OrderedDict[RouteKey, Route] = OrderedDict()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._routes)

    def of(self, key: RouteKey) -> Route:
        """Return the route of ``key``, a new one if it is not known (any more)."""
        with self._lock:
            route = self._routes.get(key)
            if route is None:
                route = self._routes[key] = Route()
                if len(self._routes) > self._capacity:
                    self._routes.popitem(last=False)
            else:
                self._routes.move_to_end(key)
            return route

    def forget(self) -> None:
        """Begin anew, as a forked child must: another thread of the parent may have held any of the locks."""
        self._lock = threading.RLock()
        for route in self._routes.values():
            route._renew_lock()
        self._routes.clear()


_routes = Routes()


def route_of(key: RouteKey) -> Route:
    """Return the one route of this process for ``key``."""
    return _routes.of(key)


def forget_routes() -> None:
    """Forget what this process knows of its routes."""
    _routes.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_routes)
