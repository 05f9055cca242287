"""The HTTP/2 state of a synchronous connection, one thread at a time.

Readers, senders and closers use it side by side. Two hazards come of that, both the library's own, and both end calls
that have nothing to do with them:

* a frame that one thread adds while another collects what is to be sent is lost;
* two calls that begin at once are given the same stream, and the connection fails when the server answers it.

So each call of the state is made under a lock, and a second lock is held from the number of a stream being given until
its headers have opened it.
"""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["SerialState"]

_PATIENCE = 0.5
"""Seconds to wait for another call to open its stream: no longer, lest one that was broken off there holds up all."""


class SerialState:
    """Stands in for ``state``."""

    _state: Any
    _lock: Any
    _opening: Any
    _opener: int | None

    def __init__(self, state: Any) -> None:
        # Reentrant: a signal handler may close a stream in here.
        self.__dict__.update(_state=state, _lock=threading.RLock(), _opening=threading.Lock(), _opener=None)

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            value = getattr(self._state, name)
        if not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            with self._lock:
                return value(*args, **options)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._state, name, value)

    def get_next_available_stream_id(self) -> Any:
        """Return the number of a stream, which is this thread's to open."""
        if self._opener != threading.get_ident() and self._opening.acquire(timeout=_PATIENCE):
            self.__dict__["_opener"] = threading.get_ident()
        with self._lock:
            return self._state.get_next_available_stream_id()

    def send_headers(self, *args: Any, **options: Any) -> Any:
        """Open it."""
        try:
            with self._lock:
                return self._state.send_headers(*args, **options)
        finally:
            self.opened()

    def opened(self) -> None:
        """This thread has opened its stream, or never will."""
        if self._opener == threading.get_ident():
            self.__dict__["_opener"] = None
            self._opening.release()
