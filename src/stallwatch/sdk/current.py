"""The run whose ``request`` is being executed in this context; the seams inside the SDK's loop find it here.

The context variable holds a scope, not the run. Contexts are copied into every task and callback made meanwhile, and
some of those live on; the scope is emptied when the request ends, so that none of them keeps a run alive or takes
later requests for part of it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from stallwatch.runtime.attempt import Leg
from stallwatch.runtime.inflight import InFlight

__all__ = ["Place", "current_run", "executing", "place", "placing", "resent_before"]


class _Scope:
    __slots__ = ("before", "run")

    def __init__(self, run: InFlight | None, before: int | None) -> None:
        self.run = run
        self.before = before


_current: ContextVar[_Scope | None] = ContextVar("stallwatch_current_run", default=None)


def current_run() -> InFlight | None:
    """Return that run, or None outside a governed request."""
    scope = _current.get()
    return None if scope is None else scope.run


def resent_before() -> int | None:
    """Return how many attempts the current run had made when its request was sent again; None in its first request."""
    scope = _current.get()
    return None if scope is None or scope.run is None else scope.before


class executing:  # noqa: N801 - a class, because it is in every call, and a generator costs three times as much
    """Make ``run`` the current one for the block; None shields a call that is not governed from the run around it.

    ``before`` marks a request that is sent again for a run which has made as many attempts.
    """

    __slots__ = ("_scope", "_token")

    def __init__(self, run: InFlight | None, *, before: int | None = None) -> None:
        self._scope = _Scope(run, before)

    def __enter__(self) -> None:
        self._token = _current.set(self._scope)

    def __exit__(self, *error: object) -> None:
        self._scope.run = None
        _current.reset(self._token)


class Place:
    """Where a router puts the next call: the leg it is, and the run that came of it, once there is one."""

    __slots__ = ("leg", "run")

    def __init__(self, leg: Leg) -> None:
        self.leg = leg
        self.run: InFlight | None = None


_place: ContextVar[Place | None] = ContextVar("stallwatch_place", default=None)


def place() -> Place | None:
    """Return the place of a call that is about to be made; None when no router makes it, or it has been taken."""
    found = _place.get()
    return found if found is not None and found.run is None else None


@contextmanager
def placing(where: Place) -> Generator[None, None, None]:
    """Make ``where`` the place of the next call."""
    token = _place.set(where)
    try:
        yield
    finally:
        _place.reset(token)
