"""Requests and connections while they are under way: what the journal writes into."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from stallwatch.testing.ledger import ClosedHow, ConnectionRecord, RequestRecord, Sent


@dataclass(slots=True, kw_only=True, eq=False)
class RequestEntry:
    """A request while it is being answered."""

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
    sent: deque[Sent]
    status: int | None = None
    sent_total: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    sent_bytes: int = 0
    headers_sent_at: float | None = None
    last_sent_at: float | None = None
    completed_at: float | None = None
    peer_closed_at: float | None = None
    closed_how: ClosedHow | None = None
    frozen: RequestRecord | None = None

    def freeze(self) -> RequestRecord:
        if self.frozen is None:
            self.frozen = RequestRecord(
                number=self.number,
                connection=self.connection,
                method=self.method,
                path=self.path,
                query_names=self.query_names,
                api=self.api,
                model=self.model,
                scenario=self.scenario,
                stream=self.stream,
                attempt=self.attempt,
                retry_count=self.retry_count,
                received_at=self.received_at,
                headers=self.headers,
                body_bytes=self.body_bytes,
                request_id=self.request_id,
                status=self.status,
                sent=tuple(self.sent),
                sent_dropped=self.sent_total - len(self.sent),
                counts={str(kind): count for kind, count in self.counts.items()},
                sent_bytes=self.sent_bytes,
                headers_sent_at=self.headers_sent_at,
                last_sent_at=self.last_sent_at,
                completed_at=self.completed_at,
                peer_closed_at=self.peer_closed_at,
                closed_how=self.closed_how,
            )
        return self.frozen


@dataclass(slots=True, kw_only=True, eq=False)
class ConnectionEntry:
    """A connection while it is open."""

    number: int
    peer: str
    opened_at: float
    requests: list[int] = field(default_factory=list[int])
    last_request: RequestEntry | None = None
    closed_at: float | None = None
    closed_how: ClosedHow | None = None
    hidden: bool = False

    def freeze(self) -> ConnectionRecord:
        return ConnectionRecord(
            number=self.number,
            peer=self.peer,
            opened_at=self.opened_at,
            requests=tuple(self.requests),
            closed_at=self.closed_at,
            closed_how=self.closed_how,
        )
