"""pydantic-ai: its own OpenTelemetry spans, its FallbackModel and its own limits beside ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from frameworks.installed import HERE
from frameworks.surface import chain
from stallwatch import StreamTimeoutError
from stallwatch.testing import FaultGateway
from support.bounds import LIMITS
from support.telemetry import Captured, instrumented

if "pydantic_ai" not in HERE:
    pytest.skip("pydantic-ai is not installed here", allow_module_level=True)

from pydantic_ai import Agent, InstrumentationSettings, ModelSettings
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def model(gateway: FaultGateway, name: str, **client: Any) -> OpenAIChatModel:
    sdk = openai.AsyncOpenAI(base_url=gateway.base_url, api_key="test", **{"max_retries": 0, **client})
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=sdk))


async def streamed(agent: Agent[None, str]) -> str:
    async with agent.run_stream("hi") as answer:
        return "".join([piece async for piece in answer.stream_text(delta=True, debounce_by=None)])


async def whole(agent: Agent[None, str]) -> str:
    return (await agent.run("hi")).output


@pytest.fixture
def traced(captured: Captured) -> Iterator[Captured]:
    """With pydantic-ai's own instrumentation."""
    Agent.instrument_all(
        InstrumentationSettings(
            tracer_provider=captured.tracer_provider, meter_provider=captured.meter_provider
        )
    )
    yield captured
    Agent.instrument_all(False)


@pytest.mark.parametrize("ask", [streamed, whole])
def test_beside_its_own_tracing_there_is_one_span_for_the_call_and_it_says_what_we_know(
    ask: Any, gateway: FaultGateway, traced: Captured
) -> None:
    assert asyncio.run(ask(Agent(model(gateway, "healthy")))) == "t0 t1 t2 t3 t4 "
    (span,) = [span for span in traced.spans if span.attributes["gen_ai.operation.name"] == "chat"]
    assert span.instrumentation_scope.name == "pydantic-ai"
    assert span.attributes["stallwatch.outcome"] == "completed"


def test_a_stall_is_told_on_its_own_span_too(gateway: FaultGateway, traced: Captured) -> None:
    with pytest.raises(Exception, match="Request timed out"):
        asyncio.run(streamed(Agent(model(gateway, "silent"))))
    (span,) = [span for span in traced.spans if span.attributes["gen_ai.operation.name"] == "chat"]
    assert span.attributes["stallwatch.outcome"] == "stalled"
    assert span.attributes["stallwatch.stall.phase"] == "first_token"


@pytest.mark.parametrize(
    ("ask", "fault", "retries", "models"),
    [
        (streamed, "silent", 0, ["first", "second"]),
        (streamed, "never-responds", 0, ["first", "second"]),
        (streamed, "silent", 1, ["first", "first", "second"]),
        (streamed, "error-status:code=503,retry_after=0.01", 1, ["first", "first", "second"]),
        (whole, "never-responds", 0, ["first", "second"]),
    ],
)
def test_its_fallback_model_asks_the_next_after_what_we_ended(
    ask: Any, fault: str, retries: int, models: list[str], gateway: FaultGateway
) -> None:
    gateway.script("first", fault)
    gateway.script("second", "healthy:tokens=2")
    first, second = (model(gateway, name, max_retries=retries) for name in ("first", "second"))
    limits = {**LIMITS, "total": 0.4} if ask is whole else LIMITS
    with instrumented(**limits) as captured:
        assert asyncio.run(ask(Agent(FallbackModel(first, second)))) == "t0 t1 "
    assert [request.model for request in gateway.ledger().requests] == models
    outcomes = [span.attributes["stallwatch.outcome"] for span in captured.spans]
    assert outcomes == ["failed" if "503" in fault else "stalled", "completed"]


def test_its_fallback_model_asks_nobody_after_the_first_piece(
    gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script("first", "stall-after:tokens=2")
    agent = Agent(FallbackModel(model(gateway, "first"), model(gateway, "healthy")))
    with pytest.raises(Exception) as caught:
        asyncio.run(streamed(agent))
    assert any(isinstance(error, StreamTimeoutError) for error in chain(caught.value))
    assert len(gateway.ledger().requests) == 1
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


@pytest.mark.parametrize(
    ("setting", "fault", "comes_out", "outcome"),
    [
        ("timeout", "silent", "ModelTimeoutError", "failed"),
        ("first_event_timeout", "silent", "ModelRequestTimeout", "cancelled"),
        ("request_timeout", "stall-after:tokens=2", "ModelRequestTimeout", "cancelled"),
    ],
)
def test_its_own_limits_end_a_call_that_ours_let_go_on(
    setting: str, fault: str, comes_out: str, outcome: str, gateway: FaultGateway
) -> None:
    gateway.script("first", fault)
    agent = Agent(model(gateway, "first"), model_settings=ModelSettings(**{setting: 0.2}))
    with (
        instrumented(**{**LIMITS, "first_token": 1, "idle": 1}) as captured,
        pytest.raises(Exception) as caught,
    ):
        asyncio.run(streamed(agent))
    assert type(caught.value).__name__ == comes_out
    assert not any(isinstance(error, StreamTimeoutError) for error in chain(caught.value))
    assert captured.attributes()["stallwatch.outcome"] == outcome
    gateway.wait_for(lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"))
