"""However a stream is closed, the server sees it, the span says so once, and reading goes on where it may."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import stallwatch
from support.places import MESSAGES, Place, eventually, pool_of, run_on
from support.telemetry import Captured, instrumented

ENDLESS = "endless:gap=0.01"


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def _outcomes(captured: Captured) -> list[Any]:
    return [span.attributes["stallwatch.outcome"] for span in captured.spans]


def _leave(stream: Any) -> None:
    with stream:
        next(stream)


CLOSES: dict[str, Callable[[Any], Any]] = {
    "stream": lambda stream: stream.close(),
    "response": lambda stream: stream.response.close(),
    "with": _leave,
}


@pytest.mark.parametrize("way", CLOSES)
@pytest.mark.parametrize("read", [0, 2])
def test_a_close_between_reads_is_told_once(place: Place, way: str, read: int) -> None:
    with instrumented() as captured, place.client() as client:
        stream = _create(client, ENDLESS)
        for _ in range(read):
            next(stream)
        CLOSES[way](stream)
        CLOSES["stream"](stream)
        place.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"))
        assert pool_of(client) == (0, 0)
    assert _outcomes(captured) == ["closed_early"]


def test_a_helper_that_is_left_closes_the_stream(place: Place) -> None:
    with instrumented() as captured, place.client() as client:
        helpers = getattr(client.chat.completions, "stream", None) or client.beta.chat.completions.stream
        with helpers(model=ENDLESS, messages=MESSAGES) as helper:
            next(helper)
        place.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how)
    assert _outcomes(captured) == ["closed_early"]


async def _leave_async(stream: Any) -> None:
    async with stream:
        await anext(stream)


CLOSES_ASYNC: dict[str, Callable[[Any], Any]] = {
    "stream": lambda stream: stream.close(),
    "response": lambda stream: stream.response.aclose(),
    "with": _leave_async,
}


@pytest.mark.parametrize("way", CLOSES_ASYNC)
@pytest.mark.parametrize("read", [0, 2])
def test_an_async_close_between_reads_is_told_once(plain: Place, loop: str, way: str, read: int) -> None:
    async def story() -> None:
        async with plain.async_client() as client:
            stream = await _create(client, ENDLESS)
            for _ in range(read):
                await anext(stream)
            await CLOSES_ASYNC[way](stream)
            await stream.close()
            await plain.gateway.wait_for_async(lambda ledger: ledger.requests[0].closed_how)
            assert pool_of(client) == (0, 0)

    with instrumented() as captured:
        run_on(loop, story())
    assert _outcomes(captured) == ["closed_early"]


PAUSED = "slow:tokens=6,gap=0.02"


def test_reading_resumes_after_a_break_and_a_long_pause(place: Place) -> None:
    with instrumented(idle=0.1, first_token=1, thinking=0.1) as captured, place.client() as client:
        stream = _create(client, PAUSED)
        chunks = []
        for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 3:
                break
        time.sleep(0.3)
        chunks += list(stream)
    assert len(chunks) == 8
    assert _outcomes(captured) == ["completed"]


def test_async_reading_resumes_after_a_break_and_a_long_pause(place: Place, loop: str) -> None:
    async def story() -> int:
        async with place.async_client() as client:
            stream = await _create(client, PAUSED)
            number = 0
            async for _ in stream:
                number += 1
                if number == 3:
                    break
            await asyncio.sleep(0.3)
            async for _ in stream:
                number += 1
            return number

    with instrumented(idle=0.1, first_token=1, thinking=0.1) as captured:
        assert run_on(loop, story()) == 8
    assert _outcomes(captured) == ["completed"]


def test_a_stall_after_a_resume_is_a_stall_again_and_again(place: Place) -> None:
    with instrumented(idle=0.1, first_token=1) as captured, place.client() as client:
        stream = _create(client, "stall-after:tokens=3,gap=0")
        for _ in stream:
            break
        time.sleep(0.2)
        for _ in range(3):
            with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
                list(stream)
            assert caught.value.chunks_received == 4
    assert _outcomes(captured) == ["stalled"]


@pytest.mark.parametrize("way", ["stream", "response"])
def test_a_close_from_another_task_ends_the_wait(place: Place, loop: str, way: str) -> None:
    async def story() -> float:
        async with place.async_client() as client:
            stream = await _create(client, "stall-after:tokens=1,gap=0")
            await anext(stream)
            await anext(stream)
            reading = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0.05)
            await CLOSES_ASYNC[way](stream)
            closed = time.monotonic()
            await asyncio.wait([reading], timeout=5)
            assert reading.done()
            assert not isinstance(reading.exception(), stallwatch.StallwatchError)
            waited = time.monotonic() - closed
            await place.gateway.wait_for_async(lambda ledger: ledger.requests[0].closed_how)
            return waited

    with instrumented() as captured:
        assert run_on(loop, story()) < 0.5
    assert _outcomes(captured) == ["closed_early"]


@pytest.mark.parametrize("way", ["stream", "response"])
def test_a_close_from_another_thread_ends_the_wait(place: Place, way: str) -> None:
    seen: list[BaseException | float] = []

    def read(stream: Any) -> None:
        try:
            list(stream)
        except Exception as error:
            seen.append(error)
        seen.append(time.monotonic())

    with instrumented() as captured, place.client() as client:
        stream = _create(client, "stall-after:tokens=1,gap=0")
        thread = threading.Thread(target=read, args=(stream,))
        thread.start()
        place.gateway.wait_for(lambda ledger: ledger.requests[0].count("token"))
        time.sleep(0.05)
        closed = time.monotonic()
        CLOSES[way](stream)
        thread.join(5)
        assert not thread.is_alive()
        assert isinstance(seen[-1], float)
        assert seen[-1] - closed < 0.5
        assert not isinstance(seen[0], stallwatch.StallwatchError)
        place.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how)
        eventually(lambda: pool_of(client) == (0, 0))
    assert _outcomes(captured) == ["closed_early"]
