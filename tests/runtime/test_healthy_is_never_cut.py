"""What only looks silent is not a stall: slow readers, buffered bytes, blocked and busy loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stallwatch.testing import Done, Finish, Role, Tokens, Wait
from support.places import MESSAGES, Place, places, run_on
from support.telemetry import Captured, instrumented

Pauses = dict[int, float]
Hook = Callable[[int], None]


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def _read(place: Place, model: str, pauses: Pauses) -> str:
    """Return the text; ``pauses`` are seconds by the number of the chunk they follow."""
    text = ""
    with place.client() as client, _create(client, model) as stream:
        for number, chunk in enumerate(stream, 1):
            text += chunk.choices[0].delta.content or ""
            time.sleep(pauses.get(number, 0.0))
    return text


async def _read_async(place: Place, model: str, pauses: Pauses, hook: Hook | None = None) -> str:
    text = ""
    async with place.async_client() as client, await _create(client, model) as stream:
        number = 0
        async for chunk in stream:
            number += 1
            text += chunk.choices[0].delta.content or ""
            if hook is not None:
                hook(number)
            if number in pauses:
                await asyncio.sleep(pauses[number])
    return text


async def _both(first: Awaitable[str], second: Awaitable[str]) -> list[str]:
    return list(await asyncio.gather(first, second))


def _text(tokens: int) -> str:
    return "".join(f"t{number} " for number in range(tokens))


def _assert_untouched(captured: Captured, streams: int) -> None:
    assert [span.attributes["stallwatch.outcome"] for span in captured.spans] == ["completed"] * streams
    assert not captured.events()
    assert captured.total("stallwatch.stalls") == 0


SLOW = {2: 2.5}


@pytest.mark.slow
def test_a_reader_slower_than_the_idle_limit_is_not_a_stall() -> None:
    with places("plain", "tls") as both, instrumented(idle=1, first_token=1) as captured:
        with ThreadPoolExecutor(2) as threads:
            read = list(threads.map(lambda place: _read(place, "slow:tokens=6,gap=0.1", SLOW), both))
        assert read == [_text(6)] * 2
        _assert_untouched(captured, 2)


@pytest.mark.slow
def test_an_async_reader_slower_than_the_idle_limit_is_not_a_stall(loop: str) -> None:
    with places("plain", "tls") as (plain, tls), instrumented(idle=1, first_token=1) as captured:
        model = "slow:tokens=6,gap=0.1"
        read = run_on(loop, _both(_read_async(plain, model, SLOW), _read_async(tls, model, SLOW)))
        assert read == [_text(6)] * 2
        _assert_untouched(captured, 2)


def test_bytes_in_the_buffer_are_read_after_a_long_pause(place: Place) -> None:
    pauses = dict.fromkeys((1, 2, 20, 60), 0.15)
    with instrumented(idle=0.1, first_token=0.1, thinking=0.1) as captured:
        assert _read(place, "burst:tokens=60", pauses) == _text(60)
        _assert_untouched(captured, 1)


def test_bytes_in_the_buffer_are_read_after_a_long_pause_async(plain: Place, loop: str) -> None:
    pauses = dict.fromkeys((1, 2, 20, 60), 0.15)
    with instrumented(idle=0.1, first_token=0.1, thinking=0.1) as captured:
        assert run_on(loop, _read_async(plain, "burst:tokens=60", pauses)) == _text(60)
        _assert_untouched(captured, 1)


def test_pauses_between_bursts_are_not_added_up(plain: Place) -> None:
    # Each wait is short, each pause is long: only the waits count.
    script = [Role(), *[step for _ in range(8) for step in (Tokens(1), Wait(0.12))], Finish(), Done()]
    plain.gateway.script("dripping", script)
    with instrumented(idle=0.3, first_token=0.3) as captured:
        text = _read(plain, "dripping", dict.fromkeys(range(1, 6), 0.2))
        assert text == "t0 " * 8
        _assert_untouched(captured, 1)


def test_a_blocked_loop_is_not_a_silent_server(loop: str) -> None:
    def block(number: int) -> None:
        if number == 4:
            asyncio.get_running_loop().call_later(0.02, time.sleep, 0.6)

    with places("plain", "tls") as (plain, tls), instrumented(idle=0.4, first_token=0.4) as captured:
        story = _both(
            _read_async(plain, "slow:tokens=20,gap=0.05", {}, block),
            _read_async(tls, "slow:tokens=20,gap=0.05", {}),
        )
        assert run_on(loop, story) == [_text(20)] * 2
        _assert_untouched(captured, 2)


def test_a_loop_blocked_just_before_the_deadline_is_not_a_silent_server(loop: str) -> None:
    # The next bytes come in time, but while the loop cannot look.
    script = [Role(), Tokens(2), Wait(0.36), Tokens(2), Finish(), Done()]

    def block(number: int) -> None:
        if number == 3:
            asyncio.get_running_loop().call_later(0.33, time.sleep, 0.6)

    with places("plain", "tls") as (plain, tls), instrumented(idle=0.4, first_token=0.4) as captured:
        for place in (plain, tls):
            place.gateway.script("edge", script)
        story = _both(_read_async(plain, "edge", {}, block), _read_async(tls, "edge", {}))
        assert run_on(loop, story) == ["t0 t1 t0 t1 "] * 2
        _assert_untouched(captured, 2)


def test_a_loop_blocked_before_the_first_token_is_not_a_silent_server(plain: Place, loop: str) -> None:
    async def story() -> str:
        asyncio.get_running_loop().call_later(0.1, time.sleep, 0.6)
        return await _read_async(plain, "late-headers:seconds=0.2,tokens=3", {})

    with instrumented(idle=0.4, first_token=0.4) as captured:
        assert run_on(loop, story()) == _text(3)
        _assert_untouched(captured, 1)


@pytest.mark.slow
def test_a_busy_loop_is_not_a_silent_server(loop: str) -> None:
    async def story(plain: Place, tls: Place) -> list[str]:
        busy = True

        def burn() -> None:
            if busy:
                time.sleep(0.25)
                asyncio.get_running_loop().call_soon(burn)

        model = "slow:tokens=12,gap=0.05"
        burning = asyncio.get_running_loop().call_later(0.3, burn)
        try:
            return await _both(_read_async(plain, model, {}), _read_async(tls, model, {}))
        finally:
            busy = False
            burning.cancel()

    with places("plain", "tls") as both, instrumented(idle=0.4, first_token=0.4) as captured:
        assert run_on(loop, story(*both)) == [_text(12)] * 2
        _assert_untouched(captured, 2)


def test_silent_reasoning_within_its_limit_is_not_a_stall(plain: Place) -> None:
    with instrumented(first_token=1, thinking=1, idle=0.1) as captured:
        assert _read(plain, "think-silently:seconds=0.5,tokens=3", {}) == _text(3)
        _assert_untouched(captured, 1)
