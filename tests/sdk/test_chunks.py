"""What is learned from a response, whatever the server puts into it."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseErrorEvent, ResponseFailedEvent

from stallwatch.sdk import chunks
from stallwatch.sdk.chunks import Reader, Response, read_whole


def chunk(**fields: Any) -> ChatCompletionChunk:
    whole = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [],
        **fields,
    }
    return ChatCompletionChunk.construct(**whole)


@pytest.mark.parametrize(
    ("reported", "known"),
    [
        (3, 3),
        (0, 0),
        (-1, None),
        (2**63, None),
        (True, None),
        (1.5, None),
        ("3", None),
        (None, None),
    ],
)
def test_a_counter_is_a_whole_number_of_64_bits_or_not_reported(reported: Any, known: int | None) -> None:
    response = Response()
    details = {"cached_tokens": reported, "reasoning_tokens": reported}
    response.note_usage(
        {
            "prompt_tokens": reported,
            "completion_tokens": reported,
            "prompt_tokens_details": details,
            "completion_tokens_details": details,
        }
    )
    usage = response.usage
    assert (usage.input, usage.output, usage.cache_read, usage.reasoning) == (known,) * 4


def test_a_bad_counter_does_not_replace_a_good_one() -> None:
    response = Response()
    assert response.note_usage({"completion_tokens": 5})
    assert not response.note_usage({"completion_tokens": -5})
    assert response.usage.output == 5


@pytest.mark.parametrize("field", ["id", "model", "service_tier", "system_fingerprint"])
@pytest.mark.parametrize(("sent", "kept"), [("a\ud800", "a?"), ("y" * 10_000, "y" * 256), ("ok", "ok")])
def test_identity_can_be_encoded_and_is_short(field: str, sent: str, kept: str) -> None:
    reader = Reader()
    reader.facts(chunk(**{field: sent}))
    own = "fingerprint" if field == "system_fingerprint" else field
    assert getattr(reader.response, own) == kept
    whole = read_whole({"id": "c", field: sent})
    assert getattr(whole.response, own) == kept


@pytest.mark.parametrize(("choices", "length"), [(1, 1), (3, 3), (128, 128), (20_000_000, 128)])
def test_finish_reasons_are_a_short_list(choices: int, length: int) -> None:
    response = Response()
    response.note_choice(0, "stop")
    assert response.finish_reasons(choices) == ["stop"] + ["error"] * (length - 1)


def test_many_choices_finished_by_the_server_are_a_short_list_too() -> None:
    response = Response()
    for index in range(1000):
        assert response.note_choice(index, "stop")
    assert response.finish_reasons(1) == ["stop"] * 128


def test_choices_that_a_server_makes_up_take_no_more_than_a_few_kilobytes() -> None:
    response = Response()
    for index in (*range(0, 1 << 20, 7), -1, 10**30):
        response.note_choice(index, "stop")
    assert not response.note_choice(7, "length")
    assert sys.getsizeof(response._finished) < 10_000
    assert len(response._reasons or ()) <= 128
    assert response.finish_reasons(1) == [("stop" if index % 7 == 0 else "error") for index in range(128)]


def test_a_finish_reason_is_short_and_can_be_encoded() -> None:
    reader = Reader()
    reader.facts(chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "\ud800" + "z" * 10_000}]))
    assert reader.response.finish_reasons(1) == ["?" + "z" * 255]


@pytest.mark.parametrize(
    ("sent", "failed", "error"),
    [
        ("server_error", "server_error", "server_error"),
        ("SERVER_ERROR", "server_error", "server_error"),
        ("req_000123 and what you asked", "response.failed", "error"),
        ("", "response.failed", "error"),
        (None, "response.failed", "error"),
        (500, "response.failed", "error"),
    ],
)
def test_the_code_of_a_failure_is_one_of_few(sent: Any, failed: str, error: str) -> None:
    reader = Reader()
    response = {"id": "r", "status": "failed", "error": {"code": sent, "message": "m"}}
    reader.facts(ResponseFailedEvent.construct(type="response.failed", response=response))
    assert reader.failure() == failed
    reader = Reader()
    reader.facts(ResponseErrorEvent.construct(type="error", code=sent, message="m"))
    assert reader.failure() == error


def test_names_that_servers_make_up_are_not_kept_for_good() -> None:
    for number in range(1000):
        response = Response()
        response.note_identity({"model": f"m-{number}", "system_fingerprint": f"fp-{number}"})
        assert (response.model, response.fingerprint) == (f"m-{number}", f"fp-{number}")
    assert len(chunks._texts) <= chunks._TEXTS_KEPT


@pytest.mark.parametrize("content", [[{"type": "thinking", "thinking": "a"}], 5], ids=["parts", "number"])
def test_content_that_is_no_text_means_the_same_in_every_chunk(content: Any) -> None:
    said = chunk(choices=[{"index": 0, "delta": {"content": content}, "finish_reason": None}])
    reader = Reader()
    first, later = reader.facts(said), reader.facts(said)
    assert first is later
    assert reader.response.characters == 0
