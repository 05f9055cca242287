"""Whatever callers ask for and servers answer, spans and metrics can be exported and stay few."""

from __future__ import annotations

import json
import math
from typing import Any

import openai
import pytest
from opentelemetry import context, trace

from stallwatch.testing import Done, Event, Raw, Role, Token
from support.drivers import DRIVERS, Driver
from support.places import MESSAGES, Place
from support.telemetry import Captured, instrumented

NEIGHBOUR = "opentelemetry.genai.client.inference.context"


def _foreign(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("opentelemetry")]


def _exportable(value: object) -> bool:
    if isinstance(value, bool):
        return True
    if isinstance(value, str):
        value.encode()
        return len(value) <= 256
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, float):
        return math.isfinite(value)
    assert isinstance(value, (list, tuple))
    return len(value) <= 128 and all(map(_exportable, value))


def _assert_exportable(captured: Captured) -> None:
    spans = captured.spans
    assert spans
    for span in spans:
        span.name.encode()
        assert [name for name, value in (span.attributes or {}).items() if not _exportable(value)] == []
    for points in captured.metrics().values():
        for point in points:
            assert [name for name, value in point.attributes.items() if not _exportable(value)] == []


def _chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> Raw:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    # Escaped, which is how a lone surrogate comes through.
    return Raw(b"data: " + json.dumps({**whole, **fields}).encode() + b"\n\n")


ANSWERS: dict[str, dict[str, Any]] = {
    "negative usage": {"usage": {"prompt_tokens": -5, "completion_tokens": -1, "total_tokens": -6}},
    "huge usage": {"usage": {"prompt_tokens": 2**63, "completion_tokens": 2**80, "total_tokens": 0}},
    "surrogates": dict.fromkeys(("id", "model", "service_tier", "system_fingerprint"), "a\ud800b"),
    "long": dict.fromkeys(("id", "model", "service_tier", "system_fingerprint"), "x" * 10_000),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_what_a_server_answers_can_be_exported(
    plain: Place, driver: Driver, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    fields = ANSWERS[answer]
    plain.gateway.script("m", [_chunk({"content": "a"}, **fields), _chunk({}, "stop", **fields), Done()])
    with instrumented() as captured:
        told = driver.tell(plain.base_url, "m")
        assert (told.text, told.error) == ("a", None)
        _assert_exportable(captured)
        assert captured.total("gen_ai.client.token.usage") == 0
    assert captured.attributes()["stallwatch.outcome"] == "completed"
    assert _foreign(caplog) == []


REQUESTS: list[dict[str, Any]] = [
    {"n": 20_000_000},
    {"n": 2**64},
    {"max_tokens": 2**70},
    {"seed": 2**63},
    {"temperature": 10**400},
    {"service_tier": "x" * 1000},
    {"reasoning_effort": "x" * 1000},
    {"model": "x" * 10_000},
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda value: repr(value)[:30])
def test_what_a_caller_asks_can_be_exported(
    plain: Place, request_: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    whole = {"model": "m", **request_}
    plain.gateway.script(whole["model"], [Role(), Token("a"), _chunk({}, "stop"), Done()])
    with instrumented() as captured, plain.client() as client:
        chunks = list(client.chat.completions.create(messages=MESSAGES, stream=True, **whole))
        assert chunks[1].choices[0].delta.content == "a"
        _assert_exportable(captured)
    assert _foreign(caplog) == []


def test_a_model_that_cannot_be_sent_fails_as_without_us_and_can_be_exported(plain: Place) -> None:
    def ask() -> str:
        with plain.client() as client, pytest.raises((UnicodeEncodeError, openai.APIError)) as raised:
            client.chat.completions.create(model="a\ud800b", messages=MESSAGES)
        return type(raised.value).__name__

    bare = ask()
    with instrumented() as captured:
        assert ask() == bare
        _assert_exportable(captured)
    assert captured.attributes()["gen_ai.request.model"] == "a?b"


def test_codes_of_failed_responses_are_few_and_carry_no_content(plain: Place) -> None:
    with instrumented() as captured, plain.client() as client:
        for number in range(30):
            code = f"req_{number:06d} what you asked" if number % 2 else "server_error"
            failed = {
                "id": "r",
                "object": "response",
                "status": "failed",
                "error": {"code": code, "message": "m"},
            }
            plain.gateway.script(
                "m", [Event({"type": "response.failed", "response": failed}, event="response.failed")]
            )
            assert list(client.responses.create(model="m", input="x", stream=True))
        points = captured.metrics()["gen_ai.client.operation.duration"]
    assert {point.attributes.get("error.type") for point in points} == {"server_error", "response.failed"}
    assert {span.attributes["error.type"] for span in captured.spans if span.attributes} == {
        "server_error",
        "response.failed",
    }


def test_a_span_its_owner_has_ended_gets_no_event(plain: Place, caplog: pytest.LogCaptureFixture) -> None:
    with instrumented(idle=0.1) as captured:
        theirs = captured.tracer_provider.get_tracer("theirs").start_span("theirs")
        token = context.attach(context.set_value(NEIGHBOUR, True, trace.set_span_in_context(theirs)))
        try:
            with plain.client() as client:
                stream = client.chat.completions.create(
                    model="stall-after:tokens=1,gap=0", messages=MESSAGES, stream=True
                )
                theirs.end()
                with pytest.raises(openai.APITimeoutError):
                    list(stream)
        finally:
            context.detach(token)
        assert captured.total("stallwatch.stalls", stallwatch__stall__action="abort") == 1
    assert not captured.events()
    assert _foreign(caplog) == []
