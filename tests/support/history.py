"""Days of history in seconds: what the catalogue's instruments and a collector would have written, as OpenMetrics.

The long windows of rules and dashboards need days of data, and no test waits for them. promtool makes blocks of this,
and a Prometheus started on the blocks answers at once. The counter of streams goes back beyond the longest window; the
rest, which is many series, goes back an hour and a half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from dashboards import collector
from dashboards import promql as q
from stallwatch import catalogue
from stallwatch.catalogue import Attr, Instrument, MetricSpec

__all__ = ["DAYS", "STEP", "openmetrics"]

DAYS = 4
STEP = 60
"""Seconds between two samples."""
RECENT = 5400

MODELS = (("openai", "o/3:x.1"), ("deepseek", "_OTHER"))
JOBS = (("app", "a"), ("batch", "b"))

USUAL: dict[str, tuple[str, ...]] = {
    Attr.OUTCOME: ("completed", "stalled", "failed", "cancelled"),
    Attr.STALL_PHASE: ("first_token", "idle"),
    Attr.STALL_WIRE: ("dead_wire", "heartbeat_only"),
    Attr.STALL_ACTION: ("abort",),
    Attr.PHASE: ("first_token", "thinking", "idle"),
    Attr.ATTEMPT_ROLE: ("first", "retry", "fallback"),
    Attr.RETRY_KIND: ("transport", "rate_limit"),
    Attr.RETRY_DIAGNOSIS: ("retryable",),
    Attr.RETRY_DECISION: ("retry", "fallback", "exhausted", "budget_exhausted"),
    Attr.HEDGE_RESULT: ("won", "lost", "refused"),
    Attr.TOKEN_TYPE: ("input", "output"),
    Attr.ERROR_TYPE: ("", "StreamInactivityTimeoutError"),
    Attr.OPERATION: ("chat",),
}
"""Of the closed lists what most systems see, so that the number of series stays small."""


@dataclass(frozen=True, slots=True)
class _Series:
    """A name with labels, its rate a second (a gauge's level), and whether it goes back for days."""

    text: str
    rate: float
    gauge: bool
    long: bool


def openmetrics(until: int) -> Iterator[str]:
    """Yield the lines of a file that ends at ``until``, in seconds since the epoch."""
    began = until - DAYS * 86400
    for series in _all():
        start = began if series.long else until - RECENT
        at = start
        while at <= until:
            value = series.rate * (1 if series.gauge else at - start)
            yield f"{series.text} {value:.6g} {at}\n"
            at += STEP
    yield "# EOF\n"


def _all() -> Iterator[_Series]:
    for spec in catalogue.METRICS:
        further = [name for name in spec.attributes if name not in (Attr.PROVIDER, Attr.REQUEST_MODEL)]
        for (job, instance), (provider, model), values in product(
            JOBS, MODELS, product(*(USUAL[name] for name in further))
        ):
            labels = {"job": job, "instance": instance, q.PROVIDER: provider, q.MODEL: model}
            labels |= {q.label(name): value for name, value in zip(further, values, strict=True) if value}
            yield from _instrument(spec, labels)
    yield from _pipeline()
    firing = {"alertname": "LLMStreamIdleTimeoutBurnFast", "alertstate": "firing", "severity": "page"}
    who = {"job": "app", q.PROVIDER: "openai", q.MODEL: "o/3:x.1"}
    yield _Series(_text(collector.ALERTS.name, firing | who), 1, gauge=True, long=False)


def _instrument(spec: MetricSpec, labels: dict[str, str]) -> Iterator[_Series]:
    name = q.series(spec)
    if spec.kind is not Instrument.HISTOGRAM:
        gauge = spec.kind is not Instrument.COUNTER
        rare = "stalled" in labels.values() or labels.get(q.ATTEMPT_ROLE) in (
            q.FAILED_RETRY,
            q.FAILED_FALLBACK,
        )
        rate = 5 if gauge else 0.002 if rare else 0.1
        yield _Series(_text(name, labels), rate, gauge=gauge, long=not gauge and spec is catalogue.STREAMS)
        return
    edges = [*(spec.buckets or ()), float("inf")]
    for place, edge in enumerate(edges, start=1):
        le = "+Inf" if place == len(edges) else f"{edge:g}"
        yield _Series(
            _text(f"{name}_bucket", labels | {"le": le}), 0.1 * place / len(edges), gauge=False, long=False
        )
    yield _Series(_text(f"{name}_count", labels), 0.1, gauge=False, long=False)
    yield _Series(_text(f"{name}_sum", labels), 0.3, gauge=False, long=False)


def _pipeline() -> Iterator[_Series]:
    own = {
        collector.EXPORTER: "otlp_grpc",
        collector.DATA_TYPE: "traces",
        collector.RECEIVER: "otlp",
        collector.TRANSPORT: "grpc",
        collector.DECISION: "sampled",
    }
    ours = (collector.UP, collector.ALERTS)
    for foreign in (foreign for foreign in collector.FOREIGN if foreign not in ours):
        labels = {"job": "collectors", "instance": "c1"} | {name: own[name] for name in foreign.labels}
        level = 1000 if foreign is collector.QUEUE_CAPACITY else 7
        yield _Series(_text(foreign.name, labels), level, gauge=not foreign.counter, long=False)
    for job, instance in [*JOBS, ("collectors", "c1")]:
        up = 0 if instance == "b" else 1
        yield _Series(_text("up", {"job": job, "instance": instance}), up, gauge=True, long=False)


def _text(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"
