"""A healthy call is never cut: silent thinkers, slow readers and blocked loops are not stalls."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stallwatch import Policy, Rule
from stallwatch.testing import (
    Comments,
    Delta,
    Done,
    Event,
    FaultGateway,
    Finish,
    Heartbeats,
    Reasoning,
    Refusal,
    Role,
    Token,
    Tokens,
    ToolCall,
    Wait,
)
from support.drivers import ASYNC, Driver
from support.expect import Histogram, ended
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

GAPS = "gen_ai.client.operation.time_per_output_chunk"
TTFT = "stallwatch.time_to_first_token"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_model_that_thinks_in_silence_is_left_alone(
    gateway: FaultGateway, driver: Driver, guarded: Any, api: str
) -> None:
    gateway.script("m", [Wait(0.05), Role(), Wait(0.5), Tokens(3, 0.02), Finish(), Done()])
    with guarded(first_token=1.2) as captured:
        told = driver.tell(gateway.base_url, "m", api=api)
        assert (told.error, told.text) == (None, "t0 t1 t2 ")
        attributes = ended(captured, "completed", chunks=len(told.chunks))
        assert attributes[TTFT] == pytest.approx(0.55, abs=0.15)
        assert attributes["gen_ai.response.time_to_first_chunk"] < 0.3
        assert Histogram(captured, TTFT).sum == pytest.approx(attributes[TTFT])
        assert attributes["stallwatch.gap.max"] < 0.3


@pytest.mark.parametrize(
    ("api", "model", "request_"),
    [
        ("chat", "o3-mini", {}),
        ("chat", "gpt-5.1-mini", {}),
        ("chat", "openrouter/x-ai/grok-4", {}),
        ("chat", "some-model", {"reasoning_effort": "high"}),
        ("responses", "gpt-5-nano", {}),
        ("responses", "some-model", {"reasoning": {"effort": "medium"}}),
    ],
)
def test_hidden_reasoning_is_known_by_name_or_effort(
    gateway: FaultGateway, driver: Driver, api: str, model: str, request_: dict[str, Any]
) -> None:
    gateway.script(model, "healthy:gap=0")
    with instrumented() as captured:
        told = driver.tell(gateway.base_url, model, api=api, **request_)
        assert told.error is None
        attributes = ended(captured, "completed")
    assert attributes["stallwatch.policy.rule"] == "hidden_reasoning"


@pytest.mark.parametrize(("api", "request_"), [("chat", {"reasoning_effort": "none"}), ("responses", {})])
def test_other_models_are_not_hidden_reasoning(
    gateway: FaultGateway, driver: Driver, api: str, request_: dict[str, Any]
) -> None:
    gateway.script("gpt-4.1", "healthy:gap=0")
    with instrumented() as captured:
        driver.tell(gateway.base_url, "gpt-4.1", api=api, **request_)
        assert ended(captured, "completed")["stallwatch.policy.rule"] == "default"


def test_a_rule_gives_a_silent_thinker_its_time(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    gateway.script("thinker-1", "think-silently:seconds=0.5,tokens=2")
    patient = Rule(name="thinkers", model="thinker-*", policy=Policy.of(first_token=2))
    with guarded(rules=[patient]) as captured:
        told = driver.tell(gateway.base_url, "thinker-1")
        assert told.error is None
        assert ended(captured, "completed")["stallwatch.policy.rule"] == "rule:thinkers"


def test_a_slow_reader_is_no_silent_server(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    told = driver.tell(gateway.base_url, "slow:tokens=30,gap=0.01", pauses=[0.3, 0.3, 0.3])
    assert told.error is None
    assert told.text == "".join(f"t{index} " for index in range(30))
    attributes = ended(captured, "completed", chunks=32)
    gaps = Histogram(captured, GAPS)
    # 29 between the tokens and one before the finish; the reader's pauses are in none of them.
    assert gaps.count == 30
    assert gaps.max < 0.2
    assert gaps.max == pytest.approx(attributes["stallwatch.gap.max"])
    assert gaps.sum < 0.3 + 30 * 0.01


def test_a_reader_slower_than_a_full_buffer_is_no_silent_server(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    big = "x" * 60_000
    gateway.script("m", [Role(), *[Token(big)] * 120, Finish(), Done()])
    told = driver.tell(gateway.base_url, "m", pauses=[0.3, 0.3])
    assert told.error is None
    assert len(told.text) == 120 * len(big)
    ended(captured, "completed", chunks=122)


def test_a_blocked_event_loop_is_no_silent_server(gateway: FaultGateway, guarded: Any) -> None:
    async def story(stage: Stage) -> int:
        import asyncio

        async def block() -> None:
            await asyncio.sleep(0.12)
            time.sleep(0.6)

        async with stage.inside(stage.client(gateway.base_url)) as client:
            stream = await stage.chat(client, "slow:tokens=24,gap=0.05")
            blocking = asyncio.create_task(block())
            chunks = await stage.all(stream)
            await blocking
            return len(chunks)

    with guarded(idle=0.4) as captured:
        assert play(ASYNC, story) == 26
        ended(captured, "completed", chunks=26)


def test_comments_keep_a_queue_alive_within_the_extension(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", [Role(), Comments(0.1, 0.6), Tokens(2), Finish(), Done()])
    with guarded(first_token=0.3, keepalive_factor=3) as captured:
        told = driver.tell(gateway.base_url, "m")
        assert told.error is None
        attributes = ended(captured, "completed", chunks=4)
    assert attributes[TTFT] == pytest.approx(0.6, abs=0.15)
    assert attributes["stallwatch.heartbeats"] == 0


def test_a_rising_usage_counter_is_progress(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    beats = Heartbeats(0.1, 0.7, reasoning_tokens="rising")
    gateway.script("m", [Role(), beats, Tokens(2), Finish(), Done()])
    told = driver.tell(gateway.base_url, "m")
    assert told.error is None
    attributes = ended(captured, "completed", chunks=11)
    # Counters are progress, but no token.
    assert attributes[TTFT] == pytest.approx(0.7, abs=0.15)
    assert attributes["stallwatch.heartbeats"] == 0


CHAT_PROGRESS: tuple[Any, ...] = (
    Reasoning("a", "reasoning_content"),
    Reasoning("b", "reasoning", "null"),
    Reasoning("c", "reasoning_details", "empty"),
    Reasoning("d", "thinking"),
    Delta({"a_field_of_next_year": {"x": 1}}),
    Refusal("no"),
    Delta({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": ""}}]}),
    Delta({"tool_calls": [{"index": 0, "function": {"name": "save"}}]}),
    Delta({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}),
    Delta({"function_call": {"arguments": "{"}}),
    Delta({"audio": {"id": "a", "data": "AAAA"}}),
    Token("t"),
)


def test_every_kind_of_output_is_progress_in_chat(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    steps = [each for step in CHAT_PROGRESS for each in (Wait(0.1), step)]
    gateway.script("m", [Role(), *steps, Finish(), Done()])
    # Twice the gap is more than the limit: a kind that were no progress would show.
    with guarded(first_token=0.18, thinking=0.18, idle=0.18) as captured:
        told = driver.tell(gateway.base_url, "m")
        assert told.error is None, told.error
        attributes = ended(captured, "completed", chunks=len(CHAT_PROGRESS) + 2)
        assert Histogram(captured, GAPS).count == len(CHAT_PROGRESS)
    assert attributes["stallwatch.heartbeats"] == 0
    assert attributes[TTFT] == pytest.approx(0.1, abs=0.1)
    assert attributes["stallwatch.time_to_visible_output"] == pytest.approx(6 * 0.1, abs=0.15)


def test_every_kind_of_output_is_progress_in_responses(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    unknown = {"type": "response.of_next_year.delta", "delta": "x", "sequence_number": 99}
    steps: list[Any] = [
        Reasoning("a"),
        Reasoning("b", "reasoning_text"),
        Event(unknown, "response.of_next_year.delta"),
        ToolCall("save", ["{", "}"], 0.1),
        Refusal("no"),
        Token("t"),
    ]
    gateway.script("m", [Role(), *(each for step in steps for each in (Wait(0.1), step)), Finish(), Done()])
    with guarded(first_token=0.18, thinking=0.18, idle=0.18) as captured:
        told = driver.tell(gateway.base_url, "m", api="responses")
        assert told.error is None, told.error
        attributes = ended(captured, "completed", chunks=len(told.chunks))
    assert attributes[TTFT] == pytest.approx(0.1, abs=0.1)
    assert attributes["stallwatch.time_to_visible_output"] == pytest.approx(4 * 0.1, abs=0.15)


def test_any_chunk_is_progress_if_the_user_says_so(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", [Role(), Heartbeats(0.1, 0.6), Tokens(1), Finish(), Done()])
    with guarded(progress="chunk", first_token=0.25) as captured:
        told = driver.tell(gateway.base_url, "m")
        assert told.error is None
        ended(captured, "completed", chunks=9)
