"""The run whose ``request`` is being executed in this context; the seams inside the SDK's loop find it here.

The context variable holds a scope, not the run. Contexts are copied into every task and callback made meanwhile, and
some of those live on; the scope is emptied when the request ends, so that none of them keeps a run alive or takes
later requests for part of it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from stallwatch.runtime.inflight import InFlight

__all__ = ["current_run", "executing"]


class _Scope:
    __slots__ = ("run",)

    def __init__(self, run: InFlight | None) -> None:
        self.run = run


_current: ContextVar[_Scope | None] = ContextVar("stallwatch_current_run", default=None)


def current_run() -> InFlight | None:
    """Return that run, or None outside a governed request."""
    scope = _current.get()
    return None if scope is None else scope.run


@contextmanager
def executing(run: InFlight | None) -> Generator[None, None, None]:
    """Make ``run`` the current one for the block; None shields a call that is not governed from the run around it."""
    scope = _Scope(run)
    token = _current.set(scope)
    try:
        yield
    finally:
        scope.run = None
        _current.reset(token)
