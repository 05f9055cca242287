"""A synchronous HTTP/2 connection whose calls can be ended one by one; see ``http2_streams`` for why.

Whoever waits for its stream does so in one of two places: it reads for all, or it stands at the read lock. The reader
does not block in a read, but on the socket together with a bell, for no longer than its own deadline leaves; a cancel
or a close rings. Those at the lock each sleep until something has come for them, the lock is free, or their own
deadline has passed. Nobody depends on anybody else to be ended.

What is read ahead is handed to the library through the stream's own ``read``, by the thread that read it and under the
lock, so that the library's framing sees every byte once and in order.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, Self

from stallwatch.clock import monotonic
from stallwatch.runtime.http2_state import SerialState
from stallwatch.runtime.http2_streams import Streams, governed_class, is_writable
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.own_deadline import OverError, OwnDeadline, of_library
from stallwatch.runtime.pools import run_of
from stallwatch.runtime.shared_stream import SharedStream

__all__ = ["govern"]

_SLICE = 0.02
"""Seconds between two looks at a cancel, for the one wait that nothing can wake: for a slot of the connection."""


def govern(connection: Any) -> bool:
    """Have the streams of a synchronous HTTP/2 connection ended one by one; False where that cannot be."""
    made = governed_class(connection, _Governed)
    if made is not None:
        connection._stallwatch = turns = _Turns(connection)
        slots = connection.__dict__.get("_max_streams_semaphore")
        connection.__class__ = made
        turns.install(connection)
        if slots is not None:
            connection._max_streams_semaphore = slots
    return isinstance(connection, _Governed)


class _Wait:
    """A thread that waits for what comes on one stream; also the run's ``shadow`` meanwhile."""

    __slots__ = ("_deadline", "closed", "event", "passed", "ready", "run", "turns")

    reading = True

    def __init__(
        self, turns: _Turns, run: InFlight | None, ready: Callable[[], object], closed: Callable[[], bool]
    ) -> None:
        self.turns, self.run, self.ready, self.closed = turns, run, ready, closed
        self.event = threading.Event()
        self.passed = False
        self._deadline = None if run is None else OwnDeadline(run)

    def left(self, readable: Callable[[], bool] = lambda: False) -> float | None:
        """Return the seconds it may still wait, None for no limit; raises the library's error when that is over."""
        if self.closed():
            raise self.turns.error("ReadError", "The stream has been closed")
        try:
            return None if self._deadline is None else self._deadline.left(readable)
        except OverError:
            raise self.turns.error("ReadTimeout", "The read operation timed out") from None

    def wake(self) -> bool:
        """Wake this thread, for what was recorded before."""
        self.event.set()
        self.turns.stream.ring()
        return True

    def release(self) -> bool:
        """Nothing of the connection is held."""
        return True

    def remove(self) -> None:
        """Nothing was put in place for this wait alone."""

    def forget(self) -> None:
        """This is a forked child: whoever waits here does so in the parent."""


_here: ContextVar[_Wait | None] = ContextVar("stallwatch_http2_wait", default=None)


class _Turns:
    """Stands in for the read lock of one connection."""

    def __init__(self, connection: Any) -> None:
        self.streams = Streams()
        self.stream = SharedStream(connection._network_stream)
        self._library = connection._network_stream
        # Reentrant: a signal handler may close a stream in here.
        self._mutex = threading.RLock()
        self._reader: int | None = None
        self._queue: list[_Wait] = []
        self.callers: dict[int, InFlight] = {}
        self.counting = threading.RLock()

    def install(self, connection: Any) -> None:
        """Take the lock's place, and serialise the connection's state."""
        connection._read_lock = self
        connection._h2_state = SerialState(connection._h2_state)

    def error(self, name: str, text: str) -> Exception:
        """Return an error of the HTTP library's own kind."""
        return of_library(self._library, name, TimeoutError if "Timeout" in name else OSError)(text)

    @contextlib.contextmanager
    def waiting(
        self, request: Any, ready: Callable[[], object], closed: Callable[[], bool]
    ) -> Generator[None]:
        """What is done inside waits for ``ready``, on behalf of ``request``."""
        run = run_of(request)
        wait = _Wait(self, run, ready, closed)
        token = _here.set(wait)
        if run is not None:
            run.shadow = wait
        try:
            yield
        finally:
            _here.reset(token)
            if run is not None and run.shadow is wait:
                run.shadow = None

    def __enter__(self) -> Self:
        wait = _here.get()
        if wait is None:
            wait = _Wait(self, None, bool, bool)
        while not self._take(wait):
            try:
                wait.event.wait(wait.left())
            finally:
                with self._mutex:
                    self._queue.remove(wait)
                    self._call_next()
        return self

    def _take(self, wait: _Wait) -> bool:
        """Take the lock, or pass without it when there is no need to read; else stand in line."""
        with self._mutex:
            wait.passed = bool(wait.ready())
            if wait.passed:
                return True
            if self._reader is None:
                self._reader = threading.get_ident()
                return True
            wait.event.clear()
            self._queue.append(wait)
            return False

    def __exit__(self, *_: object) -> None:
        wait = _here.get()
        if wait is not None and wait.passed:
            wait.passed = False
            return
        with self._mutex:
            self._reader = None
            self._call_next()

    def _call_next(self) -> None:
        """Wake those for whom something has come, and one more to read on if nobody does."""
        free = self._reader is None
        for wait in self._queue:
            if wait.ready():
                wait.event.set()
            elif free:
                wait.event.set()
                free = False

    def call_closed(self) -> None:
        """A stream has been closed: whoever waits for it is told."""
        with self._mutex:
            for wait in self._queue:
                if wait.closed():
                    wait.event.set()
        self.stream.ring()

    def read_ahead(self, connection: Any, timeout: float | None) -> bool:
        """Wait for bytes, under the lock; False when there is no need to read. Raises for the present wait alone."""
        wait = _here.get()
        if wait is None:
            return True
        until = None if timeout is None else monotonic() + timeout
        while not self.stream.holds:
            if wait.passed or wait.ready():
                return False
            left = wait.left(self.stream.has_bytes)
            if until is not None:
                mine = until - monotonic()
                if mine <= 0:
                    self.streams.give_up(connection)
                    raise self.error("ReadTimeout", "The read operation timed out")
                left = mine if left is None else min(left, mine)
            if self.stream.await_bytes(left):
                self.stream.hold(connection.READ_NUM_BYTES, timeout)
        self.streams.heard_at = monotonic()
        return True


