"""Who else tells of the call that is being made.

Where another tool has a span for the same call, or will have one, no second span and none of the standard metrics may
come from here. Three kinds of evidence are looked at, when a run begins and while the other tool's code is still on
the stack, since ours is always inside of theirs:

* a key in the context, by which the official GenAI instrumentation announces itself;
* the current span: one that says of itself that it is an inference (and not an agent or a tool), whoever opened it;
* the functions that are being executed: a known tool's wrapper among them. Needed where its span is not current: it is
  sampled away, kept in a variable, or opened afterwards. Looked for only when such a tool has been imported.

What is patched is no evidence: a tool that is there may be switched off, or not be on this call's way.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import FrameType
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.trace import INVALID_SPAN, Span

from stallwatch.catalogue import SCOPE, Attr

__all__ = ["KNOWN", "Neighbour", "SpanPlace", "neighbour_of", "suppressed", "theirs"]


class SpanPlace(Enum):
    """Where a tool has its span while the SDK's request is executed."""

    CURRENT = "current"
    HELD = "held"
    """In a local variable of its wrapper."""
    AFTERWARDS = "afterwards"
    """Nowhere: it is opened when the request has returned, with an earlier time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A tool that instruments the OpenAI SDK, as its code gives it away."""

    name: str
    distribution: str
    module: str
    """The module its wrappers are defined in, or a package that holds it."""
    span: SpanPlace = SpanPlace.CURRENT
    variable: str = ""
    """The local variable that holds its span."""
    silences: bool = False
    """Whether it suppresses instrumentation below its own span."""


KNOWN = (
    Neighbour(
        name="OpenTelemetry GenAI",
        distribution="opentelemetry-instrumentation-genai-openai",
        module="opentelemetry.instrumentation.genai.openai",
    ),
    Neighbour(
        name="OpenTelemetry OpenAI v2",
        distribution="opentelemetry-instrumentation-openai-v2",
        module="opentelemetry.instrumentation.openai_v2",
    ),
    Neighbour(
        name="OpenLLMetry",
        distribution="opentelemetry-instrumentation-openai",
        module="opentelemetry.instrumentation.openai.v1.responses_wrappers",
        span=SpanPlace.AFTERWARDS,
    ),
    Neighbour(
        name="OpenLLMetry",
        distribution="opentelemetry-instrumentation-openai",
        module="opentelemetry.instrumentation.openai",
    ),
    Neighbour(
        name="OpenInference",
        distribution="openinference-instrumentation-openai",
        module="openinference.instrumentation.openai",
    ),
    Neighbour(
        name="Langfuse",
        distribution="langfuse",
        module="langfuse.openai",
        span=SpanPlace.HELD,
        variable="generation",
    ),
    Neighbour(
        name="Logfire",
        distribution="logfire-sdk",
        module="logfire._internal.integrations.llm_providers",
        silences=True,
    ),
    Neighbour(name="OpenLIT", distribution="openlit", module="openlit.instrumentation.openai"),
)
"""The more special module first, where one holds the other."""

_KEYS = (
    "opentelemetry.genai.client.inference.context",
    "opentelemetry.genai.client.embedding.context",
    "opentelemetry.genai.client.fetch_response.context",
)
"""Context keys of the official GenAI instrumentation for a call it has a span for."""

_INFERENCES = frozenset(
    {"chat", "completion", "text_completion", "embedding", "embeddings", "generate_content", "fetch_response"}
)
_MARKS: tuple[tuple[str, frozenset[str]], ...] = (
    (Attr.OPERATION, _INFERENCES),
    ("openinference.span.kind", frozenset({"LLM", "EMBEDDING"})),
    ("langfuse.observation.type", frozenset({"generation", "embedding"})),
    ("llm.request.type", _INFERENCES),
)
"""Attributes by which a span says what it is; the first that is there counts."""

_DEPTH = 48
"""Frames looked at, from the request outwards. A tool's wrapper stands a dozen away at most."""

_ROOTS = tuple(neighbour.module for neighbour in KNOWN)


@lru_cache(maxsize=1024)
def neighbour_of(module: str) -> Neighbour | None:
    """Return the tool whose code a module is."""
    return next((each for each in KNOWN if f"{module}.".startswith(f"{each.module}.")), None)


def suppressed() -> bool:
    """Tell whether somebody asks for no telemetry below, other than a tool that has its own span for this call."""
    if is_instrumentation_enabled():
        return False
    by_a_tool = any(found.silences for found, _ in _on_the_way())
    return not (by_a_tool and _is_inference(trace.get_current_span()))


def theirs() -> Span | None:
    """Return the span another tool has for this call, an invalid one if that is out of reach; None if there is none."""
    current = trace.get_current_span()
    if any(otel_context.get_value(key) is not None for key in _KEYS) or _is_inference(current):
        return current
    sampled_away = current.get_span_context().is_valid and not current.is_recording()
    for found, frame in _on_the_way():
        if found.span is SpanPlace.HELD:
            span = _held(frame, found.variable)
            if span is not None:
                return span
        elif found.span is SpanPlace.AFTERWARDS:
            return INVALID_SPAN
        elif sampled_away:
            return current
    return None


def _is_inference(span: Span) -> bool:
    scope = getattr(span, "instrumentation_scope", None)
    attributes = getattr(span, "attributes", None)
    if not attributes or not span.is_recording() or getattr(scope, "name", None) == SCOPE:
        return False
    for name, values in _MARKS:
        value = attributes.get(name)
        if value is not None:
            return value in values
    return False


def _on_the_way() -> list[tuple[Neighbour, FrameType]]:
    """Return the known tools whose code this call has come through, the nearest first."""
    modules = sys.modules
    if not any(root in modules for root in _ROOTS):
        return []
    found: list[tuple[Neighbour, FrameType]] = []
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEPTH):
        if frame is None:
            break
        neighbour = neighbour_of(frame.f_globals.get("__name__", ""))
        if neighbour is not None:
            found.append((neighbour, frame))
        frame = frame.f_back
    return found


def _held(frame: FrameType, variable: str) -> Span | None:
    """Return the span in a wrapper's variable, bare or within the tool's own object; None when tracing is off."""
    holder: Any = frame.f_locals.get(variable)
    span = getattr(holder, "_otel_span", holder)
    return span if isinstance(span, Span) and span.get_span_context().is_valid else None
