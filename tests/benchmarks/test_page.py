"""What the page on costs says in words is what was kept, counted or set."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import pytest
from benchmarks.feed import MESSAGES, MODEL, Feed
from benchmarks.variants import PEERS
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks import tables, targets
from stallwatch import OpenAIInstrumentor
from support.markdown import ROOT, prose

PAGE = " ".join(prose(ROOT / "docs" / "performance.md").split())
KEPT = tables.kept()
assert KEPT is not None
FIGURES = KEPT["figures"]


def test_the_machine_is_compared_with_the_one_of_the_targets() -> None:
    bare, then = FIGURES["sync"]["chunk"]["bare"]["is"][0], targets.THEN["chunk"]
    assert f"about {bare / then:.1f} times as slow as the one the targets were set on" in PAGE
    assert f"its bare chunk takes {bare:.0f} µs, there it took {then:.0f}" in PAGE


def test_the_steps_of_a_chunk_are_those_that_are_counted() -> None:
    bars = json.loads((tables.FIGURES.parent / "counts.json").read_text(encoding="utf-8"))["bars"]
    assert f"steps of bytecode to {bars['all']['sync chunk steps']:.0f} (sync)" in PAGE


def test_the_last_of_a_crowd_waits_as_much_longer_as_is_said() -> None:
    assert "the last of them waits two to three times as long" in PAGE
    for crowd in ("1000 expire", "2000 expire", "5000 expire"):
        p99 = {name: FIGURES[crowd]["p99"][name]["is"][0] for name in ("bare", "all")}
        assert 2 <= p99["all"] / p99["bare"] <= 3


def test_the_changelog_counts_the_other_instrumentors() -> None:
    assert {7: "seven"}[len(PEERS)] + " other instrumentors" in prose(ROOT / "CHANGELOG.md")


@pytest.mark.skipif(
    not version("opentelemetry-sdk").startswith("1.45."), reason="the page tells of OpenTelemetry 1.45"
)
def test_a_plain_call_has_as_many_values_copied_as_is_said() -> None:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    OpenAIInstrumentor().instrument(tracer_provider=tracers, meter_provider=meters)
    try:
        with Feed().client() as client:
            client.chat.completions.create(model=MODEL, messages=MESSAGES)
    finally:
        OpenAIInstrumentor().uninstrument()
    (span,) = spans.get_finished_spans()
    (event,) = span.events
    recorded = _recorded(reader)
    assert len(recorded) == 4
    values = len(span.attributes or {}) + len(event.attributes or {}) + sum(map(len, recorded))
    assert f"A plain call** has OpenTelemetry check and copy {values} values of attributes" in PAGE


def _recorded(reader: InMemoryMetricReader) -> list[Any]:
    """The attributes of each record of a call; counters are preset, and a call that went well adds to none."""
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, HistogramDataPoint)
    ]
    assert {point.count for point in points} == {1}
    return [point.attributes for point in points]
