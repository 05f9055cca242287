"""Counts the series that one process makes of one model: ``python -m benchmarks.cardinality``.

Calls of several kinds are made against the fault gateway, and what a real metric reader then has is counted as
Prometheus stores it: a histogram is a series for every bucket, ``+Inf`` included, and two for count and sum. Counts do
not depend on the machine; ``docs/scale.md`` quotes them and a test compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import openai
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, InMemoryMetricReader, MetricsData
from opentelemetry.sdk.trace import TracerProvider

import stallwatch
from stallwatch.testing import FaultGateway

MESSAGES: Any = [{"role": "user", "content": "Tell me a story."}]
MODEL = "gpt-4o"
Calls = Callable[[openai.OpenAI, FaultGateway], None]


def healthy(client: openai.OpenAI, gateway: FaultGateway) -> None:
    """Make one streamed call that goes well."""
    gateway.script(MODEL, "healthy")
    _stream(client)


def everyday(client: openai.OpenAI, gateway: FaultGateway) -> None:
    """Make calls as most systems see them: plain ones too, retries that help and that do not, stalls, early ends."""
    healthy(client, gateway)
    client.chat.completions.create(model=MODEL, messages=MESSAGES)
    for attempts in (
        ("error-status:code=503,retry_after_ms=1", "healthy"),
        ("error-status:code=429,retry_after_ms=1", "healthy"),
        ("error-status:code=500,retry_after_ms=1",),
        ("silent", "healthy"),
        ("stall-after:tokens=2",),
        ("cut",),
        ("error-status:code=400",),
    ):
        gateway.reset_ledger()
        gateway.script(MODEL, *attempts)
        _stream(client)
    gateway.script(MODEL, "healthy:tokens=50")
    with client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True) as chunks:
        next(iter(chunks))


def routed(client: openai.OpenAI, gateway: FaultGateway) -> None:
    """Make the same calls, and one by a router, which presets the counters of fallbacks and hedges."""
    everyday(client, gateway)
    gateway.script(MODEL, "healthy")
    route = stallwatch.Route(client=client, model=MODEL)
    for _ in stallwatch.Router([route]).chat.completions.create(messages=MESSAGES, stream=True):
        pass


KINDS: dict[str, Calls] = {"healthy": healthy, "everyday": everyday, "routed": routed}


def measured(calls: Calls) -> MetricsData:
    """Make the calls in a governed process and return what a reader has then."""
    with _reading() as (reader, gateway), openai.OpenAI(base_url=gateway.base_url, api_key="none") as client:
        calls(client, gateway)
        return _data(reader)


def many_models(count: int) -> MetricsData:
    """Make a healthy call of each of so many models and return what a reader has then."""
    with _reading() as (reader, gateway), openai.OpenAI(base_url=gateway.base_url, api_key="none") as client:
        for number in range(count):
            gateway.script(f"model-{number}", "healthy:tokens=1,gap=0")
            for _ in client.chat.completions.create(model=f"model-{number}", messages=MESSAGES, stream=True):
                pass
        return _data(reader)


def series(data: MetricsData) -> dict[str, int]:
    """Return how many series each instrument is in Prometheus."""
    found: dict[str, int] = {}
    for metric in _metrics(data):
        points = metric.data.data_points
        if isinstance(metric.data, Histogram):
            found[metric.name] = sum(len(point.bucket_counts) + 2 for point in points)
        else:
            found[metric.name] = len(points)
    return found


def points(data: MetricsData) -> dict[str, int]:
    """Return how many sets of attributes each instrument has, which is what OpenTelemetry limits."""
    return {metric.name: len(metric.data.data_points) for metric in _metrics(data)}


def size(data: MetricsData) -> int:
    """Return how many bytes one export of it takes as OTLP protobuf."""
    return int(encode_metrics(data).ByteSize())


def main(argv: Sequence[str] | None = None) -> int:
    """Print the series of each kind of traffic, by instrument."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cardinality", description=__doc__)
    parser.add_argument(
        "--models", type=int, metavar="N", help="count for N models with healthy calls instead"
    )
    options = parser.parse_args(argv)
    if options.models is not None:
        data = many_models(options.models)
        most = max(points(data).items(), key=lambda one: one[1])
        print(f"{options.models} models: {sum(series(data).values())} series, {size(data)} bytes an export")
        print(f"most sets of attributes: {most[0]}, {most[1]}")
        return 0
    found = {kind: measured(calls) for kind, calls in KINDS.items()}
    counted = {kind: series(data) for kind, data in found.items()}
    for name in counted["routed"]:
        print(f"{name:45}", *(f"{counted[kind].get(name, 0):9}" for kind in KINDS))
    print(f"{'series':45}", *(f"{sum(counted[kind].values()):9}" for kind in KINDS))
    print(f"{'bytes of an export':45}", *(f"{size(found[kind]):9}" for kind in KINDS))
    return 0


@contextmanager
def _reading() -> Iterator[tuple[InMemoryMetricReader, FaultGateway]]:
    reader = InMemoryMetricReader()
    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(
        meter_provider=MeterProvider([reader]), tracer_provider=TracerProvider(), first_token=0.3, idle=0.3
    )
    try:
        with FaultGateway() as gateway:
            yield reader, gateway
    finally:
        instrumentor.uninstrument()


def _stream(client: openai.OpenAI) -> None:
    try:
        chunks = client.chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        for _ in chunks:
            pass
    except Exception:
        # What it is does not matter here; old releases of the SDK let the HTTP library's own errors pass.
        pass


def _data(reader: InMemoryMetricReader) -> MetricsData:
    data = reader.get_metrics_data()
    assert data is not None
    return data


def _metrics(data: MetricsData) -> Iterator[Any]:
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


if __name__ == "__main__":
    sys.exit(main())
