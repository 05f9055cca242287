"""One record for each run, from three witnesses: what the program said, what the server saw, what the sink received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stallwatch.catalogue import SCOPE
from stallwatch.cli.demo.child import Told
from stallwatch.cli.demo.child_env import RUN_ATTRIBUTE
from stallwatch.cli.demo.record import (
    End,
    EventRecord,
    Exchange,
    Got,
    Pause,
    RunRecord,
    Sent,
    Series,
    SpanRecord,
)
from stallwatch.cli.demo.scenes import Scene
from stallwatch.cli.demo.sink import MetricPoint, SpanData
from stallwatch.testing.ledger import Ledger, RequestRecord

__all__ = ["added_up", "run_record"]


def run_record(
    told: Told, *, guarded: bool, scene: Scene, ledger: Ledger, spans: Sequence[SpanData]
) -> RunRecord:
    """Bring together what is known of one run."""
    start = told.ended_at if told.started is None else told.started
    requests = [request for request in ledger.requests if request.model in scene.models]
    record = RunRecord(
        guarded=guarded,
        started=start,
        end=told.end or End.CRASHED,
        ended_at=told.ended_at - start,
        got=tuple(Got(at=got.at - start, text=got.text, finish=got.finish) for got in told.got),
        pauses=tuple(Pause(at=pause.at - start, seconds=pause.seconds) for pause in told.pauses),
        exchanges=tuple(_exchange(request, ledger.epoch - start) for request in requests),
        failure=told.failure,
        stderr=told.stderr,
    )
    own = [
        span
        for span in (spans if guarded else ())
        if span.scope == SCOPE and span.resource.get(RUN_ATTRIBUTE) == scene.name
    ]
    return replace(record, spans=len(own), span=_span_record(own[-1], start) if own else None)


def _exchange(request: RequestRecord, offset: float) -> Exchange:
    closed = request.peer_closed_at
    return Exchange(
        at=request.received_at + offset,
        model=request.model or "",
        sent=tuple(Sent(at=sent.at + offset, kind=str(sent.kind)) for sent in request.sent),
        closed_at=None if closed is None else closed + offset,
        closed_how=request.closed_how,
    )


def _span_record(span: SpanData, start: float) -> SpanRecord:
    return SpanRecord(
        name=span.name,
        status=span.status,
        began=span.start - start,
        duration=span.end - span.start,
        attributes=span.attributes,
        events=tuple(
            EventRecord(name=event.name, at=event.at - start, attributes=event.attributes)
            for event in span.events
        ),
    )


def added_up(points: Sequence[MetricPoint]) -> tuple[Series, ...]:
    """Add up equal series of all programs, the model left out: here it is only the scenario's name."""
    sums: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[float, int | None]] = {}
    for point in points:
        if point.scope != SCOPE:
            continue
        attributes = {
            name: str(value) for name, value in point.attributes.items() if name != "gen_ai.request.model"
        }
        key = (point.name, point.unit, tuple(sorted(attributes.items())))
        value, count = sums.get(key, (0.0, None))
        total = None if point.count is None else point.count + (count or 0)
        sums[key] = (value + point.value, total)
    return tuple(
        Series(name=name, unit=unit, attributes=dict(attributes), value=value, count=count)
        for (name, unit, attributes), (value, count) in sorted(sums.items())
    )
