"""The SDK's own stream helpers, read to the end, left early and stalled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from stallwatch.testing import FaultGateway
from support.bounds import CLOSE_SEEN, LIMITS
from support.drivers import MESSAGES, Driver
from support.expect import ended, released, stalled
from support.stage import Stage, play
from support.telemetry import Captured

HEALTHY = "healthy:tokens=5,gap=0"
STALL = "stall-after:tokens=2,gap=0"


def _chat_helper(client: Any, model: str, **more: Any) -> Any:
    surface = client.chat if hasattr(client.chat.completions, "stream") else client.beta.chat
    return surface.completions.stream(model=model, messages=MESSAGES, **more)


def _helper(client: Any, api: str, model: str) -> Any:
    if api == "responses":
        return client.responses.stream(model=model, input="hello")
    return _chat_helper(client, model)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_stall_comes_out_of_the_helper_as_it_is(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    async def story(stage: Stage) -> None:
        async with (
            stage.inside(stage.client(gateway.base_url)) as client,
            stage.inside(_helper(client, api, STALL)) as stream,
        ):
            await stage.all(stream)

    with pytest.raises(TimeoutError) as caught:
        play(driver, story)
    chunks = 3 if api == "chat" else 6
    stalled(captured, caught.value, phase="idle", limit=LIMITS["idle"], chunks=chunks)
    released(gateway)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_leaving_the_helper_early_is_closed_early(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            async with stage.inside(_helper(client, api, "slow:tokens=20,gap=0.03")) as stream:
                async for event in stage.over(stream):
                    if event.type in ("content.delta", "response.output_text.delta"):
                        break
            await stage.closed(gateway, CLOSE_SEEN)

    play(driver, story)
    ended(captured, "closed_early")


def test_the_helpers_response_is_the_http_response(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    async def story(stage: Stage) -> None:
        async with (
            stage.inside(stage.client(gateway.base_url)) as client,
            stage.inside(_chat_helper(client, HEALTHY)) as stream,
        ):
            held = getattr(stream, "_response", None) or stream._raw_stream.response
            assert held.status_code == 200
            await stage.all(stream)
            await stage.close(stream)

    play(driver, story)
    ended(captured, "completed", chunks=7)


class Answer(BaseModel):
    answer: str
    count: int


def test_structured_output_parses(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    async def story(stage: Stage) -> Any:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            manager = _chat_helper(client, "structured:tokens=2,gap=0", response_format=Answer)
            async with stage.inside(manager) as stream:
                return await stage.of(stream.get_final_completion())

    final = play(driver, story)
    assert final.choices[0].message.parsed == Answer(answer="t0 t1 ", count=2)
    assert ended(captured, "completed")["gen_ai.output.type"] == "json"


def test_the_stream_helper_assembles_a_tool_call(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    async def story(stage: Stage) -> Any:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            manager = _chat_helper(client, "tool-call:fragments=8,gap=0.08")
            async with stage.inside(manager) as stream:
                return await stage.of(stream.get_final_completion())

    with guarded(first_token=0.15, thinking=0.15, idle=0.15) as captured:
        final = play(driver, story)
        (call,) = final.choices[0].message.tool_calls
        assert json.loads(call.function.arguments)["text"].startswith("f0 f1 ")
        attributes = ended(captured, "completed")
    assert attributes["gen_ai.operation.name"] == "chat"
    assert len(gateway.ledger().requests) == 1
