"""Every way a stream can end without a stall: one span, the right outcome, and the bare SDK's own behaviour."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from stallwatch.testing import FaultGateway, Role, Token, Tokens
from stallwatch.testing import Raw as RawBytes
from support.bounds import CLOSE_SEEN, LIMITS
from support.drivers import MESSAGES, Driver
from support.expect import Histogram, bare_shape, ended, in_time, released
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

SLOW = "slow:tokens=20,gap=0.03"


class Mine(Exception):
    """The user's own."""


@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
def test_a_full_read_is_completed(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    told = driver.tell(gateway.base_url, "healthy:tokens=5,gap=0.01", api=api)
    assert (told.error, told.text) == (None, "t0 t1 t2 t3 t4 ")
    attributes = ended(captured, "completed", chunks=len(told.chunks))
    operation = "text_completion" if api == "completions" else "chat"
    assert captured.span.name == f"{operation} healthy:tokens=5,gap=0.01"
    assert attributes["gen_ai.operation.name"] == operation
    assert attributes["gen_ai.request.stream"] is True
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["stallwatch.request.id"] == gateway.ledger().requests[0].request_id
    released(gateway)


@pytest.mark.parametrize("way", ["with and break", "close", "exception", "closing", "break and close later"])
def test_leaving_early_is_closed_early(
    gateway: FaultGateway, driver: Driver, captured: Captured, way: str
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            stream = await stage.chat(client, SLOW)
            await _leave(stage, stream, way)
            await stage.closed(gateway, CLOSE_SEEN)
            assert captured.span

    play(driver, story)
    attributes = ended(captured, "closed_early", chunks=4)
    assert attributes["gen_ai.response.finish_reasons"] == ("error",)
    assert len(gateway.ledger().requests) == 1


async def _leave(stage: Stage, stream: Any, way: str) -> None:
    match way:
        case "with and break":
            async with stage.inside(stream):
                await stage.take(stream, 4)
        case "exception":
            with pytest.raises(Mine) as caught:
                async with stage.inside(stream):
                    await stage.take(stream, 4)
                    raise Mine("own text")
            assert caught.value.args == ("own text",)
        case "closing":
            if stage.is_async and not hasattr(stream, "aclose"):
                await stage.take(stream, 4)
                await stream.close()
                return
            around = contextlib.aclosing if stage.is_async else contextlib.closing
            async with stage.inside(around(stream)):
                await stage.take(stream, 4)
        case _:
            await stage.take(stream, 4)
            await stage.close(stream)
            await stage.close(stream)


def test_closing_before_the_first_read_is_closed_early(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            await stage.close(await stage.chat(client, SLOW))
            await stage.closed(gateway, CLOSE_SEEN)

    play(driver, story)
    attributes = ended(captured, "closed_early", chunks=0)
    assert "stallwatch.time_to_first_token" not in attributes


def test_break_and_resume_reads_on(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    async def story(stage: Stage) -> list[Any]:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            stream = await stage.chat(client, "slow:tokens=6,gap=0.02")
            chunks = []
            async for chunk in stage.over(stream):
                chunks.append(chunk)
                if len(chunks) == 3:
                    break
            return [*chunks, await stage.step(stream), *await stage.all(stream)]

    chunks = play(driver, story)
    texts = [chunk.choices[0].delta.content for chunk in chunks]
    assert texts == ["", "t0 ", "t1 ", "t2 ", "t3 ", "t4 ", "t5 ", None]
    ended(captured, "completed", chunks=8)


def test_reading_on_after_the_end_ends_again(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            stream = await stage.chat(client, "healthy:tokens=1,gap=0")
            assert len(await stage.all(stream)) == 3
            assert await stage.all(stream) == []
            await stage.close(stream)

    play(driver, story)
    ended(captured, "completed", chunks=3)


def test_a_whole_answer_followed_by_silence_ends_quietly(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    told = driver.tell(gateway.base_url, "finish-then-silence:tokens=3,gap=0")
    assert told.error is None
    assert told.text == "t0 t1 t2 "
    in_time(told.after_last, LIMITS["idle"])
    ended(captured, "completed", chunks=5)
    released(gateway)


def test_a_late_usage_chunk_still_arrives_after_the_finish(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    from stallwatch.testing import Done, Finish, Usage, Wait

    gateway.script("m", [Role(), Tokens(2), Finish(), Wait(0.1), Usage(), Done()])
    told = driver.tell(gateway.base_url, "m")
    assert told.error is None
    assert told.chunks[-1].usage.completion_tokens == 2
    assert ended(captured, "completed", chunks=5)["gen_ai.usage.output_tokens"] == 2


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_lingering_after_the_end_mark_is_no_stall(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    """Newer SDKs stop at the mark, older ones read on; either way the answer is whole and nothing hangs."""
    told = driver.tell(gateway.base_url, "done-then-linger:tokens=3,gap=0", api=api)
    assert told.error is None
    assert told.text == "t0 t1 t2 "
    assert told.after_last < LIMITS["idle"] + 0.3
    ended(captured, "completed", chunks=len(told.chunks))
    released(gateway)


@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
def test_a_body_that_ends_without_a_finish_is_truncated(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    told = driver.tell(gateway.base_url, "truncated:tokens=3,gap=0", api=api)
    assert told.error is None
    assert told.text == "t0 t1 t2 "
    attributes = ended(captured, "truncated", chunks=len(told.chunks), error_type="truncated")
    if api != "responses":
        assert attributes["gen_ai.response.finish_reasons"] == ("error",)


BROKEN = [
    ("truncated:tokens=2,gap=0", "truncated", "truncated"),
    ("cut:tokens=2", "failed", "APIConnectionError"),
    ("reset:tokens=2", "failed", "APIConnectionError"),
    ("error-frame", "failed", "502"),
    ("error-frame:tokens=2", "failed", "502"),
    ("error-frame:style=choices", "failed", "502"),
    ("error-status:code=500", "failed", "InternalServerError"),
    ("error-status:code=404", "failed", "NotFoundError"),
    ("non-sse", None, None),
    ("not json", "failed", None),
]


@pytest.mark.parametrize(("model", "outcome", "error_type"), BROKEN, ids=str)
def test_what_is_not_ours_is_the_bare_sdks(
    gateway: FaultGateway, driver: Driver, model: str, outcome: str | None, error_type: str | None
) -> None:
    gateway.script("not json", [Role(), Token("t"), RawBytes(b"data: {broken\n\n")])
    bare = driver.tell(gateway.base_url, model)
    with instrumented(**LIMITS) as captured:
        told = driver.tell(gateway.base_url, model)
    assert bare_shape(told.chunks) == bare_shape(bare.chunks)
    assert type(told.error) is type(bare.error)
    assert str(told.error) == str(bare.error)
    assert type(getattr(told.error, "__cause__", None)) is type(getattr(bare.error, "__cause__", None))
    assert len(gateway.ledger().requests) == 2
    attributes = captured.attributes()
    if outcome is not None:
        assert attributes["stallwatch.outcome"] == outcome
    if error_type is not None:
        assert attributes["error.type"] == error_type
    assert attributes["stallwatch.stalled"] is False
    assert captured.total("stallwatch.stalls") == 0
    assert attributes["stallwatch.chunks"] == len(bare.chunks)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_connection_refused_is_the_bare_sdks(driver: Driver, api: str) -> None:
    from stallwatch.testing import refusing_address

    with refusing_address() as address:
        bare = driver.tell(address.base_url, "m", api=api)
        with instrumented(**LIMITS) as captured:
            told = driver.tell(address.base_url, "m", api=api)
            ended(captured, "failed", chunks=0, error_type="APIConnectionError")
    assert type(told.error) is type(bare.error)
    assert str(told.error) == str(bare.error)


@pytest.mark.parametrize(
    ("model", "outcome", "code"),
    [
        ("error-frame:style=failed,tokens=1,code=rate_limit_exceeded", "failed", "rate_limit_exceeded"),
        ("error-frame:tokens=1,code=server_error", "failed", "server_error"),
    ],
)
def test_a_response_that_says_it_failed_has_failed(
    gateway: FaultGateway, driver: Driver, captured: Captured, model: str, outcome: str, code: str
) -> None:
    told = driver.tell(gateway.base_url, model, api="responses")
    assert told.error is None
    ended(captured, outcome, chunks=len(told.chunks), error_type=code)


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("raw", [False, True], ids=["parsed", "raw"])
def test_an_answer_that_is_an_error_has_failed_though_the_sdk_takes_it(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str, raw: bool
) -> None:
    async def ask(stage: Stage) -> object:
        client = stage.client(gateway.base_url)
        surface = client.responses if api == "responses" else client.chat.completions
        asked = {"input": "hi"} if api == "responses" else {"messages": MESSAGES}
        make = surface.with_raw_response if raw else surface
        async with stage.inside(client):
            return await stage.of(make.create(model="error-frame:code=server_error", **asked))

    play(driver, ask)
    ended(captured, "failed", error_type="server_error", stream=False)


def test_a_response_cut_short_by_its_length_is_completed(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    from stallwatch.testing import Done, Finish

    gateway.script("m", [Role(), Tokens(2), Finish("length"), Done()])
    told = driver.tell(gateway.base_url, "m", api="responses")
    assert told.error is None
    attributes = ended(captured, "completed", chunks=len(told.chunks))
    assert attributes["gen_ai.response.finish_reasons"] == ("length",)


def test_a_closed_early_stream_still_counts_what_it_measured(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    driver.tell(gateway.base_url, SLOW, stop_after=5)
    attributes = ended(captured, "closed_early", chunks=5)
    assert Histogram(captured, "stallwatch.time_to_first_token").count == 1
    assert Histogram(captured, "gen_ai.client.operation.time_per_output_chunk").count == 3
    assert attributes["stallwatch.gap.max"] < 0.2
