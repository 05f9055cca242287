"""What one demonstration recorded: plain data, from which the table, the page and the JSON are made.

Times are seconds since the program sent its request; ``started`` is the Unix time of that moment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from stallwatch.catalogue import Attr
from stallwatch.cli.demo.scenes import Scene

__all__ = [
    "Demonstration",
    "End",
    "EventRecord",
    "Exchange",
    "Failure",
    "Got",
    "Pause",
    "RunRecord",
    "SceneRecord",
    "Sent",
    "Series",
    "SpanRecord",
]


class End(StrEnum):
    """How the plain program's call ended, as the program saw it."""

    COMPLETED = "completed"
    TIMEOUT = "timeout"
    ERROR = "error"
    STILL_WAITING = "still waiting"
    """The demo ended the program, because nothing else would have."""
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """A chunk as the program got it."""

    at: float
    text: str
    finish: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A time in which the program did not read."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A piece the server sent; ``kind`` is a word of the gateway's ledger."""

    at: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and the answer to it, as the server saw them; a call has one for each attempt."""

    at: float
    model: str
    sent: tuple[Sent, ...] = ()
    closed_at: float | None = None
    closed_how: str | None = None
    """Who closed: ``fin`` and ``rst`` are the client's doing, ``server`` is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The exception the program caught."""

    type: str
    message: str
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An event on the span."""

    name: str
    at: float
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def get(self, name: str) -> Any:
        """Return an attribute, or None."""
        return self.attributes.get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """The span of the call, as the sink received it."""

    name: str
    status: str
    began: float
    duration: float
    attributes: Mapping[str, Any]
    events: tuple[EventRecord, ...] = ()

    def get(self, name: str) -> Any:
        """Return an attribute, or None."""
        return self.attributes.get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of the plain program, bare or guarded."""

    guarded: bool
    started: float
    end: End
    ended_at: float
    got: tuple[Got, ...] = ()
    pauses: tuple[Pause, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    failure: Failure | None = None
    span: SpanRecord | None = None
    spans: int = 0
    """Spans received for this run; more or fewer than one is a finding."""
    stderr: str = ""

    @property
    def text(self) -> str:
        """The answer as far as it came."""
        return "".join(got.text for got in self.got)

    @property
    def last_exchange(self) -> Exchange | None:
        """The exchange that gave the answer, or the error."""
        return self.exchanges[-1] if self.exchanges else None

    def waits(self) -> tuple[tuple[float, float], ...]:
        """Return when the program waited for progress: from and to, one pair per wait. Empty chunks end no wait."""
        progress = [(got.at, got.at) for got in self.got if got.text or got.finish]
        resumed = sorted(progress + [(pause.at, pause.at + pause.seconds) for pause in self.pauses])
        waits: list[tuple[float, float]] = []
        since = 0.0
        for stopped, began in [*resumed, (self.ended_at, self.ended_at)]:
            if stopped > since:
                waits.append((since, stopped))
            since = max(since, began)
        return tuple(waits)

    def last_progress(self) -> float:
        """Return when text last came, or 0 if none did."""
        return max((got.at for got in self.got if got.text or got.finish), default=0.0)

    # What the table shows: from the span where there is one, else from what the program printed.

    def first_token(self) -> float | None:
        if self.span is not None:
            return _seconds(self.span.get(Attr.TIME_TO_FIRST_TOKEN))
        return next((got.at for got in self.got if got.text), None)

    def longest_gap(self) -> float | None:
        if self.span is not None:
            return _seconds(self.span.get(Attr.GAP_MAX))
        return max((end - begin for begin, end in self.waits()), default=None)

    def chunks(self) -> int:
        told = None if self.span is None else self.span.get(Attr.CHUNKS)
        return len(self.got) if told is None else int(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneRecord:
    """A scene with both its runs, and what the guarded one did that it should not have (nothing, if all is well)."""

    scene: Scene
    bare: RunRecord
    guarded: RunRecord
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A metric series, added up over the guarded programs."""

    name: str
    unit: str
    attributes: Mapping[str, Any]
    value: float
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """All scenes, and the setting they ran in."""

    scenes: tuple[SceneRecord, ...]
    versions: Mapping[str, str]
    seconds: float
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    metrics: tuple[Series, ...] = ()
    collector: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def dead(self) -> tuple[SceneRecord, ...]:
        """The scenes in which the guarded call must end with an error."""
        return tuple(record for record in self.scenes if record.scene.must_be_cut)

    @property
    def recovered(self) -> tuple[SceneRecord, ...]:
        """The scenes in which a further attempt must save the guarded call."""
        return tuple(record for record in self.scenes if record.scene.must_recover)

    @property
    def healthy(self) -> tuple[SceneRecord, ...]:
        """The scenes in which the guard must leave the call alone."""
        return tuple(record for record in self.scenes if record.scene.is_healthy)

    @property
    def ok(self) -> bool:
        """Whether every guarded run did what it should."""
        return not any(record.differences for record in self.scenes)

    def to_json(self) -> str:
        """Return everything as one JSON object with the same field names, and ``ok``."""
        return json.dumps({"ok": self.ok, **asdict(self)}, indent=2, default=str)


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)
