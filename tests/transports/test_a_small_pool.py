"""A pool of two connections outlives fifty rounds of every way in which a stream can end (field case A29)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import stallwatch
from support.bounds import LIMITS
from support.drivers import Driver
from support.leaks import wait_until
from support.stage import Stage, play
from support.telemetry import instrumented
from transports.roads import Road, road_to

ROUNDS = 50
STALLS = "stall-after:tokens=3,gap=0"


async def _full(stage: Stage, client: Any, road: Road) -> None:
    assert len(await stage.all(await stage.chat(client, "healthy:tokens=3,gap=0"))) == 5


async def _close(stage: Stage, client: Any, road: Road) -> None:
    stream = await stage.chat(client, STALLS)
    await stage.take(stream, 3)
    await stage.close(stream)


async def _leave(stage: Stage, client: Any, road: Road) -> None:
    async with stage.inside(await stage.chat(client, STALLS)) as stream:
        async for _ in stage.over(stream):
            break


async def _stall(stage: Stage, client: Any, road: Road) -> None:
    with pytest.raises(stallwatch.StreamInactivityTimeoutError):
        await stage.all(await stage.chat(client, STALLS))


async def _cancel(stage: Stage, client: Any, road: Road) -> None:
    before = len(road.gateway.ledger().requests)
    if stage.is_async:
        task = asyncio.ensure_future(_read(stage, client))
        await road.gateway.wait_for_async(lambda ledger: len(ledger.requests) > before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return
    with stallwatch.Run() as run:

        def strike() -> None:
            road.gateway.wait_for(lambda ledger: len(ledger.requests) > before)
            run.cancel("enough")

        thread = threading.Thread(target=strike)
        thread.start()
        with pytest.raises(stallwatch.RunCancelledError):
            await _read(stage, client)
        thread.join()


async def _read(stage: Stage, client: Any) -> None:
    with stallwatch.policy(first_token=10, idle=10):
        stream = await stage.chat(client, STALLS)
        async with stage.inside(stream):
            await stage.all(stream)


WAYS = (_full, _close, _leave, _stall, _cancel)


def _busy(client: Any) -> int:
    return len(
        client._client._transport_for_url(type(client._client.base_url)(str(client.base_url)))._pool._requests
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tcp", "tls", "proxy", "http2", "legacy httpx"])
def test_every_way_of_ending_gives_its_connection_back(name: str, driver: Driver) -> None:
    async def story(stage: Stage, road: Road) -> None:
        client = road.client(driver, timeout=5)
        async with stage.inside(client):
            for number in range(ROUNDS):
                await WAYS[number % len(WAYS)](stage, client, road)
                assert _busy(client) == 0, (number, WAYS[number % len(WAYS)].__name__)
            # Both places at once, so that none has been lost.
            streams = [await stage.chat(client, STALLS) for _ in range(2)]
            for stream in streams:
                await stage.close(stream)

    with (
        road_to(name, driver, connections=2) as road,
        instrumented(**{**LIMITS, "connect": 5, "first_token": 5, "idle": 0.1}) as captured,
    ):
        play(driver, lambda stage: story(stage, road))
        wait_until(lambda: road.gateway.open_connections == 0, lambda: road.gateway.open_connections)
    outcomes = [str((span.attributes or {})["stallwatch.outcome"]) for span in captured.spans]
    each = ROUNDS // len(WAYS)
    assert sorted(outcomes) == sorted(
        ["completed"] * each + ["closed_early"] * (2 * each + 2) + ["stalled"] * each + ["cancelled"] * each
    )


@pytest.mark.parametrize("name", ["proxy", "tls in tls"])
@pytest.mark.parametrize("where", ["silent", "deaf"])
def test_a_proxy_that_fails_costs_the_pool_no_place(name: str, where: str, driver: Driver) -> None:
    async def story(stage: Stage, road: Road) -> None:
        async with stage.inside(road.client(driver)) as client:
            setattr(road.proxy, where, True)
            for _ in range(3):
                with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                    await stage.chat(client, "healthy")
            setattr(road.proxy, where, False)
            await _full(stage, client, road)

    with (
        road_to(name, driver, connections=2) as road,
        instrumented(**{**LIMITS, "connect": 0.6, "first_token": 5, "idle": 5}),
    ):
        play(driver, lambda stage: story(stage, road))
