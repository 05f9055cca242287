"""A span that another tool has for the call is told by what it says, or by the code the call came through."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import openai.resources.chat.completions as chat
import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from wrapt import FunctionWrapper

from support.drivers import DRIVERS, MESSAGES, Driver
from support.places import Place
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

MODEL = "healthy:tokens=1,gap=0"
OURS = "stallwatch"


async def _call(stage: Stage, place: Place) -> None:
    async with stage.inside(stage.client(place.base_url)) as client:
        await stage.all(await stage.chat(client, MODEL))


def _own(captured: Captured) -> list[Any]:
    return [span for span in captured.spans if span.instrumentation_scope.name == OURS]


@pytest.mark.parametrize(
    ("attributes", "taken"),
    [
        ({"gen_ai.operation.name": "chat"}, True),
        ({"gen_ai.operation.name": "text_completion"}, True),
        ({"openinference.span.kind": "LLM"}, True),
        ({"langfuse.observation.type": "generation"}, True),
        ({"llm.request.type": "chat"}, True),
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m"}, False),
        ({"gen_ai.operation.name": "execute_tool"}, False),
        ({"openinference.span.kind": "CHAIN"}, False),
        ({"langfuse.observation.type": "span"}, False),
        ({"http.request.method": "POST"}, False),
        ({}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_a_current_span_is_taken_if_it_says_that_it_is_an_inference(
    plain: Place, driver: Driver, attributes: dict[str, Any], taken: bool
) -> None:
    with instrumented() as captured:
        tracer = captured.tracer_provider.get_tracer("another.tool")
        with tracer.start_as_current_span("theirs", attributes=attributes):
            play(driver, lambda stage: _call(stage, plain))
        (theirs,) = (span for span in captured.spans if span.name == "theirs")
        told = {name for name in theirs.attributes or {} if name not in attributes}
        assert len(_own(captured)) == (0 if taken else 1)
        assert ("stallwatch.outcome" in told) is taken
        assert all(name.startswith("stallwatch.") for name in told)
        assert captured.total("stallwatch.streams", stallwatch__outcome="completed") == 1
        assert captured.total("gen_ai.client.operation.duration") == (0 if taken else 1)


HELD = """
class Generation:
    def __init__(self, span):
        self._otel_span = span

def wrapper(wrapped, instance, args, kwargs):
    generation = Generation(opened())
    return wrapped(*args, **kwargs)
"""
LATER = """
def wrapper(wrapped, instance, args, kwargs):
    return wrapped(*args, **kwargs)
"""
CURRENT = """
def wrapper(wrapped, instance, args, kwargs):
    with use_span(opened()):
        return wrapped(*args, **kwargs)
"""


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Patch chat completions with a wrapper of this source, as the module of this name."""

    def patch(module: str, source: str, **known: Any) -> None:
        made = ModuleType(module)
        vars(made).update(known)
        exec(source, vars(made))
        monkeypatch.setitem(sys.modules, module, made)
        monkeypatch.setattr(
            chat.Completions, "create", FunctionWrapper(chat.Completions.create, made.wrapper)
        )

    return patch


def _ask(place: Place) -> None:
    with place.client() as client:
        list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))


def test_a_span_that_a_tool_holds_in_a_variable_is_found(plain: Place, patched: Any) -> None:
    with instrumented() as captured:
        tracer = captured.tracer_provider.get_tracer("langfuse-sdk")
        held = tracer.start_span("theirs")
        patched("langfuse.openai", HELD, opened=lambda: held)
        _ask(plain)
        held.end()
        assert _own(captured) == []
        assert captured.attributes()["stallwatch.outcome"] == "completed"


def test_a_tool_that_is_switched_off_leaves_the_span_to_us(plain: Place, patched: Any) -> None:
    with instrumented() as captured:
        patched("langfuse.openai", HELD, opened=lambda: trace.INVALID_SPAN)
        _ask(plain)
        assert len(_own(captured)) == 1
        assert captured.total("gen_ai.client.operation.duration") == 1


def test_beside_a_tool_that_opens_its_span_afterwards_only_our_metrics_are_told(
    plain: Place, patched: Any
) -> None:
    with instrumented() as captured:
        patched("opentelemetry.instrumentation.openai.v1.responses_wrappers", LATER)
        _ask(plain)
        assert captured.spans == []
        assert captured.total("stallwatch.streams", stallwatch__outcome="completed") == 1
        assert captured.total("gen_ai.client.operation.duration") == 0


def test_a_tools_span_that_is_sampled_away_takes_ours_with_it(plain: Place, patched: Any) -> None:
    away = NonRecordingSpan(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(0)))
    with instrumented() as captured:
        patched("openinference.instrumentation.openai", CURRENT, opened=lambda: away, use_span=trace.use_span)
        _ask(plain)
        assert captured.spans == []
        assert captured.total("stallwatch.streams", stallwatch__outcome="completed") == 1
        assert captured.total("gen_ai.client.operation.duration") == 0
