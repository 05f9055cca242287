"""Closing an asynchronous stream that no task waits for: in its own loop, in a task of its own."""

from __future__ import annotations

import asyncio
import weakref
from contextvars import Context
from typing import Any

__all__ = ["close_from_elsewhere", "close_soon"]

_closing: set[asyncio.Task[Any]] = set()


def close_from_elsewhere(source: Any, home: weakref.ref[asyncio.AbstractEventLoop]) -> None:
    """Close ``source`` in its loop, from another thread or in a finaliser."""
    loop = home()
    if loop is not None and not loop.is_closed():
        try:
            loop.call_soon_threadsafe(close_soon, loop, source, context=Context())
        except RuntimeError:
            # It has been closed at this very moment.
            pass


def close_soon(loop: asyncio.AbstractEventLoop, source: Any) -> None:
    """Close ``source`` in a task of its own, in the loop's thread."""
    task = loop.create_task(source.aclose())
    # The loop itself holds tasks weakly only.
    _closing.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    _closing.discard(task)
    if not task.cancelled():
        # Looked at, so that nobody is told of a failure to close what nobody reads.
        task.exception()
