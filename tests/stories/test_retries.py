"""An attempt that fails before anything was delivered is followed by another, under the very objects the user holds."""

from __future__ import annotations

import gzip
from typing import Any

import openai
import pytest

from stallwatch.testing import (
    CloseAbruptly,
    CloseDelimited,
    Comment,
    Comments,
    Done,
    FaultGateway,
    Finish,
    Headers,
    Raw,
    RefuseHeaders,
    Reset,
    Role,
    Silence,
    Status,
    Token,
    Tokens,
    ToolCall,
)
from support.bounds import CLOSE_SEEN, LIMITS
from support.connects import http
from support.drivers import MESSAGES, Driver
from support.expect import Histogram, bare_shape, in_time, released, timeout_error
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

GOOD = [Role(), Token("Hel"), Token("lo"), Finish(), Done()]
SILENT = [Headers(), Silence()]
HALF = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choi'
FIRST, IDLE = LIMITS["first_token"], LIMITS["idle"]


@pytest.fixture(autouse=True)
def quick_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 0.05)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.05)


def attempts(captured: Captured) -> list[dict[str, Any]]:
    """The attempt events of the one span, without the part of their names that is common."""
    return [
        {name.removeprefix("stallwatch."): value for name, value in (event.attributes or {}).items()}
        for event in captured.span.events
        if event.name == "stallwatch.attempt"
    ]


def tell(driver: Driver, gateway: FaultGateway, retries: int = 1, api: str = "chat", **request: Any) -> Any:
    return driver.tell(gateway.base_url, "m", api=api, options={"max_retries": retries}, **request)


