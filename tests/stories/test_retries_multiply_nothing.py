"""Field case A10: retries share the one total, whoever makes them, and the telemetry shows every request."""

from __future__ import annotations

from typing import Any

import pytest

import stallwatch
from stallwatch.testing import FaultGateway
from support.drivers import DRIVERS, Driver
from support.expect import in_time

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


@drivers
def test_attempts_and_back_offs_end_with_the_total(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    """The client's two retries, none set by a policy: the second back-off would outlast the total of 3 s."""
    with guarded(first_token=1, total=3) as captured:
        told = driver.tell(gateway.base_url, "never-responds", options={"max_retries": 2})
    assert isinstance(told.error, stallwatch.TotalTimeoutError)
    assert (told.error.phase, told.error.decision) == ("total", "deadline")
    in_time(told.seconds, 3)
    attributes = captured.attributes()
    assert attributes["stallwatch.stall.phase"] == "total"
    assert attributes["stallwatch.attempts"] == len(gateway.ledger().requests) == 2
    assert len(captured.events("attempt")) == 2


@drivers
def test_a_policy_of_one_retry_lowers_the_clients_two(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    """Both numbers count together, so the second attempt is the last, and its own stall is the error."""
    with guarded(first_token=1, total=3, max_retries=1) as captured:
        told = driver.tell(gateway.base_url, "never-responds", options={"max_retries": 2})
    assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError)
    assert told.error.decision == "exhausted"
    assert told.seconds < 3.25
    assert captured.attributes()["stallwatch.attempts"] == len(gateway.ledger().requests) == 2
