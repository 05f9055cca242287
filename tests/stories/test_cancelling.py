"""The user's cancel wins, passes unchanged, is told as such, and stops the server's work."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import openai
import pytest

from stallwatch.testing import FaultGateway
from support import leaks
from support.bounds import CLOSE_SEEN, LIMITS
from support.drivers import ASYNC, MESSAGES, SYNC, Driver
from support.expect import ended, in_time, released
from support.stage import Stage, play
from support.telemetry import Captured

SLOW = "slow:tokens=40,gap=0.05"
ENDLESS = "endless:gap=0.03"


@pytest.mark.parametrize("when", ["before the headers", "before the first token", "in mid-answer"])
@pytest.mark.parametrize("how", ["task.cancel", "asyncio.timeout", "anyio scope", "wait_for"])
def test_a_cancelled_task_is_cancelled(
    gateway: FaultGateway, captured: Captured, when: str, how: str
) -> None:
    models = {"before the headers": "never-responds", "before the first token": "silent"}
    model = models.get(when, SLOW)
    chunks: list[Any] = []

    async def read() -> None:
        async with Stage(ASYNC).client(gateway.base_url) as client:
            stream = await Stage(ASYNC).chat(client, model)
            async for chunk in stream:
                chunks.append(chunk)  # noqa: PERF401 - a comprehension loses what came before the cancel

    async def story(_: Stage) -> float:
        started = time.monotonic()
        if how == "task.cancel":
            task = asyncio.create_task(read())
            await asyncio.sleep(0.2)
            task.cancel("own text")
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert caught.value.args == ("own text",)
        elif how == "asyncio.timeout":
            with pytest.raises(TimeoutError) as timed:
                async with asyncio.timeout(0.2):
                    await read()
            assert not isinstance(timed.value, openai.OpenAIError)
        elif how == "wait_for":
            with pytest.raises(TimeoutError) as timed:
                await asyncio.wait_for(read(), 0.2)
            assert not isinstance(timed.value, openai.OpenAIError)
        else:
            with anyio.move_on_after(0.2) as scope:
                await read()
            assert scope.cancelled_caught
        own = asyncio.current_task()
        assert own is not None
        assert own.cancelling() == 0
        return time.monotonic() - started

    in_time(play(ASYNC, story), 0.2)
    attributes = ended(captured, "cancelled", chunks=len(chunks))
    assert (attributes["stallwatch.chunks"] > 0) is (model == SLOW)
    released(gateway)


def test_a_cancel_in_the_same_tick_as_the_stall_wins(gateway: FaultGateway, captured: Captured) -> None:
    """The user's cancel comes while ours is on its way: it must come out, and the task must end cancelled."""

    async def story(stage: Stage) -> None:
        async with stage.client(gateway.base_url) as client:
            stream = await stage.chat(client, "stall-after:tokens=1,gap=0")
            await stage.take(stream, 2)
            task = asyncio.create_task(stage.step(stream))

            def cancel_both() -> None:
                # Late enough that our own shot is due in this very turn of the loop.
                time.sleep(0.03)
                task.cancel()

            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(LIMITS["idle"] - 0.02, cancel_both)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

    play(ASYNC, story)
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"
    assert captured.attributes()["stallwatch.stalled"] is False
    released(gateway)


@pytest.mark.parametrize("model", ["silent", SLOW])
def test_ctrl_c_in_a_synchronous_loop_is_a_cancel(
    gateway: FaultGateway, captured: Captured, model: str
) -> None:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))

    async def story(stage: Stage) -> None:
        with stage.client(gateway.base_url) as client:
            stream = await stage.chat(client, model)
            timer.start()
            await stage.all(stream)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            play(SYNC, story)
    finally:
        signal.signal(signal.SIGINT, before)
        timer.join()
    ended(captured, "cancelled")
    released(gateway)


def test_ctrl_c_in_the_readers_own_code_is_a_cancel(gateway: FaultGateway, captured: Captured) -> None:
    with (
        SYNC.client(gateway.base_url) as client,
        pytest.raises(KeyboardInterrupt),
        client.chat.completions.create(model=SLOW, messages=MESSAGES, stream=True) as stream,
    ):
        for _ in range(3):
            next(stream)
        raise KeyboardInterrupt
    ended(captured, "cancelled", chunks=3)
    released(gateway)


