"""Every transport, both drivers, one table: each wait is bounded, healthy calls are left alone, the server is told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import stallwatch
from stallwatch.testing import Ledger, mute_server, unaccepting_server
from support.bounds import CLOSE_SEEN, LATE, LIMITS
from support.drivers import Driver
from support.expect import bare_shape, in_time
from support.stage import Stage, play
from support.telemetry import Captured, instrumented
from transports.roads import NAMES, Road, road_to

WIDE: dict[str, Any] = {**LIMITS, "connect": 5, "first_token": 10, "thinking": 10, "idle": 10, "total": 30}
"""Limits that nothing here runs into."""

CONNECTS: dict[str, Any] = {**LIMITS, "connect": 0.5, "first_token": 5}


@pytest.fixture(params=NAMES)
def road(request: pytest.FixtureRequest, driver: Driver) -> Iterator[Road]:
    with road_to(request.param, driver) as opened:
        yield opened


def _said(captured: Captured) -> tuple[str, str]:
    attributes = captured.attributes()
    return str(attributes["stallwatch.outcome"]), str(attributes["stallwatch.interrupt"])


def _gone(ledger: Ledger) -> bool:
    return bool(ledger.requests) and ledger.requests[-1].closed_how in ("fin", "rst")


async def _sees_the_close(stage: Stage, road: Road) -> None:
    if stage.is_async:
        await road.gateway.wait_for_async(_gone, CLOSE_SEEN)
    else:
        road.gateway.wait_for(_gone, CLOSE_SEEN)


@pytest.mark.parametrize(
    ("model", "phase"),
    [
        ("never-responds", "first_token"),
        ("drip-headers:every=0.05", "first_token"),
        ("silent", "first_token"),
        ("keepalive:tokens=0,every=0.05", "first_token"),
        ("stall-after:tokens=2,gap=0", "idle"),
        ("keepalive:tokens=2,gap=0,every=0.05", "idle"),
    ],
)
def test_every_silence_ends_at_its_deadline_and_the_server_sees_the_close(
    road: Road, driver: Driver, model: str, phase: str
) -> None:
    async def story(stage: Stage) -> tuple[stallwatch.StreamTimeoutError, float]:
        async with stage.inside(road.client(driver)) as client:
            last = time.monotonic()
            with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
                stream = await stage.chat(client, model)
                async for _ in stage.over(stream):
                    last = time.monotonic()
            took = time.monotonic() - last
            await _sees_the_close(stage, road)
            return caught.value, took

    with instrumented(**{**LIMITS, "connect": 5}) as captured:
        error, took = play(driver, story)
    assert error.phase == phase
    in_time(error.waited, LIMITS[phase])
    # The connect is a phase of its own before the first token's, and takes what a busy machine needs.
    assert took <= LIMITS[phase] + LATE + (0.5 if phase == "first_token" else 0)
    assert _said(captured) == ("stalled", road.proof)
    assert len(road.gateway.ledger().requests) == 1


def test_a_whole_answer_is_bounded_too(road: Road, driver: Driver) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(road.client(driver)) as client:
            with pytest.raises(stallwatch.TotalTimeoutError):
                await stage.chat(client, "never-responds", stream=False)
            await _sees_the_close(stage, road)

    with instrumented(**{**WIDE, "total": 0.6}) as captured:
        play(driver, story)
    assert _said(captured) == ("stalled", road.proof)


def test_a_slow_answer_is_the_bare_sdk_s(road: Road, driver: Driver) -> None:
    async def story(stage: Stage) -> list[Any]:
        async with stage.inside(road.client(driver)) as client:
            return await stage.all(await stage.chat(client, "slow:tokens=6,gap=0.08"))

    bare = play(driver, story)
    with instrumented(**WIDE) as captured:
        ours = play(driver, story)
    assert bare_shape(ours) == bare_shape(bare)
    assert _said(captured) == ("completed", road.proof)


def test_connections_are_used_again_as_by_the_bare_sdk(road: Road, driver: Driver) -> None:
    async def story(stage: Stage) -> int:
        before = len(road.gateway.ledger().connections)
        async with stage.inside(road.client(driver)) as client:
            for _ in range(2):
                assert len(await stage.all(await stage.chat(client, "healthy:tokens=2,gap=0"))) == 4
            for _ in range(3):
                await stage.chat(client, "healthy:tokens=2,gap=0", stream=False)
        return len(road.gateway.ledger().connections) - before

    bare = play(driver, story)
    with instrumented(**WIDE):
        assert play(driver, story) == bare


def test_a_client_goes_on_after_a_stall(road: Road, driver: Driver) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(road.client(driver)) as client:
            for _ in range(3):
                with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                    await stage.all(await stage.chat(client, "stall-after:tokens=2,gap=0"))
                assert len(await stage.all(await stage.chat(client, "healthy:tokens=2,gap=0"))) == 4

    with instrumented(**{**WIDE, "idle": 0.4}):
        play(driver, story)


def test_a_close_by_the_reader_is_seen_by_the_server(road: Road, driver: Driver) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(road.client(driver)) as client:
            stream = await stage.chat(client, "stall-after:tokens=2,gap=0")
            await stage.take(stream, 2)
            await stage.close(stream)
            await _sees_the_close(stage, road)

    with instrumented(**WIDE) as captured:
        play(driver, story)
    assert _said(captured) == ("closed_early", road.proof)


@pytest.mark.parametrize("model", ["never-responds", "silent", "keepalive:tokens=2,gap=0,every=0.05"])
def test_a_cancel_of_the_run_wakes_whoever_waits(road: Road, driver: Driver, model: str) -> None:
    async def story(stage: Stage) -> float:
        async with stage.inside(road.client(driver)) as client:
            struck: list[float] = []
            with stallwatch.Run() as run:

                def strike() -> None:
                    road.gateway.wait_for(lambda ledger: ledger.requests)
                    time.sleep(0.15)
                    struck.append(time.monotonic())
                    run.cancel("enough")

                thread = threading.Thread(target=strike)
                thread.start()
                try:
                    with pytest.raises(stallwatch.RunCancelledError):
                        await stage.all(await stage.chat(client, model))
                    took = time.monotonic() - struck[0]
                finally:
                    thread.join()
            await _sees_the_close(stage, road)
            return took

    with instrumented(**WIDE) as captured:
        assert play(driver, story) <= LATE
    assert _said(captured) == ("cancelled", road.proof)


@pytest.mark.parametrize("model", ["never-responds", "silent"])
def test_a_cancelled_task_is_a_cancelled_task(road: Road, driver: Driver, model: str) -> None:
    if not driver.is_async:
        pytest.skip("there are no tasks")

    async def story(stage: Stage) -> None:
        async with stage.inside(road.client(driver)) as client:

            async def read() -> None:
                await stage.all(await stage.chat(client, model))

            task = asyncio.ensure_future(read())
            await road.gateway.wait_for_async(lambda ledger: ledger.requests)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await _sees_the_close(stage, road)

    with instrumented(**WIDE) as captured:
        play(driver, story)
    assert _said(captured)[0] == "cancelled"


# The bare SDK of 1.x leaves a body of aiohttp's that has failed to the garbage collector.
@pytest.mark.filterwarnings("ignore:Unclosed connection:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "model", ["error-status:code=400", "error-status:code=503", "reset:tokens=2", "non-sse"]
)
def test_what_is_no_stall_is_told_as_by_the_bare_sdk(road: Road, driver: Driver, model: str) -> None:
    async def story(stage: Stage) -> tuple[type | None, type | None, int]:
        chunks: list[Any] = []
        async with stage.inside(road.client(driver)) as client:
            try:
                stream = await stage.chat(client, model)
                async for chunk in stage.over(stream):
                    chunks.append(chunk)  # noqa: PERF401
            except Exception as error:
                return type(error), type(error.__cause__), len(chunks)
        return None, None, len(chunks)

    bare = play(driver, story)
    with instrumented(**WIDE):
        assert play(driver, story) == bare


class TestConnecting:
    """What happens before there is a connection, on those roads that have one of their own."""

    @pytest.fixture(params=["tcp", "tls", "proxy", "tls in tls", "http2", "aiohttp", "wrapped"])
    def road(self, request: pytest.FixtureRequest, driver: Driver) -> Iterator[Road]:
        with road_to(request.param, driver) as opened:
            yield opened

    def test_a_connect_that_nobody_answers_ends(self, road: Road, driver: Driver) -> None:
        if road.proxy is not None:
            pytest.skip("the proxy is what is connected to; its silence is another row")
        with unaccepting_server() as address:
            tls = road.base_url.startswith("https")
            road.base_url = address.tls_base_url if tls else address.base_url
            self._ends(road, driver)

    def test_a_handshake_that_nobody_answers_ends(self, road: Road, driver: Driver) -> None:
        if not road.base_url.startswith("https"):
            pytest.skip("there is no TLS")
        with mute_server() as address:
            if road.proxy is not None:
                road.proxy.deaf = True
            else:
                road.base_url = address.tls_base_url
            self._ends(road, driver)

    def test_a_proxy_that_answers_no_connect_ends(self, road: Road, driver: Driver) -> None:
        if road.proxy is None:
            pytest.skip("there is no proxy")
        road.proxy.silent = True
        self._ends(road, driver)

    def _ends(self, road: Road, driver: Driver) -> None:
        async def story(stage: Stage) -> tuple[BaseException, float]:
            async with stage.inside(road.client(driver)) as client:
                started = time.monotonic()
                with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
                    await stage.chat(client, "healthy")
                return caught.value, time.monotonic() - started

        with instrumented(**CONNECTS):
            error, took = play(driver, story)
        assert getattr(error, "phase", None) == "connect"
        # A proxy's own handshake goes before.
        assert took <= CONNECTS["connect"] + LATE + 0.2
        if road.proxy is not None:
            deadline = time.monotonic() + CLOSE_SEEN
            while road.proxy.left < road.proxy.asked:
                assert time.monotonic() < deadline, "the proxy does not see the close"
                time.sleep(0.01)


@pytest.mark.parametrize("name", ["proxy", "tls in tls"])
@pytest.mark.parametrize("where", ["silent", "deaf"])
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_cancel_wakes_whoever_waits_for_a_proxy(name: str, where: str, driver: Driver) -> None:
    with road_to(name, driver) as road:
        assert road.proxy is not None
        setattr(road.proxy, where, True)
        proxy = road.proxy

        async def story(stage: Stage) -> float:
            async with stage.inside(road.client(driver)) as client:
                struck: list[float] = []
                with stallwatch.Run() as run:

                    def strike() -> None:
                        until = time.monotonic() + 5
                        while not proxy.asked and time.monotonic() < until:
                            time.sleep(0.01)
                        time.sleep(0.2)
                        struck.append(time.monotonic())
                        run.cancel("enough")

                    thread = threading.Thread(target=strike)
                    thread.start()
                    try:
                        with pytest.raises(stallwatch.RunCancelledError):
                            await stage.chat(client, "healthy")
                        return time.monotonic() - struck[0]
                    finally:
                        thread.join()

        with instrumented(**WIDE) as captured:
            assert play(driver, story) <= LATE
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"
