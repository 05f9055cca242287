"""Headers that drip are seen by the watch alone; the stall is tried again all the same, in both kinds of client."""

from __future__ import annotations

from typing import Any

import pytest

import stallwatch
from stallwatch.testing import FaultGateway
from stallwatch.testing.steps import DripHeaders, Silence
from support.drivers import DRIVERS, Driver

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)

DRIPPING = (DripHeaders(0.05), Silence())


@drivers
def test_dripping_headers_are_tried_again(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    gateway.script("m", DRIPPING, "healthy:tokens=2,gap=0")
    with guarded(first_token=0.3) as captured:
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 1})
    assert (told.error, told.text) == (None, "t0 t1 ")
    attributes = captured.attributes()
    assert (attributes["stallwatch.attempts"], attributes["stallwatch.outcome"]) == (2, "completed")
    assert attributes["stallwatch.retry.reason"] == "stall"
    first, second = gateway.ledger().requests
    assert (first.closed_how, second.retry_count) == ("fin", 1)


@drivers
def test_no_more_often_than_allowed(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    gateway.script("m", DRIPPING)
    with guarded(first_token=0.2) as captured:
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 1})
    assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError)
    assert told.error.attempt == 2
    assert len(gateway.ledger().requests) == 2
    assert captured.attributes()["stallwatch.retry.decision"] == "exhausted"


@drivers
def test_the_sdk_takes_over_from_there(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    gateway.script("m", DRIPPING, "error-status:code=503", "healthy:tokens=2,gap=0")
    with guarded(first_token=0.3) as captured:
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 2})
    assert (told.error, told.text) == (None, "t0 t1 ")
    assert captured.attributes()["stallwatch.attempts"] == 3
    assert [request.retry_count for request in gateway.ledger().requests] == [0, 1, 2]
