"""What the user holds of a run, held weakly: when it is gone unclosed, the run is abandoned.

What a weak reference calls may run inside a collection, in any thread and in the middle of any code; so it speaks to
nobody, and leaves word with the event loop and with the sweep.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from stallwatch.runtime import sweeper
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.waiter import Waiter

__all__ = ["watch_owner"]


class _Owner(weakref.ref[Any]):
    """A weak hold on what the user has of a run; not a closure over the run, which would be three times as large."""

    __slots__ = ("closes", "run")

    run: InFlight
    closes: bool

    def __new__(cls, owner: Any, run: InFlight, *, closes: bool) -> Self:
        self = super().__new__(cls, owner, _gone)
        self.run, self.closes = run, closes
        return self

    def __init__(self, owner: Any, run: InFlight, *, closes: bool) -> None:
        """All is done; the reference's own would refuse what it does not know."""


def _gone(owner: Any) -> None:
    """Nobody holds it any more. This may run inside a collection: it only enqueues."""
    run = owner.run
    run.orphaned = True
    if owner.closes and not run.ended:
        close = _closer(run)
        if isinstance(run.waiter, Waiter) and close is not None:
            # Before the loop is told of the generators that go with it: whichever of them it closed first would be
            # waiting for the connection to close when the next one wants it closed, and asyncio is loud about that.
            close()
            close = None
        sweeper.orphan(run, close)


def watch_owner(run: InFlight, owner: Any, *, close: bool) -> None:
    """Notice when nobody holds ``owner`` any more."""
    # The run keeps the reference: a weak reference that is itself garbage never calls back.
    run.owners = (*run.owners, _Owner(owner, run, closes=close))


def _closer(run: InFlight) -> Callable[[], object] | None:
    source, waiter = run.source, run.waiter
    if source is None:
        # It has ended at this very moment, in another thread.
        return None
    if isinstance(waiter, Waiter):
        return partial(waiter.close_from_elsewhere, source) if waiter.has_watch else None
    close = getattr(source, "close", None)
    return close if callable(close) else None
