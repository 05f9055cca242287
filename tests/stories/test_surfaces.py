"""Every surface of the SDK is the SDK's own, and each is watched and told once."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import openai
import pytest

import stallwatch
from stallwatch.testing import FaultGateway
from support.bounds import LIMITS
from support.drivers import MESSAGES, Driver
from support.expect import bare_shape, ended, in_time, released, stalled
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

HEALTHY = "healthy:tokens=5,gap=0"
STALL = "stall-after:tokens=2,gap=0"


@pytest.mark.parametrize("around", ["with", "closing", "bare"])
def test_the_stream_is_the_sdks_own_object(
    gateway: FaultGateway, driver: Driver, captured: Captured, around: str
) -> None:
    async def story(stage: Stage) -> None:
        kind = openai.AsyncStream if stage.is_async else openai.Stream
        async with stage.inside(stage.client(gateway.base_url)) as client:
            stream = await stage.chat(client, HEALTHY)
            assert type(stream) is kind
            assert stream.response.headers["x-request-id"] == "req_gateway000001"
            assert type(stream.response).__module__.split(".")[0] in ("httpx", "httpx2")
            assert iter(stream) is not None if not stage.is_async else aiter(stream) is not None
            first = await stage.step(stream)
            assert first.choices[0].delta.role == "assistant"
            if around == "with":
                async with stage.inside(stream) as entered:
                    assert entered is stream
                    rest = await stage.all(entered)
            elif around == "closing" and not stage.is_async:
                with contextlib.closing(stream) as entered:
                    rest = await stage.all(entered)
            elif around == "closing" and hasattr(stream, "aclose"):
                # Not every release has it; without, closing(...) is no way to leave it there either.
                async with contextlib.aclosing(stream) as entered:
                    assert entered is stream
                    rest = await stage.all(entered)
            else:
                rest = await stage.all(stream)
            assert len(rest) == 6
            assert stream.response.is_closed or around != "with"

    play(driver, story)
    attributes = ended(captured, "completed", chunks=7)
    assert attributes["stallwatch.request.id"] == "req_gateway000001"


async def _parsed_later(stage: Stage, gateway: FaultGateway, model: str) -> list[Any]:
    async with stage.inside(stage.client(gateway.base_url)) as client:
        create = client.chat.completions.with_raw_response.create
        raw = await stage.of(create(model=model, messages=MESSAGES, stream=True))
        assert raw.headers["x-request-id"] == "req_gateway000001"
        assert raw.http_response.status_code == 200
        # The reader's own pause: nobody waits for the server.
        await stage.sleep(LIMITS["first_token"] + 0.1)
        stream = raw.parse()
        assert type(stream) is (openai.AsyncStream if stage.is_async else openai.Stream)
        return await stage.all(stream)


def test_a_raw_response_may_be_parsed_later(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    assert len(play(driver, lambda stage: _parsed_later(stage, gateway, HEALTHY))) == 7
    attributes = ended(captured, "completed", chunks=7)
    assert attributes["stallwatch.request.id"] == "req_gateway000001"


def test_a_raw_response_parsed_later_is_still_watched(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    with pytest.raises(TimeoutError) as caught:
        play(driver, lambda stage: _parsed_later(stage, gateway, STALL))
    stalled(captured, caught.value, phase="idle", limit=LIMITS["idle"], chunks=3)
    released(gateway)


def test_a_raw_response_of_a_whole_answer(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            create = client.chat.completions.with_raw_response.create
            raw = await stage.of(create(model=HEALTHY, messages=MESSAGES))
            assert raw.parse().choices[0].message.content == "t0 t1 t2 t3 t4 "

    play(driver, story)
    attributes = ended(captured, "completed", stream=False)
    assert attributes["gen_ai.usage.output_tokens"] == 5


async def _lines(stage: Stage, gateway: FaultGateway, model: str, told: list[str]) -> None:
    async with stage.inside(stage.client(gateway.base_url)) as client:
        streaming = client.chat.completions.with_streaming_response
        manager = streaming.create(model=model, messages=MESSAGES, stream=True)
        async with stage.inside(manager) as response:
            assert response.headers["x-request-id"].startswith("req_gateway")
            async for line in stage.over(response.iter_lines()):
                told.append(line)  # noqa: PERF401 - a comprehension loses what came before the stall


def test_raw_lines_pass_untouched(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    lines: list[str] = []
    play(driver, lambda stage: _lines(stage, gateway, HEALTHY, lines))
    data = [line.removeprefix("data: ") for line in lines if line]
    assert data[-1] == "[DONE]"
    texts = [json.loads(each)["choices"][0]["delta"].get("content") for each in data[:-1]]
    assert texts == ["", "t0 ", "t1 ", "t2 ", "t3 ", "t4 ", None]
    attributes = ended(captured, "completed")
    assert attributes["stallwatch.request.id"] == "req_gateway000001"


@pytest.mark.parametrize(
    ("model", "wire"), [(STALL, "dead_wire"), ("keepalive:tokens=2,gap=0,every=0.08", "keepalive_only")]
)
def test_raw_lines_are_watched_and_comments_do_not_count(
    gateway: FaultGateway, driver: Driver, captured: Captured, model: str, wire: str
) -> None:
    lines: list[str] = []
    with pytest.raises(TimeoutError) as caught:
        play(driver, lambda stage: _lines(stage, gateway, model, lines))
    error: Any = caught.value
    assert [line for line in lines if "t1 " in line]
    in_time(error.waited, LIMITS["idle"])
    stalled(
        captured,
        error,
        phase="idle",
        limit=LIMITS["idle"],
        wire=wire,
        chunks=captured.attributes()["stallwatch.chunks"],
    )
    released(gateway)


def test_a_streaming_response_can_be_parsed(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    async def story(stage: Stage) -> list[Any]:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            streaming = client.chat.completions.with_streaming_response
            manager = streaming.create(model=HEALTHY, messages=MESSAGES, stream=True)
            async with stage.inside(manager) as response:
                return await stage.all(await stage.of(response.parse()))

    assert len(play(driver, story)) == 7
    ended(captured, "completed", chunks=7)


def test_a_plain_post_is_watched_too(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    async def story(stage: Stage) -> list[Any]:
        from openai.types.chat import ChatCompletionChunk

        kind = openai.AsyncStream if stage.is_async else openai.Stream
        async with stage.inside(stage.client(gateway.base_url)) as client:
            body = {"model": STALL, "messages": MESSAGES, "stream": True}
            made = client.post(
                "/chat/completions",
                body=body,
                cast_to=ChatCompletionChunk,
                stream=True,
                stream_cls=kind[ChatCompletionChunk],
            )
            return await stage.all(await stage.of(made))

    with pytest.raises(TimeoutError) as caught:
        play(driver, story)
    attributes = stalled(captured, caught.value, phase="idle", limit=LIMITS["idle"], chunks=3)
    assert attributes["gen_ai.request.model"] == STALL
    released(gateway)


@pytest.mark.parametrize("made", ["before", "after", "with_options", "copy", "subclass"])
def test_however_the_client_was_made_it_is_watched(gateway: FaultGateway, driver: Driver, made: str) -> None:
    async def story(stage: Stage) -> None:
        before = stage.client(gateway.base_url)
        with instrumented(**LIMITS) as captured:
            client = before if made == "before" else stage.client(gateway.base_url)
            if made == "subclass":

                class Own(type(client)):  # type: ignore[misc]
                    pass

                await stage.close(client)
                client = Own(base_url=gateway.base_url, api_key="sk-test", max_retries=0)
            used = client
            if made in ("with_options", "copy"):
                used = getattr(client, made)(timeout=30)
            async with stage.inside(client):
                stream = await stage.chat(used, STALL)
                with pytest.raises(TimeoutError) as caught:
                    await stage.all(stream)
            stalled(captured, caught.value, phase="idle", limit=LIMITS["idle"], chunks=3)
        if client is not before:
            await stage.close(before)

    play(driver, story)
    released(gateway)


def test_the_policy_of_the_moment_of_the_call_counts(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            with stallwatch.policy(idle=0.15):
                stream = await stage.chat(client, STALL)
            await stage.all(stream)

    with pytest.raises(TimeoutError) as caught:
        play(driver, story)
    attributes = stalled(captured, caught.value, phase="idle", limit=0.15, chunks=3)
    assert attributes["stallwatch.policy.rule"] == "call"


def test_other_endpoints_get_their_span_and_nothing_else(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    async def story(stage: Stage) -> list[str]:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            page = await stage.of(client.models.list())
            return [model.id for model in page.data]

    assert "healthy" in play(driver, story)
    attributes = ended(captured, "completed", stream=False)
    assert "gen_ai.request.model" not in attributes


def test_what_is_switched_off_leaves_no_trace(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    bare = driver.tell(gateway.base_url, HEALTHY)
    with guarded(mode="off") as captured:
        told = driver.tell(gateway.base_url, HEALTHY)
    assert bare_shape(told.chunks) == bare_shape(bare.chunks)
    assert captured.spans == []


def test_a_reader_of_the_private_iterator_is_watched(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    """Some libraries read ``stream._iterator`` themselves."""

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            stream = await stage.chat(client, STALL)
            await stage.all(stream._iterator)

    with pytest.raises(TimeoutError) as caught:
        play(driver, story)
    stalled(captured, caught.value, phase="idle", limit=LIMITS["idle"], chunks=3)
    released(gateway)
