"""Closing an asynchronous stream that no task waits for: in its own loop, in a task of its own.

A loop holds its tasks weakly, so something has to hold this one; and nothing that outlives the loop may, for programs
have loops by the thousand, and end them in the middle. So it is held by a timer of the loop, which goes with it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine, Generator
from contextvars import Context
from functools import partial
from typing import Any

__all__ = ["close_from_elsewhere", "close_soon"]

_HELD = 60.0
"""Seconds after which the timer is set once more, where closing takes so long."""


def close_from_elsewhere(source: Any, home: weakref.ref[asyncio.AbstractEventLoop]) -> None:
    """Close ``source`` in its loop, from another thread or in a finaliser; never raises."""
    loop = home()
    if loop is not None and not loop.is_closed():
        try:
            loop.call_soon_threadsafe(close_soon, loop, source, context=Context())
        except Exception:
            # It has been closed at this very moment, or is of a kind that will not have it. Nobody is there to be told.
            pass


def close_soon(loop: asyncio.AbstractEventLoop, source: Any) -> None:
    """Close ``source`` in a task of its own, in the loop's thread."""
    task: Any = loop.create_task(_Closing(source))
    # A loop that ends first takes the task along, and is not to complain of what is none of its program's. A private
    # name, as loops of the standard library use it themselves; task classes of others may lack it.
    try:
        task._log_destroy_pending = False
    except AttributeError:
        pass
    _hold(loop, task)


def _hold(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    if not task.done():
        timer = loop.call_later(_HELD, _hold, loop, task)
        task.add_done_callback(partial(_let_go, timer))


def _let_go(timer: asyncio.TimerHandle, task: asyncio.Task[None]) -> None:
    timer.cancel()


class _Closing(Coroutine[Any, Any, None]):
    """Closes ``source``, and begins with its first step: one that is never taken is not complained of."""

    __slots__ = ("_source", "_step")

    def __init__(self, source: Any) -> None:
        self._source = source
        self._step: Any = None

    def send(self, value: Any) -> Any:
        """Go on. Nobody reads the result, so nobody is told that it could not be closed."""
        try:
            if self._step is None:
                self._step = self._source.aclose().__await__()
            return next(self._step) if value is None else self._step.send(value)
        except Exception:
            raise StopIteration from None

    def throw(self, *error: Any) -> Any:
        """Go on with an error, as of a cancelled task."""
        try:
            if self._step is None:
                raise error[0]
            return self._step.throw(*error)
        except Exception:
            raise StopIteration from None

    def close(self) -> None:
        """Leave it as it is."""
        if self._step is not None:
            self._step.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise NotImplementedError