async def _body(client: Any) -> AsyncIterator[bytes]:
    """A user's own streaming endpoint, which closes nothing explicitly."""
    stream = await client.chat.completions.create(model=ENDLESS, messages=MESSAGES, stream=True)
    async for chunk in stream:
        yield (chunk.choices[0].delta.content or "").encode()


async def _serve_until_disconnect(client: Any, chunks: int) -> None:
    """What Starlette does: the body is sent in a task group, and a disconnect cancels its scope."""
    sent: list[bytes] = []

    async def respond(group: anyio.abc.TaskGroup) -> None:
        async for piece in _body(client):
            sent.append(piece)
            if len(sent) == chunks:
                group.cancel_scope.cancel()
                # The cancel arrives at the next wait, which is inside the SDK's read.

    async with anyio.create_task_group() as group:
        group.start_soon(respond, group)


def test_a_web_client_that_leaves_cancels_the_upstream_call(
    gateway: FaultGateway, captured: Captured
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.client(gateway.base_url) as client:
            await _serve_until_disconnect(client, 3)
            await stage.closed(gateway, CLOSE_SEEN)
            answer = await stage.chat(client, "healthy:gap=0", stream=False)
            assert answer.choices[0].message.content

    play(ASYNC, story)
    first, second = captured.spans
    assert first.attributes["stallwatch.outcome"] == "cancelled"
    assert first.attributes["stallwatch.chunks"] == 3
    assert second.attributes["stallwatch.outcome"] == "completed"
    assert captured.total("stallwatch.streams") == 1


def test_a_body_iterator_that_is_closed_ends_the_call(gateway: FaultGateway, captured: Captured) -> None:
    async def story(stage: Stage) -> None:
        async with stage.client(gateway.base_url) as client:
            async with contextlib.aclosing(_body(client)) as body:
                for _ in range(3):
                    await anext(body)
            # Nobody closed the SDK's stream; it goes when it is collected.
            await _collected(stage, gateway)

    play(ASYNC, story)
    leaks.wait_until(lambda: captured.spans, lambda: "no span has ended")
    ended(captured, "abandoned", chunks=3)


async def _collected(stage: Stage, gateway: FaultGateway) -> None:
    """Collect until the gateway sees the close: the SDK's nested generators go one after another."""
    deadline = time.monotonic() + 5.0
    while not gateway.ledger().requests[0].closed_how:
        assert time.monotonic() < deadline, gateway.ledger()
        gc.collect()
        await stage.sleep(0.02)


def test_a_body_iterator_that_is_dropped_frees_its_connection(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    """A web server that drops the body without closing it: the connection goes with it, and the call is told."""

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, **_one_connection(stage))) as client:
            await _drop(stage, client)
            await _collected(stage, gateway)
            answer = await stage.chat(client, "healthy:gap=0", stream=False)
            assert answer.choices[0].message.content

    play(driver, story)
    leaks.wait_until(lambda: len(captured.spans) == 2, lambda: captured.spans)
    outcomes = {span.attributes["stallwatch.outcome"] for span in captured.spans}
    assert outcomes == {"abandoned", "completed"}


async def _drop(stage: Stage, client: Any) -> None:
    if stage.is_async:
        body = _body(client)
        for _ in range(3):
            await anext(body)
    else:
        pieces = _sync_body(client)
        for _ in range(3):
            next(pieces)


def _sync_body(client: Any) -> Iterator[bytes]:
    stream = client.chat.completions.create(model=ENDLESS, messages=MESSAGES, stream=True)
    for chunk in stream:
        yield (chunk.choices[0].delta.content or "").encode()


def _one_connection(stage: Stage) -> dict[str, Any]:
    kind = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
    try:
        import httpx2 as httpx
    except ImportError:
        import httpx  # type: ignore[no-redef]
    return {"http_client": kind(limits=httpx.Limits(max_connections=1))}