@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
def test_a_silent_first_attempt_is_followed_by_one_that_answers(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    gateway.script("m", SILENT, GOOD)
    told = tell(driver, gateway, api=api)
    assert told.error is None
    assert told.text == "Hello"
    first, second = gateway.ledger().requests
    assert first.closed_how in ("fin", "rst")
    assert first.headers_sent_at is not None
    assert first.peer_closed_at is not None
    in_time(first.peer_closed_at - first.headers_sent_at, FIRST)
    # Closed before the wait for the next, so that no connection is held over it.
    assert first.peer_closed_at < second.received_at
    assert [request.retry_count for request in (first, second)] == [0, 1]

    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "completed"
    assert attributes["stallwatch.attempts"] == 2
    assert attributes["stallwatch.stalls"] == 1
    assert attributes["stallwatch.stalled"] is False
    assert "error.type" not in attributes
    one, two = attempts(captured)
    assert (one["attempt.number"], one["outcome"], one["chunks"]) == (1, "stalled", 0)
    assert (one["retry.kind"], one["retry.diagnosis"], one["retry.reason"]) == (
        "transport",
        "retryable",
        "stall",
    )
    assert (one["retry.decision"], one["retry.transport_code"]) == ("retry", "ETIMEDOUT")
    in_time(one["attempt.duration"], FIRST)
    assert (two["attempt.number"], two["attempt.role"], two["outcome"]) == (2, "retry", "completed")
    assert "retry.decision" not in two
    (stall,) = [event.attributes for event in captured.span.events if event.name == "stallwatch.stall"]
    assert stall["stallwatch.stall.phase"] == "first_token"

    first_token = Histogram(captured, "stallwatch.time_to_first_token")
    assert first_token.count == 1
    # What the user waited for it: the first attempt and the pause are part of that, but no sample of their own.
    assert first_token.sum >= FIRST
    assert first_token.sum == pytest.approx(attributes["stallwatch.time_to_first_token"])
    assert captured.total("stallwatch.retries", stallwatch__retry__decision="retry") == 1
    assert captured.total("stallwatch.attempt.duration", stallwatch__outcome="stalled") == 1
    assert captured.total("stallwatch.attempt.duration", stallwatch__outcome="completed") == 1
    assert captured.total("stallwatch.streams") == 1


@pytest.mark.parametrize(
    "first",
    [
        [Headers(), Silence()],
        [RefuseHeaders()],
        [CloseDelimited(), Headers(), Silence()],
        [Raw(HALF), Silence()],
        [Comment(), Silence()],
        [Comment(), Comment(), Raw(HALF), Silence()],
        [Comments(0.05), Silence()],
        [CloseDelimited(), Comment(), Raw(HALF), Silence()],
        [Headers(), Reset()],
        [Headers(), CloseAbruptly()],
        [Raw(HALF), Reset()],
        [Comment(), Raw(HALF), CloseAbruptly()],
    ],
    ids=lambda steps: "-".join(type(step).__name__ for step in steps),
)
def test_what_was_not_delivered_is_not_missed(
    gateway: FaultGateway, driver: Driver, captured: Captured, first: list[Any]
) -> None:
    """Half an event, or comments: the decoder above must not see the first attempt's bytes before the second's."""
    gateway.script("m", first, GOOD)
    gateway.script("bare", GOOD)
    told = tell(driver, gateway)
    bare = driver.tell(gateway.base_url, "bare")
    assert told.error is None
    assert told.text == "Hello"
    assert [chunk["choices"] for chunk in bare_shape(told.chunks)] == [
        chunk["choices"] for chunk in bare_shape(bare.chunks)
    ]
    assert len(gateway.ledger().for_model("m")) == 2
    assert captured.spans[0].attributes["stallwatch.attempts"] == 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("first", "delivered"),
    [
        ([Role(), Silence()], ""),
        ([Role(), Token("Hel"), Silence()], "Hel"),
        ([CloseDelimited(), Role(), Token("Hel"), Silence()], "Hel"),
        ([Role(), Token("Hel"), Comments(0.05)], "Hel"),
        ([Role(), Token("Hel"), Raw(HALF), Silence()], "Hel"),
        ([Role(), ToolCall("f", ['{"a":', " 1"]), Silence()], ""),
    ],
    ids=["role", "text", "close-delimited text", "comments after text", "half an event", "tool arguments"],
)
def test_after_anything_was_delivered_there_is_no_replay(
    gateway: FaultGateway, driver: Driver, captured: Captured, first: list[Any], delivered: str
) -> None:
    gateway.script("m", first, GOOD)
    told = tell(driver, gateway, retries=2)
    assert isinstance(told.error, openai.APITimeoutError), told.error
    assert told.text == delivered
    assert told.chunks
    released(gateway, requests=1)
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "stalled"
    assert attributes["stallwatch.attempts"] == 1
    (only,) = attempts(captured)
    assert only["retry.decision"] == attributes["stallwatch.retry.decision"] == "partial_output"
    assert captured.total("stallwatch.retries", stallwatch__retry__decision="retry") == 0


