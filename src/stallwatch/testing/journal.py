"""The writing side of the ledger: bounded, safe to read from any thread, and possible to wait on.

Only the gateway's loop thread writes. Readers take a frozen snapshot under the lock; the parts that have not
changed since the last snapshot are reused, so that waiting on a busy ledger stays cheap. A waiter judges its
condition outside the lock, on a snapshot, so a slow condition never holds up the server.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from stallwatch.testing.entries import ConnectionEntry, RequestEntry
from stallwatch.testing.ledger import ClosedHow, Ledger, Sent, SentKind

KEEP_REQUESTS = 1_000
KEEP_SENT = 1_000


class Journal:
    """Records what happens on the gateway; the condition is notified on every change."""

    def __init__(
        self,
        *,
        keep_requests: int = KEEP_REQUESTS,
        keep_sent: int = KEEP_SENT,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.epoch = time.time() - time.monotonic()
        self._keep_sent = keep_sent
        self._log = log
        self._condition = threading.Condition()
        self._version = 0
        self._listeners: list[Callable[[], None]] = []
        self._requests: deque[RequestEntry] = deque(maxlen=keep_requests)
        self._connections: deque[ConnectionEntry] = deque(maxlen=keep_requests)
        self._request_total = 0
        self._connection_total = 0
        self._open = 0
        self._requests_dropped = 0
        self._connections_dropped = 0
        self._attempts: Counter[str] = Counter()

    # --- writing, from the loop thread ---

    def _changed(self) -> None:
        self._version += 1
        self._condition.notify_all()
        for listener in self._listeners:
            listener()

    def connection_opened(self, peer: str) -> ConnectionEntry:
        with self._condition:
            self._connection_total += 1
            entry = ConnectionEntry(number=self._connection_total, peer=peer, opened_at=time.monotonic())
            self._keep_connection(entry)
            self._changed()
        return entry

    def _keep_connection(self, entry: ConnectionEntry) -> None:
        self._connections_dropped += len(self._connections) == self._connections.maxlen
        self._connections.append(entry)
        self._open += entry.closed_at is None

    def hide(self, connection: ConnectionEntry) -> None:
        """Leave a connection that only reads the ledger out of the ledger."""
        with self._condition:
            if not connection.hidden and not connection.requests:
                connection.hidden = True
                if connection in self._connections:
                    self._connections.remove(connection)
                self._open -= connection.closed_at is None
                self._changed()

    def next_attempt(self, model: str) -> int:
        with self._condition:
            self._attempts[model] += 1
            return self._attempts[model] - 1

    def request_received(
        self, connection: ConnectionEntry, make: Callable[[int, deque[Sent]], RequestEntry]
    ) -> RequestEntry:
        with self._condition:
            self._request_total += 1
            entry = make(self._request_total, deque(maxlen=self._keep_sent))
            self._requests_dropped += len(self._requests) == self._requests.maxlen
            self._requests.append(entry)
            connection.requests.append(entry.number)
            connection.last_request = entry
            if connection.hidden:
                connection.hidden = False
                self._keep_connection(connection)
            self._changed()
        if self._log is not None:
            asked = f"{entry.method} {entry.path} model={entry.model}"
            self._log(f"request {entry.number}: {asked} attempt={entry.attempt}")
        return entry

    def sent(self, entry: RequestEntry, kind: SentKind, size: int, *, status: int | None = None) -> None:
        now = time.monotonic()
        with self._condition:
            entry.frozen = None
            entry.sent.append(Sent(now, kind, size))
            entry.sent_total += 1
            entry.counts[kind] += 1
            entry.sent_bytes += size
            entry.last_sent_at = now
            if status is not None:
                entry.status = status
                entry.headers_sent_at = now
            self._changed()

    def completed(self, entry: RequestEntry) -> None:
        with self._condition:
            if entry.completed_at is None:
                entry.frozen = None
                entry.completed_at = time.monotonic()
                self._changed()

    def connection_closed(self, connection: ConnectionEntry, how: ClosedHow) -> None:
        """Record the end of a connection; only the first report counts."""
        with self._condition:
            if connection.closed_at is not None:
                return
            now = time.monotonic()
            connection.closed_at = now
            connection.closed_how = how
            self._open -= not connection.hidden
            request = connection.last_request
            if request is not None:
                request.frozen = None
                request.peer_closed_at = now
                request.closed_how = how
            self._changed()
        if self._log is not None and not connection.hidden:
            self._log(_closing_line(connection, request))

    # --- reading, from any thread ---

    @property
    def open_connections(self) -> int:
        return self._open

    def snapshot(self) -> Ledger:
        with self._condition:
            return self._snapshot()

    def _snapshot(self) -> Ledger:
        return Ledger(
            epoch=self.epoch,
            taken_at=time.monotonic(),
            requests=tuple(entry.freeze() for entry in self._requests),
            connections=tuple(entry.freeze() for entry in self._connections),
            requests_dropped=self._requests_dropped,
            connections_dropped=self._connections_dropped,
        )

    def reset(self) -> None:
        """Forget all requests and closed connections, and count attempts from 0 again."""
        with self._condition:
            still_open = [entry for entry in self._connections if entry.closed_at is None]
            for entry in still_open:
                entry.requests.clear()
            self._requests.clear()
            self._connections.clear()
            self._connections.extend(still_open)
            self._requests_dropped = 0
            self._connections_dropped = 0
            self._attempts.clear()
            self._changed()

    def wait_for(self, condition: Callable[[Ledger], object], timeout: float) -> Ledger:
        deadline = time.monotonic() + timeout
        while True:
            with self._condition:
                version, ledger = self._version, self._snapshot()
            if _holds(condition, ledger):
                return ledger
            with self._condition:
                while self._version == version:
                    if not self._condition.wait(deadline - time.monotonic()):
                        raise AssertionError(_timed_out(timeout, ledger))

    async def wait_for_async(self, condition: Callable[[Ledger], object], timeout: float) -> Ledger:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        armed = True

        def listener() -> None:
            nonlocal armed
            if armed:
                armed = False
                loop.call_soon_threadsafe(changed.set)

        with self._condition:
            self._listeners.append(listener)
        try:
            deadline = loop.time() + timeout
            while True:
                changed.clear()
                armed = True
                ledger = self.snapshot()
                if _holds(condition, ledger):
                    return ledger
                try:
                    async with asyncio.timeout(deadline - loop.time()):
                        await changed.wait()
                except TimeoutError:
                    raise AssertionError(_timed_out(timeout, ledger)) from None
        finally:
            with self._condition:
                self._listeners.remove(listener)


def _holds(condition: Callable[[Ledger], object], ledger: Ledger) -> bool:
    try:
        return bool(condition(ledger))
    except LookupError:
        return False


def _timed_out(timeout: float, ledger: Ledger) -> str:
    return f"the condition did not come true within {timeout:g} s\n{ledger}"


def _closing_line(connection: ConnectionEntry, request: RequestEntry | None) -> str:
    by = {"fin": "by the client (FIN)", "rst": "by the client (RST)", "server": "by the gateway"}[
        connection.closed_how or "server"
    ]
    if request is None:
        return f"connection {connection.number} closed {by}, no request"
    state = "answer complete" if request.completed_at is not None else "answer not complete"
    last = f"last request {request.number}, {request.sent_total} pieces sent, {state}"
    return f"connection {connection.number} closed {by}, {last}"
