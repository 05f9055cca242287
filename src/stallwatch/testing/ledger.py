"""The ledger: what the gateway received, what it sent and when, and how each client's connection went away.

Frozen data, a snapshot of one moment. Times are seconds on the gateway process's ``time.monotonic()``;
``epoch`` is what to add to get Unix time, so that another process can align them. The writing side is
`stallwatch.testing.journal`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

ClosedHow = Literal["fin", "rst", "server"]


class SentKind(StrEnum):
    """What one sent piece was."""

    HEADERS = "headers"
    ROLE = "role"
    ITEM = "item"
    TOKEN = "token"
    REASONING = "reasoning"
    TOOL = "tool"
    COMMENT = "comment"
    HEARTBEAT = "heartbeat"
    FINISH = "finish"
    USAGE = "usage"
    DONE = "done"
    ERROR = "error"
    RAW = "raw"
    BODY = "body"
    END = "end"


class Sent(NamedTuple):
    """One piece handed to the network; ``bytes`` leaves out the framing of HTTP chunks."""

    at: float
    kind: SentKind
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request and the answer to it.

    ``attempt`` counts from 0 per model name. ``sent`` holds the newest pieces; ``sent_dropped`` older ones
    were let go, while ``counts``, ``sent_bytes`` and the times beside them stay exact. ``completed_at`` is
    set once the whole answer is sent. ``peer_closed_at`` and ``closed_how`` tell how the connection went away
    if this was its last request: by the client ("fin", "rst") or by the gateway ("server"). A client that
    closes with bytes unread, or while more arrive, resets the connection, so take "fin" and "rst" alike.
    """

    number: int
    connection: int
    method: str
    path: str
    query_names: tuple[str, ...]
    api: str
    model: str | None
    scenario: str | None
    stream: bool
    attempt: int
    retry_count: int | None
    received_at: float
    headers: Mapping[str, str]
    body_bytes: int
    request_id: str
    status: int | None
    sent: tuple[Sent, ...]
    sent_dropped: int
    counts: Mapping[str, int]
    sent_bytes: int
    headers_sent_at: float | None
    last_sent_at: float | None
    completed_at: float | None
    peer_closed_at: float | None
    closed_how: ClosedHow | None

    def count(self, kind: str) -> int:
        """Count the pieces of this kind ever sent."""
        return self.counts.get(kind, 0)

    def first(self, kind: str) -> float | None:
        """Tell when the first kept piece of this kind was sent."""
        return next((sent.at for sent in self.sent if sent.kind == kind), None)

    def last(self, kind: str) -> float | None:
        """Tell when the last piece of this kind was sent."""
        return next((sent.at for sent in reversed(self.sent) if sent.kind == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRecord:
    """One client connection, from accept to close."""

    number: int
    peer: str
    opened_at: float
    requests: tuple[int, ...]
    closed_at: float | None
    closed_how: ClosedHow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A snapshot of all kept requests and connections, oldest first."""

    epoch: float
    taken_at: float
    requests: tuple[RequestRecord, ...]
    connections: tuple[ConnectionRecord, ...]
    requests_dropped: int
    connections_dropped: int

    def for_model(self, model: str) -> tuple[RequestRecord, ...]:
        """Return the requests that asked for exactly this model name."""
        return tuple(request for request in self.requests if request.model == model)

    @property
    def open_connections(self) -> int:
        """The number of kept connections that are still open."""
        return sum(connection.closed_at is None for connection in self.connections)

    def to_json(self) -> str:
        """Return the ledger as a JSON object with the same field names."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        lines = [f"ledger: {len(self.requests)} requests, {len(self.connections)} connections"]
        lines += [_request_line(request, self.taken_at) for request in self.requests]
        lines += [_connection_line(connection, self.taken_at) for connection in self.connections]
        return "\n".join(lines)


def _ago(at: float | None, now: float) -> str:
    return "never" if at is None else f"{now - at:.3f} s ago"


def _request_line(request: RequestRecord, now: float) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in request.counts.items()) or "nothing"
    return (
        f"  request {request.number} (connection {request.connection}): {request.method} {request.path} "
        f"model={request.model!r} attempt={request.attempt} status={request.status}, "
        f"received {_ago(request.received_at, now)}, sent {counts}, last byte {_ago(request.last_sent_at, now)}, "
        f"completed {_ago(request.completed_at, now)}, closed {_ago(request.peer_closed_at, now)}"
        f" ({request.closed_how})"
    )


def _connection_line(connection: ConnectionRecord, now: float) -> str:
    return (
        f"  connection {connection.number} from {connection.peer}: opened {_ago(connection.opened_at, now)}, "
        f"requests {list(connection.requests)}, closed {_ago(connection.closed_at, now)} ({connection.closed_how})"
    )
