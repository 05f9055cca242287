"""Measures what a call's span weighs as OTLP protobuf: ``python -m benchmarks.span_sizes``.

Real calls against the fault gateway, real spans, and the OTLP exporter's own encoder. What a span adds to a batch is
what counts; resource and scope are sent once a batch. ``docs/scale.md`` quotes the sizes; they differ by some bytes
with the lengths of names and ids.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import openai
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import stallwatch
from stallwatch.testing import FaultGateway

MODEL, OTHER = "gpt-4o", "gpt-4o-mini"
RESOURCE = Resource.create(
    {"service.name": "chat-api", "service.namespace": "shop", "service.instance.id": "chat-api-7d9f-x2v4"}
)
CASES: dict[str, tuple[str, ...]] = {
    "healthy": ("healthy:tokens=20",),
    "retried once, answered": ("error-status:code=503,retry_after_ms=1", "healthy:tokens=20"),
    "stalled in mid-answer": ("stall-after:tokens=10",),
    "stalled before the first token, three times": ("silent",),
    "failed at once": ("error-status:code=400",),
}
"""What the gateway does, attempt by attempt."""


def measured() -> dict[str, ReadableSpan]:
    """Make one call of each kind and return its span."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(
        tracer_provider=provider, meter_provider=MeterProvider(), first_token=0.3, idle=0.3, max_retries=2
    )
    found = {}
    try:
        with FaultGateway() as gateway, openai.OpenAI(base_url=gateway.base_url, api_key="none") as client:
            for case, attempts in CASES.items():
                gateway.reset_ledger()
                gateway.script(MODEL, *attempts)
                _ask(client.chat.completions, model=MODEL)
                (found[case],) = exporter.get_finished_spans()
                exporter.clear()
            gateway.script(MODEL, "error-status:code=503")
            gateway.script(OTHER, "healthy:tokens=20")
            routes = [stallwatch.Route(client=client, model=model) for model in (MODEL, OTHER)]
            with stallwatch.policy(max_retries=0):
                _ask(stallwatch.Router(routes).chat.completions)
            (found["fallen back, answered"],) = exporter.get_finished_spans()
    finally:
        instrumentor.uninstrument()
    return found


def weight(span: ReadableSpan) -> int:
    """Return how many bytes the span adds to a batch."""
    return int(encode_spans([span, span]).ByteSize() - encode_spans([span]).ByteSize())


def envelope(span: ReadableSpan) -> int:
    """Return how many bytes the rest of a batch takes."""
    return int(encode_spans([span]).ByteSize()) - weight(span)


def main(_: Sequence[str] | None = None) -> int:
    """Print the weights."""
    spans = measured()
    for case, span in spans.items():
        print(
            f"{case:45} {weight(span):6} bytes, {len(span.attributes or ()):3} attributes, {len(span.events)} events"
        )
    print(f"{'resource and scope, once a batch':45} {envelope(spans['healthy']):6} bytes")
    return 0


def _ask(completions: Any, **options: Any) -> None:
    try:
        stream = completions.create(
            messages=[{"role": "user", "content": "Tell me a story."}],
            stream=True,
            stream_options={"include_usage": True},
            temperature=0.7,
            max_tokens=500,
            **options,
        )
        for _ in stream:
            pass
    except openai.OpenAIError:
        pass


if __name__ == "__main__":
    sys.exit(main())
