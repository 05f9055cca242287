"""Retries on a route that asks for less queue up, across all calls of the process, instead of coming back together."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest

from stallwatch.core.pacing import SPACING
from stallwatch.testing import FaultGateway
from stallwatch.testing.steps import Status
from support import leaks
from support.drivers import ASYNC, DRIVERS, SYNC, Driver
from support.telemetry import instrumented

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)

CALLS = 6


def _together(driver: Driver, gateway: FaultGateway, models: list[str]) -> list[Any]:
    """Make a call for each model, all at once, and return what was told."""
    told: list[Any] = []
    if driver is SYNC:
        threads = [
            threading.Thread(
                target=lambda model=model: told.append(
                    SYNC.tell(gateway.base_url, model, options={"max_retries": 2})
                )
            )
            for model in models
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return told

    async def all_of_them() -> list[Any]:
        async def one(model: str) -> Any:
            client = ASYNC.client(gateway.base_url, max_retries=2)
            return await ASYNC._tell_async(client, model, "chat", (), None, {})

        return list(await asyncio.gather(*map(one, models)))

    return leaks.run(all_of_them())


@drivers
def test_calls_that_were_refused_together_come_back_one_after_another(
    gateway: FaultGateway, driver: Driver
) -> None:
    gateway.script("busy", *[[Status(429, retry_after="1")]] * CALLS, "healthy:tokens=1,gap=0")
    with instrumented() as captured:
        told = _together(driver, gateway, ["busy"] * CALLS)
    assert [each.error for each in told] == [None] * CALLS
    received = [request.received_at for request in gateway.ledger().requests]
    first, again = received[:CALLS], sorted(received[CALLS:])
    assert len(again) == CALLS
    assert again[0] - max(first) >= 0.8
    gaps = [later - earlier for earlier, later in itertools.pairwise(again)]
    # What the machine adds to one wait it takes from the next.
    assert again[-1] - again[0] >= SPACING * (CALLS - 1) - 0.1
    assert max(gaps) < SPACING + 0.5
    attempts = [dict(event.attributes) for event in captured.events("attempt")]
    failed = [each for each in attempts if each["stallwatch.outcome"] == "failed"]
    assert len(failed) == CALLS
    assert {each["stallwatch.retry.server_wait"] for each in failed} == {1.0}
    assert sum(each["stallwatch.retry.paced"] for each in failed) == CALLS - 1
    waits = sorted(each["stallwatch.retry.delay"] for each in failed)
    assert waits[0] == pytest.approx(1.0)
    assert waits[-1] == pytest.approx(1.0 + SPACING * (CALLS - 1), abs=0.2)


@drivers
def test_a_healthy_route_is_not_paced(gateway: FaultGateway, driver: Driver) -> None:
    models = [f"error-status:code=503>healthy:tokens=1,gap=0,id={number}" for number in range(3)]
    with instrumented() as captured:
        told = _together(driver, gateway, models)
    assert [each.error for each in told] == [None] * 3
    attempts = [dict(event.attributes) for event in captured.events("attempt")]
    assert not any(each.get("stallwatch.retry.paced") for each in attempts)
