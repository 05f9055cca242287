"""A retry of ours is one line in the log, at a level that hosts do not show by default, and without content."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from stallwatch.testing import FaultGateway
from support.drivers import DRIVERS, Driver

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


@drivers
def test_one_line_for_each(
    gateway: FaultGateway, driver: Driver, guarded: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="stallwatch"), guarded(first_token=0.2):
        told = driver.tell(gateway.base_url, "silent>healthy:tokens=1,gap=0", options={"max_retries": 1})
    assert told.error is None
    (record,) = [record for record in caplog.records if record.name == "stallwatch"]
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith("attempt 1 failed (transport: stall), trying again in 0.")
