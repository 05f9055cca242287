"""What happens before the headers: the SDK's retries, queueing and connecting, and the end of the instrumentation."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import stallwatch
from stallwatch.testing import Done, Finish, Headers, Role, Silence, Token, Wait
from support import expect
from support.bounds import LATE
from support.connects import DEAD, http, http_client, quick_client
from support.drivers import DRIVERS, Driver
from support.places import Place
from support.stage import Stage, play
from support.telemetry import instrumented

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.02)


@drivers
@pytest.mark.parametrize("latency", [0.0, 0.06, 0.15])
@pytest.mark.usefixtures("quick_retries")
def test_the_sdk_tries_again_whatever_connecting_took(plain: Place, driver: Driver, latency: float) -> None:
    client = http_client(driver, lambda _: latency)
    with instrumented(connect=2, first_token=0.3, thinking=3, idle=3, total=10) as captured:
        told = driver.tell(
            plain.base_url,
            "never-responds>healthy:tokens=3",
            options={"max_retries": 1, "http_client": client},
        )
    assert told.error is None
    assert len(told.chunks) == 5
    assert len(plain.gateway.ledger().requests) == 2
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "completed"
    assert attributes["stallwatch.attempts"] == 2
    assert captured.total("stallwatch.attempt.duration", stallwatch__outcome="stalled") == 1


LIMIT = 0.4
QUEUED = 0.32


@drivers
def test_queueing_and_a_dead_connect_share_one_limit(plain: Place, driver: Driver) -> None:
    dead = False
    client = http_client(
        driver,
        lambda _: DEAD if dead else 0.0,
        limits=http.Limits(max_connections=1, max_keepalive_connections=1),
    )
    told: list[Any] = []

    async def story(stage: Stage) -> None:
        nonlocal dead
        async with stage.inside(stage.client(plain.base_url, http_client=client)) as made:
            holder = await stage.chat(made, "endless:gap=0.01")
            await stage.step(holder)
            dead = True
            timer: Any = threading.Timer(QUEUED, holder.close)
            if stage.is_async:
                timer = asyncio.get_running_loop().create_task(_close_later(holder))
            else:
                timer.start()
            with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
                await stage.chat(made, "silent")
            told.append(caught.value)
            await stage.of(timer if stage.is_async else timer.join())

    with instrumented(connect=5, first_token=LIMIT, thinking=5, idle=5, total=10) as captured:
        play(driver, story)
    (error,) = told
    assert error.phase in {"first_token", "connect"}
    expect.in_time(error.waited, LIMIT)
    assert error.stream_lifetime <= LIMIT + LATE
    assert [span.attributes["stallwatch.outcome"] for span in captured.spans] == ["closed_early", "stalled"]  # type: ignore[index]


async def _close_later(stream: Any) -> None:
    await asyncio.sleep(QUEUED)
    await stream.close()


# The instrumentation ends while headers are awaited


def _read(driver: Driver, place: Place, model: str, timeout: float) -> Any:
    """Uninstrument when the request has come in; return the number of chunks, or the error in its place."""

    def release() -> None:
        place.gateway.wait_for(lambda ledger: ledger.requests[-1].model == model)
        stallwatch.OpenAIInstrumentor().uninstrument()

    async def story(stage: Stage) -> Any:
        made = stage.client(
            place.base_url, timeout=timeout, http_client=quick_client(is_async=stage.is_async)
        )
        async with stage.inside(made) as client:
            with ThreadPoolExecutor(1) as threads:
                done = threads.submit(release)
                try:
                    stream = await stage.chat(client, model)
                    assert done.done()
                    return len(await stage.all(stream))
                except Exception as error:
                    return error

    return play(driver, story)


@drivers
def test_a_stream_goes_on_when_the_instrumentation_ends_before_its_headers(
    plain: Place, driver: Driver
) -> None:
    plain.gateway.script("late", [Wait(0.1), Role(), Wait(0.4), Token("a"), Finish(), Done()])
    with instrumented(first_token=0.25, thinking=0.25, idle=0.25) as captured:
        assert _read(driver, plain, "late", 5.0) == 3
    assert captured.total("stallwatch.stalls") == 0
    assert captured.total("stallwatch.streams.active") == 0


@drivers
def test_it_goes_on_with_the_users_own_timeout(plain: Place, driver: Driver) -> None:
    plain.gateway.script("late", [Wait(0.1), Headers(), Silence()])
    with instrumented(first_token=0.25, thinking=0.25, idle=0.25):
        error = _read(driver, plain, "late", 0.5)
    assert isinstance(error, (http.ReadTimeout, openai.APITimeoutError)), repr(error)
    assert not isinstance(error, stallwatch.StallwatchError)
    record = plain.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how).requests[0]
    assert record.headers_sent_at is not None
    assert record.peer_closed_at is not None
    expect.in_time(record.peer_closed_at - record.headers_sent_at, 0.5)
