"""The run whose ``request`` is being executed in this context; the seams inside the SDK's loop find it here."""

from __future__ import annotations

from contextvars import ContextVar

from stallwatch.runtime.inflight import InFlight

__all__ = ["current", "current_run"]

current: ContextVar[InFlight | None] = ContextVar("stallwatch_current_run", default=None)


def current_run() -> InFlight | None:
    """Return that run, or None outside a governed request."""
    return current.get()
