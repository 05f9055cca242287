"""An asynchronous HTTP/2 connection whose calls can be ended one by one; see ``http2_streams`` for why.

Ending the wait is the watch's work (``task_waiter``): it cancels the task, and the library leaves the connection as it
was. Here the read lock lets those pass for whom something has come, since a queue of silent calls would keep an answer
from its reader until as many further packets have come; and a stream that is left is reset.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any, Self

import anyio

from stallwatch.clock import monotonic
from stallwatch.runtime.http2_streams import Streams, governed_class, is_writable
from stallwatch.runtime.own_deadline import of_library
from stallwatch.runtime.pools import run_of

__all__ = ["govern"]

_FLUSH = 0.1
"""Seconds that sending a reset may take; a socket that takes bytes takes them at once."""


def govern(connection: Any) -> bool:
    """Have the streams of an asynchronous HTTP/2 connection ended one by one; False where that cannot be."""
    made = governed_class(connection, _Governed)
    if made is not None:
        connection._stallwatch = _Turns(connection)
        connection.__class__ = made
    return isinstance(connection, _Governed)


class _Wait:
    """A task that waits for what comes on one stream."""

    __slots__ = ("closed", "event", "passed", "ready")

    def __init__(self, ready: Callable[[], object], closed: Callable[[], bool]) -> None:
        self.ready, self.closed = ready, closed
        self.event: anyio.Event | None = None
        self.passed = False

    def call(self) -> None:
        if self.event is not None:
            self.event.set()


_here: ContextVar[_Wait | None] = ContextVar("stallwatch_http2_async_wait", default=None)


class _Turns:
    """Stands in for the read lock of one connection."""

    def __init__(self, connection: Any) -> None:
        self.streams = Streams()
        self._library = connection._network_stream
        self._taken = False
        self._queue: list[_Wait] = []
        connection._read_lock = self

    @contextlib.asynccontextmanager
    async def waiting(self, ready: Callable[[], object], closed: Callable[[], bool]) -> AsyncGenerator[None]:
        """What is done inside waits for ``ready``."""
        token = _here.set(_Wait(ready, closed))
        try:
            yield
        finally:
            _here.reset(token)

    def raise_if_closed(self, wait: _Wait) -> None:
        """Raise the library's error when another task has closed the stream that is waited for."""
        if wait.closed():
            raise of_library(self._library, "ReadError", OSError)("The stream has been closed")

    async def __aenter__(self) -> Self:
        wait = _here.get() or _Wait(bool, bool)
        while True:
            self.raise_if_closed(wait)
            wait.passed = bool(wait.ready())
            if wait.passed:
                return self
            if not self._taken:
                self._taken = True
                return self
            wait.event = anyio.Event()
            self._queue.append(wait)
            try:
                await wait.event.wait()
            finally:
                wait.event = None
                self._queue.remove(wait)
                self._call_next()

    async def __aexit__(self, *_: object) -> None:
        wait = _here.get()
        if wait is not None and wait.passed:
            wait.passed = False
            return
        self._taken = False
        self._call_next()

    def _call_next(self) -> None:
        """Wake those for whom something has come, and one more to read on if nobody does."""
        free = not self._taken
        for wait in self._queue:
            if wait.ready() or wait.closed():
                wait.call()
            elif free:
                wait.call()
                free = False

    def call_closed(self) -> None:
        """A stream has been closed: whoever waits for it is told."""
        for wait in self._queue:
            if wait.closed():
                wait.call()


class _Governed:
    """What is different about a governed connection; mixed over the library's own class.

    Without slots: the layout must be that of the class it is mixed over.
    """

    _stallwatch: _Turns

    async def handle_async_request(self: Any, request: Any) -> Any:
        entering = self._stallwatch.streams.entering
        entering.add(id(request))
        try:
            return await super().handle_async_request(request)  # type: ignore[misc]
        finally:
            entering.discard(id(request))

    async def _send_request_headers(self: Any, request: Any, stream_id: int) -> None:
        self._stallwatch.streams.begin(stream_id, request)
        await super()._send_request_headers(request=request, stream_id=stream_id)  # type: ignore[misc]

    async def _receive_stream_event(self: Any, request: Any, stream_id: int) -> Any:
        events = self._events
        async with self._stallwatch.waiting(lambda: events.get(stream_id), lambda: stream_id not in events):
            event = await super()._receive_stream_event(request, stream_id)  # type: ignore[misc]
        run, data = run_of(request), getattr(event, "data", None)
        if run is not None and data and run.headers_in and run.source is None and not run.ended:
            run.on_bytes_below(data)
            run.waiter.look_ahead()
        return event

    async def _wait_for_outgoing_flow(self: Any, request: Any, stream_id: int) -> Any:
        events, state = self._events, self._h2_state

        def flows() -> bool:
            return stream_id in events and state.local_flow_control_window(stream_id) > 0

        async with self._stallwatch.waiting(flows, lambda: stream_id not in events):
            return await super()._wait_for_outgoing_flow(request, stream_id)  # type: ignore[misc]

    async def _read_incoming_data(self: Any, request: Any) -> Any:
        wait = _here.get()
        if wait is not None:
            if wait.passed or wait.ready():
                return []
            self._stallwatch.raise_if_closed(wait)
        streams = self._stallwatch.streams
        try:
            data = await super()._read_incoming_data(request)  # type: ignore[misc]
        except Exception as error:
            if self._read_exception is error and type(error).__name__ == "ReadTimeout":
                # This call's, and no other's: nothing has been taken from the connection.
                self._read_exception = None
                streams.give_up(self)
            raise
        streams.heard_at = monotonic()
        return data

    async def _response_closed(self: Any, stream_id: int) -> None:
        turns = self._stallwatch
        request, run, wanted = turns.streams.close(self, stream_id)
        sent = not wanted or await self._flush(request)
        await super()._response_closed(stream_id)  # type: ignore[misc]
        turns.call_closed()
        if turns.streams.settle(self, run, sent=sent) and not self.is_closed():
            await self.aclose()

    async def _flush(self: Any, request: Any) -> bool:
        """Send what is queued, unless that would block; it then goes with the next that is sent."""
        if not is_writable(self._network_stream):
            return False
        with anyio.move_on_after(_FLUSH, shield=True) as scope:
            try:
                await self._write_outgoing_data(request)
            except Exception:
                return False
        return not scope.cancelled_caught
