"""Retries that are not begun: beyond the total, behind too long a queue, without the patches, over compressed bytes."""

from __future__ import annotations

import gzip
from typing import Any

import openai
import pytest

import stallwatch
from stallwatch.runtime.routes import route_of
from stallwatch.testing import FaultGateway
from stallwatch.testing.steps import Headers, Raw, Silence, Status
from support.drivers import DRIVERS, Driver
from support.stage import Stage, play

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


@drivers
def test_behind_a_queue_longer_than_the_total_the_servers_error_is_raised_at_once(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", [Status(429, retry_after="1")])
    with guarded(total=3) as captured:
        route = route_of((gateway.base_url.removeprefix("http://").removesuffix("/v1"), "m"))
        now = stallwatch.run.monotonic()
        for _ in range(40):
            route.count(now, delay=1.0, server_wait=1.0)
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 2})
    assert type(told.error) is openai.RateLimitError
    assert told.seconds < 0.5
    attributes = captured.attributes()
    assert attributes["stallwatch.retry.decision"] == "deadline"
    assert attributes["stallwatch.stalled"] is False
    assert captured.total("stallwatch.stalls") == 0


@drivers
def test_behind_a_queue_longer_than_is_ever_slept_nobody_comes_early(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", [Status(429, retry_after="100")])
    with guarded(total=3600) as captured:
        route = route_of((gateway.base_url.removeprefix("http://").removesuffix("/v1"), "m"))
        now = stallwatch.run.monotonic()
        for number in range(400):
            route.count(now + number * 0.05, delay=100.0, server_wait=100.0)
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 2})
    assert type(told.error) is openai.RateLimitError
    assert told.seconds < 0.5
    assert captured.attributes()["stallwatch.retry.decision"] == "server_wait"
    assert len(gateway.ledger().requests) == 1


@drivers
def test_once_the_patches_are_off_nothing_is_sent_again(
    gateway: FaultGateway, driver: Driver, guarded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 0.4)
    gateway.script("m", [Headers(), Silence()], "healthy")

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            stream = await stage.chat(client, "m")
            stallwatch.OpenAIInstrumentor().uninstrument()
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                await stage.all(stream)
            stallwatch.OpenAIInstrumentor().instrument()

    with guarded(first_token=0.2) as captured:
        play(driver, story)
    assert len(gateway.ledger().requests) == 1
    assert captured.attributes()["stallwatch.retry.decision"] == "not_replayable"


@drivers
def test_over_compressed_bytes_the_reason_is_told_as_it_is(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    """The decoder above has begun, so its bytes cannot be replaced; but nothing was delivered."""
    begun = gzip.compress(b"data: {}\n\n")[:10]
    gateway.script("m", [Headers({"content-encoding": "gzip"}), Raw(begun), Silence()], "healthy")
    with guarded(first_token=0.2) as captured:
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 2})
    assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError)
    assert told.error.decision == "not_replayable"
    assert captured.attributes()["stallwatch.retry.decision"] == "not_replayable"
    assert len(gateway.ledger().requests) == 1
