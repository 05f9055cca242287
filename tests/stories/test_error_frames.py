"""Answers that begin with success and are none: error frames, empty streams, foreign bodies, bodies cut short."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from stallwatch.testing import (
    CloseAbruptly,
    CloseDelimited,
    Comment,
    Done,
    Eof,
    ErrorFrame,
    FaultGateway,
    Finish,
    Headers,
    Reset,
    Role,
    Status,
    Token,
)
from support.bounds import LIMITS
from support.drivers import Driver, Told
from support.expect import bare_shape
from support.telemetry import Captured, instrumented

GOOD = [Role(), Token("Hel"), Token("lo"), Finish(), Done()]
FRAMES = [
    ErrorFrame(code=502),
    ErrorFrame(code="server_error"),
    ErrorFrame(code="rate_limit_exceeded", type="requests"),
    ErrorFrame(code=None),
    ErrorFrame(code=502, style="choices"),
]
PERMANENT = [
    ErrorFrame(code="context_length_exceeded", type="invalid_request_error"),
    ErrorFrame(code="insufficient_quota", type="insufficient_quota"),
    ErrorFrame(code=400, type="invalid_request_error"),
]


@pytest.fixture(autouse=True)
def quick_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 0.02)


def tell(driver: Driver, gateway: FaultGateway, retries: int = 1, model: str = "m", **more: Any) -> Told:
    return driver.tell(gateway.base_url, model, options={"max_retries": retries}, **more)


def same_end(told: Told, bare: Told) -> None:
    """The caller saw what the bare SDK shows: the same chunks, then the same error or none."""
    assert bare_shape(told.chunks) == bare_shape(bare.chunks)
    assert type(told.error) is type(bare.error), (told.error, bare.error)
    assert str(told.error) == str(bare.error)
    if isinstance(bare.error, openai.APIError):
        assert isinstance(told.error, openai.APIError)
        assert (told.error.code, told.error.type, told.error.body) == (
            bare.error.code,
            bare.error.type,
            bare.error.body,
        )
    causes = (getattr(told.error, "__cause__", None), getattr(bare.error, "__cause__", None))
    assert type(causes[0]) is type(causes[1]), causes


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame.code}-{frame.style}")
@pytest.mark.parametrize("before", [[], [Comment()]], ids=["at once", "after a comment"])
def test_an_error_as_the_first_event_is_tried_again(
    gateway: FaultGateway, driver: Driver, captured: Captured, frame: Any, before: list[Any]
) -> None:
    gateway.script("m", [*before, frame, *([Done()] if frame.style == "choices" else [])], GOOD)
    told = tell(driver, gateway)
    assert told.error is None, told.error
    assert told.text == "Hello"
    assert len(gateway.ledger().requests) == 2
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "completed"
    assert attributes["stallwatch.attempts"] == 2
    assert "stallwatch.stalls" not in attributes
    assert "error.type" not in attributes
    first, second = [event.attributes or {} for event in captured.span.events]
    assert (first["stallwatch.outcome"], first["stallwatch.retry.decision"]) == ("failed", "retry")
    assert first["stallwatch.retry.diagnosis"] == "retryable"
    assert second["stallwatch.outcome"] == "completed"


@pytest.mark.parametrize("style", ["plain", "failed"])
def test_a_failed_response_as_the_first_event_is_tried_again(
    gateway: FaultGateway, driver: Driver, captured: Captured, style: Any
) -> None:
    gateway.script("m", [ErrorFrame(code="server_error", style=style)], GOOD)
    told = tell(driver, gateway, api="responses")
    assert told.error is None, told.error
    assert told.text == "Hello"
    assert len(gateway.ledger().requests) == 2
    assert captured.attributes()["stallwatch.outcome"] == "completed"


@pytest.mark.parametrize("frame", PERMANENT, ids=lambda frame: str(frame.code))
def test_an_error_that_would_come_again_passes_at_once(
    gateway: FaultGateway, driver: Driver, frame: Any
) -> None:
    gateway.script("m", [frame], GOOD)
    gateway.script("bare", [frame])
    bare = tell(driver, gateway, model="bare")
    with instrumented(**LIMITS) as captured:
        told = tell(driver, gateway)
    same_end(told, bare)
    assert isinstance(told.error, openai.APIError)
    assert len(gateway.ledger().for_model("m")) == 1
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "failed"
    assert attributes["stallwatch.retry.decision"] == "fail_fast"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_error_after_output_passes_unchanged(gateway: FaultGateway, driver: Driver, api: str) -> None:
    gateway.script("m", [Role(), Token("Hel"), Token("lo"), ErrorFrame(code=502)], GOOD)
    gateway.script("bare", [Role(), Token("Hel"), Token("lo"), ErrorFrame(code=502)])
    bare = tell(driver, gateway, model="bare", api=api)
    with instrumented(**LIMITS) as captured:
        told = tell(driver, gateway, api=api)
    # The gateway quotes the model's name in its chunks.
    assert told.text == bare.text == "Hello"
    assert type(told.error) is type(bare.error)
    assert str(told.error) == str(bare.error)
    assert len(gateway.ledger().for_model("m")) == 1
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "failed"
    assert attributes["stallwatch.stalled"] is False
    assert attributes["stallwatch.retry.decision"] == "partial_output"
    assert attributes["error.type"] == "502"


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame.code}-{frame.style}")
def test_the_last_attempts_error_is_the_sdks_own(gateway: FaultGateway, driver: Driver, frame: Any) -> None:
    steps = [frame, *([Done()] if frame.style == "choices" else [])]
    gateway.script("m", steps)
    bare = tell(driver, gateway)
    gateway.reset_ledger()
    with instrumented(**LIMITS) as captured:
        told = tell(driver, gateway)
    same_end(told, bare)
    assert len(gateway.ledger().requests) == 2
    first, second = [event.attributes or {} for event in captured.span.events]
    assert (first["stallwatch.retry.decision"], second["stallwatch.retry.decision"]) == ("retry", "exhausted")
    assert captured.attributes()["stallwatch.outcome"] == "failed"


def test_an_answer_that_only_speaks_of_errors_is_none(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", [Token('"error" response.failed {"error": {"code": 502}}'), Finish(), Done()])
    told = tell(driver, gateway)
    assert told.error is None
    assert "502" in told.text
    assert len(gateway.ledger().requests) == 1
    assert captured.attributes()["stallwatch.outcome"] == "completed"


# Bodies without any event

PAGE = "<!doctype html><html><body><h1>Access blocked</h1></body></html>"
HTML = Status(200, {"content-type": "text/html; charset=utf-8"}, PAGE)
BODIES = [
    # what is played, outcome, reason, whether another attempt may help
    ([Headers(), Eof()], "truncated", "empty_stream", True),
    ([Comment(), Comment(), Eof()], "truncated", "empty_stream", True),
    ([CloseDelimited(), Headers(), Eof()], "truncated", "empty_stream", True),
    ([HTML], "truncated", "not_event_stream", False),
    ([Status(200, {"content-type": "application/json"}, "{}")], "truncated", "not_event_stream", False),
    ([Status(200, {"content-type": "text/html"}, "")], "truncated", "not_event_stream", False),
]
ids = ["nothing", "comments", "close-delimited nothing", "html", "json", "empty html"]


@pytest.mark.parametrize(("played", "outcome", "reason", "again"), BODIES, ids=ids)
def test_without_retries_the_caller_sees_what_the_bare_sdk_shows(
    gateway: FaultGateway, driver: Driver, played: list[Any], outcome: str, reason: str, again: bool
) -> None:
    gateway.script("m", played)
    bare = tell(driver, gateway, retries=0)
    with instrumented(**LIMITS) as captured:
        told = tell(driver, gateway, retries=0)
    same_end(told, bare)
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == outcome
    assert attributes["error.type"] == reason
    assert attributes["stallwatch.retry.kind"] == "stream"
    assert attributes["stallwatch.retry.reason"] == reason
    assert attributes["stallwatch.retry.decision"] == ("retries_off" if again else "fail_fast")
    assert attributes["stallwatch.chunks"] == 0


@pytest.mark.parametrize(("played", "outcome", "reason", "again"), BODIES, ids=ids)
def test_an_empty_body_is_tried_again_and_a_foreign_one_is_not(
    gateway: FaultGateway, driver: Driver, played: list[Any], outcome: str, reason: str, again: bool
) -> None:
    gateway.script("m", played, GOOD)
    with instrumented(**LIMITS) as captured:
        told = tell(driver, gateway)
    assert told.error is None, told.error
    assert told.text == ("Hello" if again else "")
    assert len(gateway.ledger().requests) == (2 if again else 1)
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == ("completed" if again else outcome)
    first = captured.span.events[0].attributes or {}
    assert first["stallwatch.retry.reason"] == reason
    assert first["stallwatch.retry.decision"] == ("retry" if again else "fail_fast")
    if again:
        assert "error.type" not in attributes


def test_an_empty_last_attempt_ends_quietly_as_the_sdk_does(gateway: FaultGateway, driver: Driver) -> None:
    gateway.script("m", [Headers(), Eof()])
    with instrumented(**LIMITS) as captured:
        told = tell(driver, gateway, retries=2)
    assert (told.error, told.chunks) == (None, [])
    assert len(gateway.ledger().requests) == 3
    assert captured.attributes()["stallwatch.outcome"] == "truncated"
    assert captured.attributes()["stallwatch.retry.decision"] == "exhausted"


# Cut in mid-answer: the class is the bare SDK's of this release


@pytest.mark.parametrize("end", [Reset(), CloseAbruptly()], ids=["rst", "fin"])
@pytest.mark.parametrize("before", [[Role(), Token("Hel"), Token("lo")], []], ids=["after output", "at once"])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_broken_connection_raises_what_the_bare_sdk_raises(
    gateway: FaultGateway, driver: Driver, before: list[Any], end: Any, api: str
) -> None:
    from stallwatch.testing import Wait

    gateway.script("m", [Headers(), *before, Wait(0.05), end])
    bare = tell(driver, gateway, retries=0, api=api)
    with instrumented(**LIMITS) as captured:
        told = tell(driver, gateway, retries=0, api=api)
    assert bare.error is not None
    same_end(told, bare)
    assert len(gateway.ledger().requests) == 2
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "failed"
    assert attributes["stallwatch.retry.kind"] == "transport"
    assert attributes["stallwatch.retry.diagnosis"] == "retryable"
    assert attributes["stallwatch.retry.decision"] == ("partial_output" if before else "retries_off")
    # One bounded value, whatever the release and its HTTP library call the class.
    assert attributes["error.type"] in ("ECONNRESET", "PROTOCOL", "APIConnectionError"), attributes[
        "error.type"
    ]


def test_a_clean_end_without_a_finish_is_truncated_and_no_error_to_the_caller(
    gateway: FaultGateway, driver: Driver
) -> None:
    gateway.script("m", [Role(), Token("Hel"), Eof()], GOOD)
    with instrumented(**LIMITS) as captured:
        told = tell(driver, gateway, retries=2)
    assert told.error is None
    assert told.text == "Hel"
    assert len(gateway.ledger().requests) == 1
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "truncated"
    assert attributes["error.type"] == "truncated"
    assert attributes["stallwatch.retry.reason"] == "truncated_stream"
    assert attributes["stallwatch.retry.decision"] == "partial_output"


def test_no_exception_of_an_attempt_that_was_tried_again_is_left_unread(
    gateway: FaultGateway, captured: Captured
) -> None:
    """Fifty tasks whose first attempts break: asyncio would tell of anything never retrieved."""
    from support.drivers import ASYNC, MESSAGES
    from support.stage import Stage, play

    for number in range(20):
        gateway.script(f"m{number}", [Headers(), Reset()] if number % 2 else [ErrorFrame(code=502)], GOOD)

    async def one(client: Any, model: str) -> int:
        stream = await client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
        return len([chunk async for chunk in stream])

    async def story(stage: Stage) -> list[int]:
        async with stage.client(gateway.base_url, max_retries=1) as client:
            return await asyncio.gather(*(one(client, f"m{number}") for number in range(20)))

    assert play(ASYNC, story) == [4] * 20
    assert len(captured.spans) == 20
