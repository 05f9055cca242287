"""After a call the connection is as it was, and after a stall the pool is."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import stallwatch
from support.places import MESSAGES, Place, pool_of, run_on
from support.telemetry import Captured, instrumented

STALLS = "stall-after:tokens=1,gap=0"


def _create(client: Any, model: str, *, stream: bool = True) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=stream)


def _outcomes(captured: Captured) -> list[Any]:
    return [span.attributes["stallwatch.outcome"] for span in captured.spans]


def _network_streams(client: Any) -> list[Any]:
    return [each._connection._network_stream for each in client._client._transport._pool.connections]


def test_an_idle_connection_carries_nothing_of_ours(place: Place) -> None:
    with instrumented() as captured, place.client() as client:
        for number in range(1, 4):
            _create(client, "healthy:tokens=2,gap=0", stream=False)
            (stream,) = _network_streams(client)
            assert not {"read", "close", "write"} & set(vars(stream))
            assert len(place.gateway.ledger().connections) == 1
            assert len(captured.spans) == number
    assert _outcomes(captured) == ["completed"] * 3


def test_a_reused_connection_is_guarded_like_a_new_one(place: Place) -> None:
    with instrumented(idle=0.15) as captured, place.client(connections=1) as client:
        _create(client, "healthy:tokens=2,gap=0", stream=False)
        with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
            list(_create(client, STALLS))
        assert 0.15 <= caught.value.waited < 0.3
        assert len(place.gateway.ledger().connections) == 1
        _create(client, "healthy:tokens=2,gap=0", stream=False)
    assert _outcomes(captured) == ["completed", "stalled", "completed"]


def test_an_idle_async_connection_carries_nothing_of_ours(place: Place, loop: str) -> None:
    async def story() -> None:
        async with place.async_client() as client:
            for _ in range(3):
                await _create(client, "healthy:tokens=2,gap=0", stream=False)
                (stream,) = _network_streams(client)
                assert not {"read", "aclose", "write"} & set(vars(stream))
            stream = await _create(client, "healthy:tokens=2,gap=0")
            assert len([chunk async for chunk in stream]) == 4
        assert len(place.gateway.ledger().connections) == 1

    with instrumented() as captured:
        run_on(loop, story())
    assert _outcomes(captured) == ["completed"] * 4


@pytest.mark.slow
def test_a_pool_of_one_survives_forty_stalls(place: Place) -> None:
    with instrumented(idle=0.03) as captured, place.client(connections=1) as client:
        for _ in range(40):
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                list(_create(client, STALLS))
        assert pool_of(client) == (0, 0)
        assert len(list(_create(client, "healthy:tokens=2,gap=0"))) == 4
    assert _outcomes(captured) == ["stalled"] * 40 + ["completed"]


@pytest.mark.slow
def test_an_async_pool_of_one_survives_forty_stalls(plain: Place, loop: str) -> None:
    async def story() -> None:
        async with plain.async_client(connections=1) as client:
            for _ in range(40):
                with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                    async for _ in await _create(client, STALLS):
                        pass
            assert pool_of(client) == (0, 0)
            stream = await _create(client, "healthy:tokens=2,gap=0")
            assert len([chunk async for chunk in stream]) == 4

    with instrumented(idle=0.03) as captured:
        run_on(loop, story())
    assert _outcomes(captured) == ["stalled"] * 40 + ["completed"]


MANY = 50
LATE = 0.5
"""Seconds a stall may end late on a machine under load."""


def test_many_stalled_streams_in_threads_end_on_time(place: Place) -> None:
    def read(client: Any) -> tuple[float, float]:
        stream, last = _create(client, STALLS), time.monotonic()
        try:
            for _ in stream:
                last = time.monotonic()
        except stallwatch.StreamInactivityTimeoutError as error:
            return time.monotonic() - last, error.waited
        return 0.0, 0.0

    settings = {"idle": 0.5, "first_token": 10}
    with instrumented(**settings) as captured, place.client() as client, ThreadPoolExecutor(MANY) as threads:
        seen = list(threads.map(read, [client] * MANY))
    assert all(0.45 < took < 0.5 + LATE and waited >= 0.5 for took, waited in seen), sorted(seen)
    assert _outcomes(captured) == ["stalled"] * MANY


def test_many_stalled_streams_in_one_loop_end_on_time(place: Place, loop: str) -> None:
    async def read(client: Any) -> tuple[float, float]:
        stream, last = await _create(client, STALLS), time.monotonic()
        try:
            async for _ in stream:
                last = time.monotonic()
        except stallwatch.StreamInactivityTimeoutError as error:
            return time.monotonic() - last, error.waited
        return 0.0, 0.0

    async def story() -> list[tuple[float, float]]:
        async with place.async_client() as client:
            return await asyncio.gather(*(read(client) for _ in range(MANY)))

    with instrumented(idle=0.5, first_token=10) as captured:
        seen = run_on(loop, story())
    assert all(0.45 < took < 0.5 + LATE and waited >= 0.5 for took, waited in seen), sorted(seen)
    assert _outcomes(captured) == ["stalled"] * MANY