def test_tool_arguments_cut_short_are_not_followed_by_others(gateway: FaultGateway, driver: Driver) -> None:
    pieces = ['{"city": "Par', 'is"']
    gateway.script("m", [Role(), ToolCall("weather", pieces), Silence()], GOOD)
    with instrumented(**LIMITS):
        told = tell(driver, gateway, retries=2)
    calls = [call for chunk in told.chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert "".join(call.function.arguments or "" for call in calls) == "".join(pieces)
    assert len(gateway.ledger().requests) == 1


@pytest.mark.parametrize(
    "last",
    [[Headers(), Silence()], [RefuseHeaders()], [Comment(), Silence()]],
    ids=["after headers", "before headers", "after a comment"],
)
def test_when_every_attempt_is_silent_the_last_ones_stall_is_raised(
    gateway: FaultGateway, driver: Driver, captured: Captured, last: list[Any]
) -> None:
    gateway.script("m", SILENT, last)
    told = tell(driver, gateway)
    wire = "keepalive_only" if isinstance(last[0], Comment) else "dead_wire"
    timeout_error(told.error, phase="first_token", limit=FIRST, attempt=2, wire=wire)
    assert len(gateway.ledger().requests) == 2
    assert captured.attributes()["stallwatch.outcome"] == "stalled"
    assert captured.attributes()["stallwatch.stalls"] == 2
    one, two = attempts(captured)
    assert (one["retry.decision"], two["retry.decision"]) == ("retry", "exhausted")
    assert (one["outcome"], two["outcome"]) == ("stalled", "stalled")


# What the user holds


def test_the_stream_and_its_response_are_the_same_objects(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script(
        "m", [Headers({"x-served-by": "one"}), Silence()], [Headers({"x-served-by": "two"}), *GOOD]
    )

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=1)) as client:
            stream = await stage.chat(client, "m")
            response = stream.response
            kind = openai.AsyncStream if stage.is_async else openai.Stream
            assert type(stream) is kind
            assert response.headers["x-served-by"] == "one"
            async with stage.inside(stream) as entered:
                assert entered is stream
                chunks = await stage.all(stream)
            assert stream.response is response
            assert response.status_code == 200
            assert response.headers["x-served-by"] == "two"
            assert response.headers["x-request-id"] == gateway.ledger().requests[1].request_id
            assert response.request.headers["x-stainless-retry-count"] == "1"
            assert response.is_closed
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"

    play(driver, story)
    assert captured.attributes()["stallwatch.request.id"] == gateway.ledger().requests[1].request_id


def _one_connection(stage: Stage) -> dict[str, Any]:
    kind = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
    return {"http_client": kind(limits=http.Limits(max_connections=1)), "max_retries": 1}


@pytest.mark.parametrize(
    "first", [SILENT, [Headers(), Reset()], [Status(503)]], ids=["silent", "reset", "503"]
)
def test_one_connection_is_enough_and_free_afterwards(
    gateway: FaultGateway, driver: Driver, captured: Captured, first: list[Any]
) -> None:
    gateway.script("m", first, GOOD)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, **_one_connection(stage))) as client:
            for model in ("m", "m"):
                stream = await stage.chat(client, model)
                assert len(await stage.all(stream)) == 4
                await stage.close(stream)
            pool = client._client._transport._pool
            assert not pool._requests

    play(driver, story)
    assert [span.attributes["stallwatch.attempts"] for span in captured.spans] == [2, 1]  # type: ignore[index]


@pytest.mark.parametrize(
    "first", [SILENT, [Comment(), Raw(HALF), Silence()]], ids=["silent", "half an event"]
)
def test_a_parsed_raw_response_reads_on(
    gateway: FaultGateway, driver: Driver, captured: Captured, first: list[Any]
) -> None:
    gateway.script("m", first, GOOD)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=1)) as client:
            raw = await stage.of(
                client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES, stream=True)
            )
            stream = raw.parse()
            assert len(await stage.all(stream)) == 4
            assert raw.headers["x-request-id"] == gateway.ledger().requests[1].request_id
            await stage.close(stream)

    play(driver, story)
    assert captured.attributes()["stallwatch.attempts"] == 2
    assert captured.attributes()["stallwatch.outcome"] == "completed"


@pytest.mark.parametrize(
    "first", [SILENT, [Raw(HALF), Silence()], [Headers(), Reset()]], ids=["silent", "half an event", "reset"]
)
def test_raw_lines_are_those_of_one_answer(
    gateway: FaultGateway, driver: Driver, captured: Captured, first: list[Any]
) -> None:
    gateway.script("m", first, GOOD)

    async def story(stage: Stage) -> list[str]:
        async with stage.inside(stage.client(gateway.base_url, max_retries=1)) as client:
            opened = client.chat.completions.with_streaming_response.create(
                model="m", messages=MESSAGES, stream=True
            )
            async with stage.inside(opened) as response:
                return [line async for line in stage.over(response.iter_lines()) if line]

    lines = play(driver, story)
    assert [line[:6] for line in lines] == ["data: "] * 5
    assert lines[-1] == "data: [DONE]"
    assert captured.attributes()["stallwatch.attempts"] == 2
    assert captured.attributes()["stallwatch.outcome"] == "completed"


