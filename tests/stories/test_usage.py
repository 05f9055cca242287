"""Token counts are the server's last word: never summed, never invented, never asked for."""

from __future__ import annotations

from typing import Any

import pytest

from stallwatch.testing import FaultGateway
from support.drivers import Driver
from support.expect import Histogram, bare_shape, ended
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

TOKENS = "gen_ai.client.token.usage"


@pytest.mark.parametrize("include", [True, False], ids=["asked", "not asked"])
@pytest.mark.parametrize("form", ["alone", "on-finish-and-alone", "cumulative", "fused", "none"])
def test_the_counts_are_the_last_the_server_sent(
    gateway: FaultGateway, driver: Driver, captured: Captured, form: str, include: bool
) -> None:
    asked: dict[str, Any] = {"stream_options": {"include_usage": True}} if include else {}
    told = driver.tell(gateway.base_url, f"usage:form={form},tokens=4,gap=0", **asked)
    assert told.error is None
    attributes = ended(captured, "completed", chunks=len(told.chunks))
    expected = None if form == "none" else 5 if form == "fused" else 4
    assert attributes.get("gen_ai.usage.output_tokens") == expected
    assert attributes.get("gen_ai.usage.input_tokens") == (None if form == "none" else 11)
    output = Histogram(captured, TOKENS, gen_ai__token__type="output")
    assert (output.count, output.sum) == ((0, 0) if expected is None else (1, expected))
    given = Histogram(captured, TOKENS, gen_ai__token__type="input")
    assert (given.count, given.sum) == ((0, 0) if expected is None else (1, 11))


@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
def test_usage_is_not_asked_for_and_chunks_are_the_bare_sdks(
    gateway: FaultGateway, driver: Driver, api: str
) -> None:
    bare = driver.tell(gateway.base_url, "healthy:gap=0", api=api)
    with instrumented():
        told = driver.tell(gateway.base_url, "healthy:gap=0", api=api)
    assert bare_shape(told.chunks) == bare_shape(bare.chunks)
    first, second = gateway.ledger().requests
    assert first.body_bytes == second.body_bytes
    assert first.headers == second.headers
    assert second.count("usage") == 0


def test_responses_carry_their_counts_in_the_last_event(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    driver.tell(gateway.base_url, "healthy:tokens=3,gap=0", api="responses")
    attributes = ended(captured, "completed")
    assert attributes["gen_ai.usage.output_tokens"] == 3
    assert attributes["gen_ai.usage.input_tokens"] == 11
    assert Histogram(captured, TOKENS, gen_ai__token__type="output").sum == 3


def test_azures_first_chunk_hurts_nobody(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    async def story(stage: Stage) -> list[Any]:
        async with stage.inside(stage.azure(gateway)) as client:
            return await stage.all(await stage.chat(client, "azure:tokens=3,gap=0"))

    chunks = play(driver, story)
    assert [bool(chunk.choices) for chunk in chunks] == [False, True, True, True, True, True, False]
    assert chunks[0].model_extra["prompt_filter_results"]
    attributes = ended(captured, "completed", chunks=7)
    assert attributes["gen_ai.response.model"] == "azure:tokens=3,gap=0"
    assert attributes["gen_ai.response.id"].startswith("chatcmpl")
    assert attributes["gen_ai.provider.name"] == "azure.ai.openai"
    assert attributes["gen_ai.usage.output_tokens"] == 3
    assert attributes["stallwatch.time_to_first_token"] < 0.3


def test_azures_first_chunk_is_no_first_token(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    from stallwatch.testing import Done, Finish, PromptFilter, Role, Tokens, Wait

    gateway.script("m", [PromptFilter(), Wait(0.15), Role(), Wait(0.15), Tokens(2), Finish(), Done()])

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.azure(gateway)) as client:
            await stage.all(await stage.chat(client, "m"))

    play(driver, story)
    attributes = ended(captured, "completed", chunks=5)
    assert attributes["stallwatch.time_to_first_token"] == pytest.approx(0.3, abs=0.1)
    assert attributes["stallwatch.heartbeats"] == 1


@pytest.mark.parametrize("api", ["chat", "responses", "completions", "embeddings"])
def test_calls_that_are_not_streamed_report_usage_too(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    gateway.script("m", "healthy:gap=0")

    async def story(stage: Stage) -> Any:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            match api:
                case "chat":
                    made = stage.chat(client, "m", stream=False)
                case "responses":
                    made = client.responses.create(model="m", input="hello")
                case "completions":
                    made = client.completions.create(model="m", prompt="hello")
                case _:
                    made = client.embeddings.create(model="m", input="hello")
            return await stage.of(made)

    answer = play(driver, story)
    attributes = ended(captured, "completed", stream=False)
    used = answer.usage.model_dump()
    known = used.get("prompt_tokens", used.get("input_tokens"))
    assert attributes["gen_ai.usage.input_tokens"] == known
    assert Histogram(captured, TOKENS, gen_ai__token__type="input").sum == known
    assert attributes["gen_ai.response.model"] == answer.model
    assert "gen_ai.request.stream" not in attributes
    assert "stallwatch.chunks" not in attributes
