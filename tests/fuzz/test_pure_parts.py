"""What reads servers' bytes, objects and headers takes whatever comes, each part by itself."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from benchmarks.feed import http_library
from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from fuzz.profile import examples
from fuzz.shapes import ANY_JSON, TEMPLATES, bent, errors, written
from fuzz.wires import bodies, cuts
from stallwatch import classify
from stallwatch.core.chunks import ChunkFacts, delta_facts, event_facts, only_comments
from stallwatch.core.classify import Failure, Verdict, verdict_of
from stallwatch.core.opening import Opening
from stallwatch.core.phases import Limits
from stallwatch.core.words import Mode
from stallwatch.durations import LONGEST
from stallwatch.resolution import ResolvedPolicy
from stallwatch.runtime.error_frames import failure_in, failure_of_frame
from stallwatch.runtime.failures import describe
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.retry_after import server_wait, should_retry_header
from stallwatch.sdk.chunks import Reader, read_whole
from stallwatch.telemetry.recorder import Call, Recorders

http: Any = http_library()
REQUEST = http.Request("POST", "http://model.test/v1/chat/completions")
SURFACES = sorted(TEMPLATES)

BODIES = st.sampled_from(SURFACES).flatmap(bodies)
TEXTS = st.text(max_size=24) | st.binary(max_size=24).map(lambda data: data.decode("latin-1"))
OBJECTS = (
    ANY_JSON
    | errors()
    | st.sampled_from(SURFACES).flatmap(
        lambda surface: st.sampled_from([template for _, template in TEMPLATES[surface]]).flatmap(bent)
    )
)
VALUES = OBJECTS.map(lambda value: json.loads(written(value)))


class _Deaf:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def new_run() -> InFlight:
    policy = ResolvedPolicy(
        limits=Limits(connect=None, first_token=60, thinking=60, idle=60, total=None),
        mode=Mode.ENFORCE,
        gaps="all",
        max_retries=0,
        retries_explicit=True,
        hidden_reasoning=False,
        rule="default",
        backstop=300,
    )
    call = Call(operation="chat", provider="openai", model="m", stream=False)
    return InFlight(call, policy, Recorders(_Deaf(), _Deaf()))


# The beginning and the end of an event stream


@given(data=st.data())
@examples(80)
def test_the_opening_hands_on_every_byte_in_its_order_however_it_is_cut(data) -> None:
    body = data.draw(BODIES)
    opening = Opening()
    passed = [piece if opening.over else opening.take(piece) for piece in data.draw(cuts(body))]
    assert b"".join(passed) + opening.rest() == body


@given(data=st.data())
@examples(80)
def test_the_first_event_is_the_one_the_sdk_reads(data) -> None:
    body = data.draw(BODIES)
    opening = Opening()
    for piece in data.draw(cuts(body)):
        if not opening.over:
            opening.take(piece)
    if not opening.event:
        return
    try:
        # The SDK's decoder refuses what is no UTF-8.
        first = next(iter(SSEDecoder().iter_bytes(iter([body]))), None)
    except UnicodeDecodeError:
        return
    assert first is not None
    assert first.data.encode() == opening.event


@given(body=BODIES, data=st.data())
@examples(80)
def test_the_end_mark_is_seen_however_it_is_cut(body, data) -> None:
    end = data.draw(st.sampled_from([b"data: [DONE]", b"data:[DONE]"]))
    whole = body + b"\n\n" + end + data.draw(st.sampled_from([b"", b"\n", b"\n\n", b"\r\n\r\n"]))
    run = new_run()
    for piece in data.draw(cuts(whole)):
        run.on_bytes(piece)
    assert run.tracker.end_marked


@given(body=BODIES, data=st.data())
@examples(80)
def test_what_ends_in_no_end_mark_is_not_taken_for_one(body, data) -> None:
    event = data.draw(st.sampled_from([b'{"a": "data: [DONE]"}', b"x data: [DONE]", b"[DONE]", b"a"]))
    run = new_run()
    for piece in data.draw(cuts(body + b"\n\nevent: " + event + b"\n\n")):
        run.on_bytes(piece)
    assert not run.tracker.end_marked


@given(data=st.binary(max_size=40))
@examples(80)
def test_any_bytes_are_comments_or_not(data) -> None:
    assert only_comments(data) in (True, False)


# What chunks and answers mean


@given(value=VALUES, kind=st.sampled_from([None, "error", "response.failed", "thread.run.failed"]) | TEXTS)
@examples(120)
def test_any_object_has_a_meaning(value, kind) -> None:
    assert isinstance(event_facts(kind, kind), ChunkFacts)
    if isinstance(value, dict):
        assert isinstance(delta_facts(value.items()), ChunkFacts)


class _Chunk(openai.BaseModel):
    """A model that takes whatever comes, as the SDK's do."""


def chunk_of(value: object) -> Any:
    return _Chunk.construct(**value) if isinstance(value, dict) else value


@given(values=st.lists(VALUES, max_size=4))
@examples(80)
def test_any_chunks_leave_the_reader_able_to_tell_how_it_ended(values) -> None:
    run, reader = new_run(), Reader()
    run.reader = reader
    for value in values:
        run.wait()
        run.on_facts(reader.facts(chunk_of(value)))
        assert not run.tracker.waiting
    assert isinstance(reader.failure(), str | None)
    assert isinstance(reader.has_end_mark, bool)
    run.end_of_body()
    assert run.ended


@given(value=VALUES, generates=st.booleans())
@examples(80)
def test_any_answer_can_be_read_or_is_left(value, generates) -> None:
    try:
        read_whole(chunk_of(value), generates=generates)
    except (AttributeError, TypeError, ValueError):
        # Its caller leaves such an answer unread.
        pass


# What failures say


@given(value=VALUES)
@examples(120)
def test_any_error_frame_has_a_verdict(value) -> None:
    failure = failure_of_frame(value)
    assert isinstance(failure, Failure | None)
    if failure is not None:
        assert isinstance(verdict_of(failure), Verdict)


@given(
    body=VALUES,
    status=st.integers(100, 999),
    header=TEXTS,
    name=st.sampled_from(["x-request-id", "retry-after"]),
)
@examples(80)
def test_any_error_has_a_verdict_and_a_description_without_its_words(body, status, header, name) -> None:
    headers = [(name.encode(), header.encode("utf-8", "replace"))]
    response = http.Response(status, headers=headers, request=REQUEST)
    for error in (
        openai.APIStatusError("secret", response=response, body=body),
        openai.APIError("secret", REQUEST, body=body),
    ):
        assert isinstance(classify(error), Verdict)
        kind, text, found = describe(error, None)
        assert "secret" not in kind + text
        assert found in (None, status)


@given(seconds=TEXTS, milliseconds=TEXTS, says=TEXTS, now=st.floats(0, 4e9))
@examples(120)
def test_any_headers_say_how_long_to_wait_or_nothing(seconds, milliseconds, says, now) -> None:
    headers = {"retry-after": seconds, "retry-after-ms": milliseconds, "x-should-retry": says}
    wait = server_wait(headers, now)
    assert wait is None or 0 < wait <= LONGEST
    assert should_retry_header(headers) in (True, False, None)


@pytest.mark.parametrize("depth", [10, 100_000])
def test_an_error_nested_deeper_than_the_parser_goes_is_no_failure_of_ours(depth: int) -> None:
    opening = Opening()
    opening.take(b'data: {"error":' + b"[" * depth + b"]" * depth + b"}\n\n")
    assert isinstance(failure_in(opening.event or b""), Failure | None)
