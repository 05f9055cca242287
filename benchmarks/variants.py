"""What is compared: the bare SDK, stallwatch in each of its settings, and other instrumentors of the SDK.

A variant prepares its process once and says what it was. Peers stand in environments of their own, with the versions
in ``requirements/peers``; none of them can be imported beside the others, and nothing of ours is imported there. Each
gets what the OpenTelemetry SDK is for ours, too: one metric reader, and a batch processor whose spans go nowhere.
No variant records prompts or answers, as far as it can be told not to.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Prepare = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One thing that is measured; ``environment`` names the peer's own, None is the one we run in."""

    name: str
    what: str
    prepare: Prepare
    environment: str | None = None
    against: str = "bare"
    """The bare SDK that it is compared with: its own where the environment has another release."""


def _bare() -> None:
    pass


_spans: Counter[str] = Counter()
_flushes: list[Callable[[], object]] = []


def exported() -> int:
    """Return how many spans this process has exported: who exports none was not measured but switched off."""
    for flush in _flushes:
        flush()
    return _spans["exported"]


def _processor() -> Any:
    """Return the SDK's batch processor with an exporter that counts spans and forgets them."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(_nowhere())


def _nowhere() -> Any:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            _spans["exported"] += len(spans)
            return SpanExportResult.SUCCESS

    return Nowhere()


def _providers(sampled: bool = True) -> dict[str, Any]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

    tracers = TracerProvider(sampler=ALWAYS_ON if sampled else ALWAYS_OFF)
    tracers.add_span_processor(_processor())
    _flushes.append(tracers.force_flush)
    return {"tracer_provider": tracers, "meter_provider": MeterProvider([InMemoryMetricReader()])}


def _ours(sampled: bool = True, **settings: Any) -> None:
    import stallwatch

    stallwatch.OpenAIInstrumentor().instrument(**_providers(sampled), **settings)


def _ours_without_sdk() -> None:
    import stallwatch

    stallwatch.OpenAIInstrumentor().instrument()


def _genai() -> None:
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument(**_providers())


def _openai_v2() -> None:
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

    OpenAIInstrumentor().instrument(**_providers())


def _openllmetry() -> None:
    os.environ["TRACELOOP_TRACE_CONTENT"] = "false"
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument(**_providers())


def _openinference() -> None:
    from openinference.instrumentation import TraceConfig
    from openinference.instrumentation.openai import OpenAIInstrumentor

    config = TraceConfig(hide_inputs=True, hide_outputs=True)
    OpenAIInstrumentor().instrument(tracer_provider=_providers()["tracer_provider"], config=config)


def _logfire() -> None:
    os.environ["OTEL_TRACES_EXPORTER"] = os.environ["OTEL_METRICS_EXPORTER"] = "none"
    import logfire

    logfire.configure(
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        additional_span_processors=[_processor()],
    )
    _flushes.append(logfire.force_flush)
    logfire.instrument_openai()


def _langfuse() -> None:
    from langfuse import Langfuse

    client = Langfuse(
        public_key="pk-none", secret_key="sk-none", base_url="http://127.0.0.1:9", span_exporter=_nowhere()
    )
    _flushes.append(client.flush)
    # The import itself puts the wrapper in place.
    import langfuse.openai  # noqa: F401


def _openlit() -> None:
    import openlit
    from opentelemetry import metrics, trace

    providers = _providers()
    trace.set_tracer_provider(providers["tracer_provider"])
    metrics.set_meter_provider(providers["meter_provider"])
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as prices:
        # Without one of its own it is downloaded.
        prices.write("{}")
    openlit.init(capture_message_content=False, disable_events=True, pricing_json=prices.name)


_ALL = (
    Variant(name="bare", what="the SDK alone", prepare=_bare),
    Variant(name="bare again", what="the same once more: what differs is the noise", prepare=_bare),
    Variant(name="all", what="stallwatch, every gap recorded (the default)", prepare=_ours),
    Variant(name="summary", what="stallwatch, gaps=summary", prepare=lambda: _ours(gaps="summary")),
    Variant(name="off", what="stallwatch, gaps=off", prepare=lambda: _ours(gaps="off")),
    Variant(name="observe", what="stallwatch, mode=observe", prepare=lambda: _ours(mode="observe")),
    Variant(name="not sampled", what="stallwatch, no span sampled", prepare=lambda: _ours(sampled=False)),
    Variant(name="no sdk", what="stallwatch without an OpenTelemetry SDK", prepare=_ours_without_sdk),
    Variant(name="genai-openai", what="official instrumentor", prepare=_genai, environment="genai-openai"),
    Variant(name="openai-v2", what="its predecessor", prepare=_openai_v2, environment="openai-v2"),
    Variant(name="openllmetry", what="OpenLLMetry", prepare=_openllmetry, environment="openllmetry"),
    Variant(name="openinference", what="OpenInference", prepare=_openinference, environment="openinference"),
    Variant(name="logfire", what="Logfire", prepare=_logfire, environment="logfire"),
    Variant(name="langfuse", what="Langfuse", prepare=_langfuse, environment="langfuse"),
    Variant(name="bare 2.x", what="the SDK that OpenLIT can use", prepare=_bare, environment="openlit"),
    Variant(name="openlit", what="OpenLIT", prepare=_openlit, environment="openlit", against="bare 2.x"),
)

VARIANTS = {variant.name: variant for variant in _ALL}
OURS = ("all", "summary", "off", "observe", "not sampled", "no sdk")
PEERS = tuple(
    variant.name for variant in _ALL if variant.environment is not None and variant.prepare is not _bare
)