def test_raw_lines_once_handed_on_are_not_replayed(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", [Role(), Silence()], GOOD)
    lines: list[str] = []

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=1)) as client:
            opened = client.chat.completions.with_streaming_response.create(
                model="m", messages=MESSAGES, stream=True
            )
            async with stage.inside(opened) as response:
                with pytest.raises(TimeoutError):
                    async for line in stage.over(response.iter_lines()):
                        lines.append(line)  # noqa: PERF401 - a comprehension loses what came before the error

    play(driver, story)
    assert len([line for line in lines if line]) == 1
    assert len(gateway.ledger().requests) == 1
    assert captured.attributes()["stallwatch.retry.decision"] == "partial_output"


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("leaves", [False, True], ids=["read whole", "break"])
def test_the_helpers_accumulate_one_answer(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str, leaves: bool
) -> None:
    gateway.script("m", SILENT, [Role(), Tokens(3, 0.02), Finish(), Done()])

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=1)) as client:
            if api == "chat":
                owner = (
                    getattr(client.chat.completions, "stream", None) or client.beta.chat.completions.stream
                )
                manager = owner(model="m", messages=MESSAGES)
            elif hasattr(client.responses, "stream"):
                manager = client.responses.stream(model="m", input="hello")
            else:
                pytest.skip("this release has no such helper")
            async with stage.inside(manager) as stream:
                async for _ in stage.over(stream):
                    if leaves:
                        break
                if not leaves and api == "chat":
                    final = await stage.of(stream.get_final_completion())
                    assert final.choices[0].message.content == "t0 t1 t2 "
                elif not leaves:
                    final = await stage.of(stream.get_final_response())
                    assert final.output_text == "t0 t1 t2 "
            if leaves:
                await stage.closed(gateway, CLOSE_SEEN, request=1)

    play(driver, story)
    assert len(gateway.ledger().requests) == 2
    assert captured.attributes()["stallwatch.outcome"] == ("closed_early" if leaves else "completed")
    assert captured.attributes()["stallwatch.attempts"] == 2


GZIP = {"content-encoding": "gzip"}


def _zipped(text: bytes) -> bytes:
    return gzip.compress(text)


BODY = HALF + b'ces":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ([Headers(GZIP), Silence()], [Headers(GZIP), Raw(_zipped(BODY))], "Hello"),
        ([Headers(), Silence()], [Headers(GZIP), Raw(_zipped(BODY))], "Hello"),
        ([Headers(GZIP), Silence()], [Headers(), Raw(BODY)], None),
        ([Headers(GZIP), Raw(_zipped(BODY)[:12]), Silence()], [Headers(GZIP), Raw(_zipped(BODY))], None),
        ([Headers({"content-encoding": "identity"}), Silence()], [Headers(), Raw(BODY)], "Hello"),
    ],
    ids=["both", "only the second", "only the first", "bytes of the first have passed", "identity"],
)
def test_a_compressed_answer_is_spliced_only_where_that_is_sound(
    gateway: FaultGateway,
    driver: Driver,
    captured: Captured,
    first: list[Any],
    second: list[Any],
    text: str | None,
) -> None:
    gateway.script("m", first, second)
    told = tell(driver, gateway)
    if text is None:
        assert isinstance(told.error, openai.APITimeoutError), told.error
        assert told.chunks == []
        assert captured.attributes()["stallwatch.outcome"] == "stalled"
    else:
        assert told.error is None
        assert told.text == text
        assert captured.attributes()["stallwatch.outcome"] == "completed"
    for request in range(len(gateway.ledger().requests)):
        gateway.wait_for(lambda ledger, at=request: ledger.requests[at].closed_how, CLOSE_SEEN)
