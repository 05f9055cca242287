"""The other tools, each as its users switch it on, and what is known of where its span is and when it ends.

A tool that cannot be imported here is left out. All of them tell of one capture per process, since some can be
configured once only; what a story has left is the difference.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any

import openai
import openai._base_client as base
import openai._streaming as streaming
import openai.resources.chat.completions as chat
import pytest
from openai.resources import completions, embeddings, responses
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from support.telemetry import Captured

__all__ = ["BELOW", "EACH", "HERE", "TOOLS", "Tool", "capture", "untouched"]


@cache
def capture() -> Captured:
    """The one capture of this process."""
    return Captured()


@dataclass(frozen=True)
class Tool:
    """One tool; ``name`` is its row in docs/neighbours.md."""

    name: str
    module: str
    distribution: str
    on: Callable[[Captured], object]
    off: Callable[[], object] = lambda: None
    chat_only: bool = False
    """Whether it leaves the Responses API to others."""
    early: Callable[[str, str, bool], bool] = lambda story, api, is_async: False
    """Whether its span has ended, or is not there yet, when what we know is known: by story, API and driver."""
    broken: Callable[[str, str, bool], str | None] = lambda story, api, is_async: None
    """What it does wrong by itself, so that a story cannot be told beside it."""

    def covers(self, api: str) -> bool:
        """Whether it has a span for calls of this API."""
        return not (self.chat_only and api == "responses")


def _quietly(on: Callable[[Captured], None]) -> Callable[[Captured], None]:
    """Some warn when they are imported, of what they use themselves."""

    @wraps(on)
    def quiet(captured: Captured) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            on(captured)

    return quiet


def _instrumentor(module: str) -> tuple[Callable[[Captured], object], Callable[[], object]]:
    def made() -> Any:
        return importlib.import_module(module).OpenAIInstrumentor()

    @_quietly
    def on(captured: Captured) -> None:
        made().instrument(
            tracer_provider=captured.tracer_provider,
            meter_provider=captured.meter_provider,
            skip_dep_check=True,
        )

    return on, lambda: made().uninstrument()


@_quietly
def _langfuse(captured: Captured) -> None:
    _langfuse_client(captured)
    import langfuse.openai as module

    if not hasattr(chat.Completions.create, "_self_wrapper"):
        # Importing it switches it on; it has no way to do that again, and tests take its patches away.
        module.register_tracing()
        module._openai_stream_iter_hook_installed = False
        module._install_openai_stream_iteration_hooks()


@cache
def _langfuse_client(captured: Captured) -> Any:
    from langfuse import Langfuse

    return Langfuse(
        public_key="pk-test",
        secret_key="sk-test",
        tracer_provider=captured.tracer_provider,
        span_exporter=_Nowhere(),
    )


class _Nowhere(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None: ...


@_quietly
def _logfire(captured: Captured) -> None:
    import logfire

    _logfire_once(captured)
    logfire.instrument_openai()


@cache
def _logfire_once(captured: Captured) -> None:
    import logfire

    os.environ["LOGFIRE_IGNORE_NO_CONFIG"] = "1"
    logfire.configure(
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        metrics=logfire.MetricsOptions(additional_readers=[]),
        additional_span_processors=[SimpleSpanProcessor(captured._spans)],
    )


def _leaves_open(story: str, is_async: bool) -> bool:
    """Its ``with`` closes nothing, and its close of an async stream is never awaited."""
    return story == "left" or (story == "closed" and is_async)


_GENAI = _instrumentor("opentelemetry.instrumentation.genai.openai")
_V2 = _instrumentor("opentelemetry.instrumentation.openai_v2")
_OPENLLMETRY = _instrumentor("opentelemetry.instrumentation.openai")
_OPENINFERENCE = _instrumentor("openinference.instrumentation.openai")


@dataclass(frozen=True)
class Below:
    """What instruments the HTTP library: httpx, or httpx2 where the SDK stands on that."""

    module: str = "opentelemetry.instrumentation.httpx"
    distribution: str = "opentelemetry-instrumentation-httpx"


BELOW = Below()

TOOLS = (
    Tool(
        "OpenTelemetry GenAI",
        "opentelemetry.instrumentation.genai.openai",
        "opentelemetry-instrumentation-genai-openai",
        *_GENAI,
    ),
    Tool(
        "OpenTelemetry OpenAI v2",
        "opentelemetry.instrumentation.openai_v2",
        "opentelemetry-instrumentation-openai-v2",
        *_V2,
        chat_only=True,
        # A cancel does not end its span.
        early=lambda story, api, is_async: story == "cancelled",
        broken=lambda story, api, is_async: (
            "the response stays open" if api == "chat" and _leaves_open(story, is_async) else None
        ),
    ),
    Tool(
        "OpenLLMetry",
        "opentelemetry.instrumentation.openai",
        "opentelemetry-instrumentation-openai",
        *_OPENLLMETRY,
        # The Responses span is opened when the request has returned; the exit of a sync chat stream ends it first.
        early=lambda story, api, is_async: api == "responses" or (story == "left" and not is_async),
    ),
    Tool(
        "OpenInference",
        "openinference.instrumentation.openai",
        "openinference-instrumentation-openai",
        *_OPENINFERENCE,
    ),
    Tool(
        "Langfuse",
        "langfuse.openai",
        "langfuse",
        _langfuse,
        # Its span ends when the generator of a for loop is dropped, which is before the close.
        early=lambda story, api, is_async: story in ("closed", "left") and not is_async,
    ),
    Tool(
        "Logfire",
        "logfire",
        "logfire",
        _logfire,
        # Its span of a stream ends with the headers, and a log record tells of the rest.
        early=lambda story, api, is_async: (
            story not in ("not streamed", "refused", "refused stream", "stalled before headers")
        ),
    ),
)


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


HERE = tuple(tool for tool in TOOLS if _importable(tool.module))
"""Those that are installed here."""

EACH = [
    pytest.param(
        tool,
        id=tool.name,
        marks=() if tool in HERE else pytest.mark.skip(f"{tool.name} is not installed here"),
    )
    for tool in TOOLS
]
"""Parameters of tests that are played beside each of them."""

_OWNERS: tuple[type, ...] = (
    openai.OpenAI,
    openai.AsyncOpenAI,
    openai.AzureOpenAI,
    openai.AsyncAzureOpenAI,
    base.BaseClient,
    base.SyncAPIClient,
    base.AsyncAPIClient,
    streaming.Stream,
    streaming.AsyncStream,
    chat.Completions,
    chat.AsyncCompletions,
    completions.Completions,
    completions.AsyncCompletions,
    embeddings.Embeddings,
    embeddings.AsyncEmbeddings,
    responses.Responses,
    responses.AsyncResponses,
)


@contextmanager
def untouched() -> Iterator[None]:
    """Put every attribute of the SDK back afterwards: not every tool can be switched off, and some leave things."""
    before = [(owner, dict(vars(owner))) for owner in _OWNERS]
    try:
        yield
    finally:
        for owner, attributes in before:
            for name in set(vars(owner)) - set(attributes):
                delattr(owner, name)
            for name, value in attributes.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)
