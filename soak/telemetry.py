"""Telemetry as a service has it, and counted on its way out: what ended, what was exported, what got lost where."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

__all__ = ["Books", "Telemetry", "key"]

EXPORT_TIMEOUT = 2.0
"""Seconds: shorter than the sink is away, so that the exporter gives up and spans are lost."""


def key(model: Any, outcome: Any) -> str:
    """Name one line of the books."""
    return f"{model}: {outcome}"


def _key(span: ReadableSpan) -> str:
    attributes = span.attributes or {}
    return key(attributes.get("gen_ai.request.model"), attributes.get("stallwatch.outcome"))


class Books(SpanProcessor):
    """Counts spans as they start and end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.started = 0
        self.ended: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.stalls = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """See SpanProcessor."""
        with self._lock:
            self.started += 1

    def on_end(self, span: ReadableSpan) -> None:
        """See SpanProcessor."""
        attributes: Any = span.attributes or {}
        with self._lock:
            self.ended[_key(span)] += 1
            self.attempts[attributes.get("gen_ai.request.model")] += attributes.get("stallwatch.attempts", 0)
            self.stalls += attributes.get("stallwatch.stalls", 0)

    @property
    def open(self) -> int:
        """Spans that have started and not ended."""
        with self._lock:
            return self.started - sum(self.ended.values())


class Accounted(SpanExporter):
    """Exports, and keeps count of what was taken and what was refused."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.delivered: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter; called by one thread at a time."""
        result = self._exporter.export(spans)
        (self.delivered if result is SpanExportResult.SUCCESS else self.refused).update(map(_key, spans))
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See SpanExporter."""
        return self._exporter.force_flush(timeout_millis)


class Telemetry:
    """Providers that export to a sink."""

    def __init__(self, sink: str) -> None:
        self.books = Books()
        self.exporter = Accounted(OTLPSpanExporter(f"{sink}/v1/traces", timeout=EXPORT_TIMEOUT))
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(self.books)
        self.tracers.add_span_processor(BatchSpanProcessor(self.exporter, schedule_delay_millis=500))
        self.reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(f"{sink}/v1/metrics", timeout=EXPORT_TIMEOUT),
            export_interval_millis=2_000,
        )
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)

    def flush(self) -> None:
        """Export what waits."""
        self.tracers.force_flush(20_000)
        self.reader.force_flush(20_000)

    def shutdown(self) -> None:
        """End the exporters' threads."""
        self.tracers.shutdown()
        self.meters.shutdown()
