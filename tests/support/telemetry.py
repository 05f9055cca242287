"""Telemetry captured in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import stallwatch

__all__ = ["Captured", "instrumented"]


class Captured:
    """The spans and metrics of one test."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader], shutdown_on_exit=False)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The ended spans, in the order of their ends."""
        return list(self._spans.get_finished_spans())

    def forget(self) -> None:
        """Forget the spans so far."""
        self._spans.clear()

    @property
    def span(self) -> ReadableSpan:
        """The one ended span."""
        (span,) = self.spans
        return span

    def events(self, *names: str) -> list[Any]:
        """The events of all spans, but for the attempts, which every call has; or those with these names."""
        events = [event for span in self.spans for event in span.events]
        wanted = [f"stallwatch.{name}" for name in names]
        return [
            each for each in events if (each.name in wanted if names else each.name != "stallwatch.attempt")
        ]

    def attributes(self) -> dict[str, Any]:
        """The attributes of the one span."""
        return dict(self.span.attributes or {})

    def metrics(self) -> dict[str, list[Any]]:
        """Data points by metric name, as collected now."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def total(self, name: str, **attributes: Any) -> float:
        """The sum of a metric's points (counter value or histogram count) with these attributes (dots as ``__``)."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return sum(
            getattr(point, "count", None) if hasattr(point, "count") else point.value
            for point in self.metrics().get(name, [])
            if wanted.items() <= dict(point.attributes).items()
        )


@contextmanager
def instrumented(**settings: Any) -> Iterator[Captured]:
    """Instrument the SDK with captured telemetry and the given settings for the length of the block."""
    captured = Captured()
    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(
        tracer_provider=captured.tracer_provider,
        meter_provider=captured.meter_provider,
        skip_dep_check=True,
        **settings,
    )
    try:
        yield captured
    finally:
        instrumentor.uninstrument()
