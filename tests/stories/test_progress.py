"""What was measured: time to the first token and to visible output, reasoning, tool calls, several choices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stallwatch.testing import (
    Comment,
    Done,
    EmptyDelta,
    FaultGateway,
    Finish,
    Role,
    Silence,
    Token,
    Tokens,
    Usage,
    Wait,
)
from support.bounds import LIMITS
from support.drivers import Driver
from support.expect import Histogram, ended, in_time, released, stalled
from support.telemetry import Captured

GAPS = "gen_ai.client.operation.time_per_output_chunk"
TTFT = "stallwatch.time_to_first_token"
VISIBLE = "stallwatch.time_to_visible_output"
FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"


@pytest.mark.parametrize(
    ("field", "content"),
    [("reasoning_content", "absent"), ("reasoning_content", "empty"), ("reasoning", "null")],
)
def test_reasoning_keeps_the_stream_alive_and_is_the_first_token(
    gateway: FaultGateway, driver: Driver, guarded: Any, field: str, content: str
) -> None:
    model = f"reasoning:count=4,gap=0.08,tokens=3,field={field},content={content}"
    with guarded(first_token=0.15, thinking=0.15, idle=0.15) as captured:
        told = driver.tell(gateway.base_url, model)
        assert told.error is None, told.error
        texts = [
            (chunk.choices[0].delta.model_extra or {}).get(field) for chunk in told.chunks if chunk.choices
        ]
        assert [text for text in texts if text] == ["r0 ", "r1 ", "r2 ", "r3 "]
        assert told.text == "t0 t1 t2 "
        attributes = ended(captured, "completed", chunks=9)
        assert attributes[TTFT] == pytest.approx(0.08, abs=0.08)
        assert attributes[VISIBLE] == pytest.approx(0.4, abs=0.12)
        assert attributes["stallwatch.heartbeats"] == 0
        # Three between reasonings, three tokens, the finish.
        assert Histogram(captured, GAPS).count == 7
        assert Histogram(captured, TTFT).count == 1
    assert len(gateway.ledger().requests) == 1


def test_tool_arguments_keep_the_stream_alive(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    with guarded(first_token=0.15, thinking=0.15, idle=0.15) as captured:
        told = driver.tell(gateway.base_url, "tool-call:fragments=8,gap=0.08")
        assert told.error is None, told.error
        arguments = "".join(
            call.function.arguments or ""
            for chunk in told.chunks
            if chunk.choices
            for call in chunk.choices[0].delta.tool_calls or ()
        )
        assert json.loads(arguments) == {"text": "".join(f"f{index} " for index in range(6))}
        attributes = ended(captured, "completed", chunks=len(told.chunks))
        assert attributes[TTFT] < 0.1
        assert attributes[VISIBLE] == attributes[TTFT]
        assert attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_the_first_token_is_neither_role_nor_ping_nor_empty_chunk_nor_usage(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    steps = [
        Wait(0.05),
        Role(),
        Wait(0.08),
        Comment("ping"),
        Wait(0.07),
        EmptyDelta("empty"),
        Wait(0.1),
        Tokens(5),
        Finish(),
        Usage(only_if_asked=True),
        Done(),
    ]
    gateway.script("m", steps)
    asked = {"stream_options": {"include_usage": True}} if api == "chat" else {}
    told = driver.tell(gateway.base_url, "m", api=api, **asked)
    assert told.error is None
    attributes = ended(captured, "completed", chunks=len(told.chunks))
    assert attributes[TTFT] == pytest.approx(0.3, abs=0.1)
    first = Histogram(captured, TTFT)
    assert (first.count, first.sum) == (1, pytest.approx(attributes[TTFT]))
    assert attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.05, abs=0.1)
    assert Histogram(captured, FIRST_CHUNK).count == 1
    assert Histogram(captured, GAPS).max < 0.15
    assert attributes["gen_ai.usage.output_tokens"] == 5


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_answer_without_output_has_no_first_token(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    told = driver.tell(gateway.base_url, "role-then-finish", api=api)
    assert told.error is None
    attributes = ended(captured, "completed", chunks=len(told.chunks))
    assert TTFT not in attributes
    assert VISIBLE not in attributes
    assert Histogram(captured, TTFT).count == 0
    assert Histogram(captured, FIRST_CHUNK).count == 1


def test_an_answer_of_three_choices_is_whole_when_all_have_finished(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    steps: list[Any] = [Role(choice=index) for index in range(3)]
    steps += [Token(f"{index}", choice=index) for index in (2, 0, 1)]
    # Two waits together outlast the quiet end, were one finish reason taken for all.
    steps += [Finish(choice=0), Wait(0.12), Token("late", choice=2), Finish(choice=2), Wait(0.12)]
    steps += [Finish("length", choice=1), Done()]
    gateway.script("m", steps)
    told = driver.tell(gateway.base_url, "m", n=3)
    assert told.error is None
    attributes = ended(captured, "completed", chunks=10)
    assert attributes["gen_ai.request.choice.count"] == 3
    assert attributes["gen_ai.response.finish_reasons"] == ("stop", "length", "stop")


def test_one_silent_choice_of_three_is_a_stall(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    steps: list[Any] = [Role(choice=index) for index in range(3)]
    steps += [Token(f"{index}", choice=index) for index in range(3)]
    gateway.script("m", [*steps, Finish(choice=0), Finish(choice=1), Silence()])
    told = driver.tell(gateway.base_url, "m", n=3)
    in_time(told.after_last, LIMITS["idle"])
    attributes = stalled(captured, told.error, phase="idle", limit=LIMITS["idle"], chunks=8)
    assert attributes["gen_ai.response.finish_reasons"] == ("stop", "stop", "error")
    released(gateway)
