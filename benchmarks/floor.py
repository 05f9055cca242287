"""Measures what OpenTelemetry's SDK takes by itself, with nothing of ours: ``python -m benchmarks.floor``.

No instrumentor that records what ours does can be below that. ``docs/performance.md`` quotes it.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from importlib.metadata import version

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
    "server.address": "api.openai.com",
}


def record(rounds: int = 7, times: int = 20_000) -> float:
    """Return the µs of CPU of one ``Histogram.record`` with four attributes, in a tight loop: the median round."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    histogram = provider.get_meter("floor").create_histogram("floor")
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(times):
            histogram.record(0.01, ATTRIBUTES)
        spent.append((time.process_time() - began) / times * 1e6)
    provider.shutdown()
    return statistics.median(spent)


def open_span(spans: int = 1_000) -> float:
    """Return the bytes that ``tracemalloc`` sees for an open span without attributes."""
    provider = TracerProvider()
    tracer = provider.get_tracer("floor")
    warm = tracer.start_span("chat gpt-4o")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        held = [tracer.start_span("chat gpt-4o") for _ in range(spans)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for span in (warm, *held):
        span.end()
    provider.shutdown()
    return (after - before) / spans


def main() -> int:
    """Print both."""
    print(f"opentelemetry-sdk {version('opentelemetry-sdk')}")
    print(f"a recorded value: {record():.1f} µs")
    print(f"an open span: {open_span():.0f} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