class _Slots:
    """The semaphore of a connection's streams: no run waits for a slot longer than its deadlines leave."""

    def __init__(self, inner: Any, turns: _Turns) -> None:
        self._inner = inner
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def acquire(self) -> None:
        run = self._turns.callers.get(threading.get_ident())
        semaphore = getattr(self._inner, "_semaphore", None)
        if run is None or not isinstance(semaphore, threading.Semaphore):
            self._inner.acquire()
            return
        deadline = OwnDeadline(run)
        while True:
            try:
                left = deadline.left(lambda: False)
            except OverError:
                raise self._turns.error("PoolTimeout", "No stream of the connection came free") from None
            if run.wakeable:
                left = _SLICE if left is None else min(left, _SLICE)
            if semaphore.acquire(timeout=left):
                return


class _Governed:
    """What is different about a governed connection; mixed over the library's own class.

    Without slots: the layout must be that of the class it is mixed over.
    """

    _stallwatch: _Turns

    @property
    def _max_streams_semaphore(self) -> Any:
        return self.__dict__["_max_streams_semaphore"]

    @_max_streams_semaphore.setter
    def _max_streams_semaphore(self, value: Any) -> None:
        # Made by the library inside the very call that must not wait for it without end.
        self.__dict__["_max_streams_semaphore"] = _Slots(value, self._stallwatch)

    def handle_request(self: Any, request: Any) -> Any:
        turns, run = self._stallwatch, run_of(request)
        with turns.counting:
            turns.streams.entering.add(id(request))
        if run is not None:
            turns.callers[threading.get_ident()] = run
        try:
            return super().handle_request(request)  # type: ignore[misc]
        finally:
            self._h2_state.opened()
            turns.callers.pop(threading.get_ident(), None)
            with turns.counting:
                turns.streams.entering.discard(id(request))

    def _send_request_headers(self: Any, request: Any, stream_id: int) -> None:
        self._stallwatch.streams.begin(stream_id, request)
        super()._send_request_headers(request=request, stream_id=stream_id)  # type: ignore[misc]

    def _receive_stream_event(self: Any, request: Any, stream_id: int) -> Any:
        events = self._events
        with self._stallwatch.waiting(
            request, lambda: events.get(stream_id), lambda: stream_id not in events
        ):
            event = super()._receive_stream_event(request, stream_id)  # type: ignore[misc]
        run, data = run_of(request), getattr(event, "data", None)
        if run is not None and data and run.headers_in and run.source is None and not run.ended:
            run.on_bytes_below(data)
        return event

    def _wait_for_outgoing_flow(self: Any, request: Any, stream_id: int) -> Any:
        events, state = self._events, self._h2_state

        def flows() -> bool:
            return stream_id in events and state.local_flow_control_window(stream_id) > 0

        with self._stallwatch.waiting(request, flows, lambda: stream_id not in events):
            return super()._wait_for_outgoing_flow(request, stream_id)  # type: ignore[misc]

    def _read_incoming_data(self: Any, request: Any) -> Any:
        timeout = request.extensions.get("timeout", {}).get("read")
        if self._read_exception is None and not self._stallwatch.read_ahead(self, timeout):
            return []
        return super()._read_incoming_data(request)  # type: ignore[misc]

    def _response_closed(self: Any, stream_id: int) -> None:
        turns = self._stallwatch
        request, run, wanted = turns.streams.close(self, stream_id)
        sent = not wanted or self._flush(request)
        super()._response_closed(stream_id)  # type: ignore[misc]
        turns.call_closed()
        with turns.counting:
            last = turns.streams.settle(self, run, sent=sent)
            if last and not self.is_closed():
                self.close()

    def _flush(self: Any, request: Any) -> bool:
        """Send what is queued, unless that would block; it then goes with the next that is sent."""
        if not is_writable(self._network_stream):
            return False
        try:
            self._write_outgoing_data(request)
        except Exception:
            return False
        return True

    def stallwatch_reset(self: Any, run: InFlight) -> None:
        """Reset the stream of a run that reads no more, from another thread; its owner closes it later."""
        found = self._stallwatch.streams.stream_of(run)
        if found is not None and self._stallwatch.streams.reset(self, found[0]):
            self._flush(found[1])
