"""Series stay bounded: past the cap further combinations of operation, provider and model fold into one."""

from __future__ import annotations

import pytest

from stallwatch.catalogue import MODEL_CAP, OTHER
from support.drivers import DRIVERS, Driver
from support.places import Place
from support.telemetry import instrumented

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


@drivers
def test_combinations_beyond_the_cap_are_counted_as_one(plain: Place, driver: Driver) -> None:
    """Two operations on the same models are twice as many, which a cap on models alone would not see."""
    with instrumented() as captured:
        for number in range(MODEL_CAP // 2 + 5):
            model = f"healthy:tokens=1,gap=0,id={number}"
            for api in ("chat", "completions"):
                assert driver.tell(plain.base_url, model, api=api).error is None
        points = captured.metrics()["stallwatch.streams"]
    seen = {
        (dict(point.attributes)["gen_ai.operation.name"], dict(point.attributes)["gen_ai.request.model"])
        for point in points
    }
    folded = {each for each in seen if each[1] == OTHER}
    assert folded == {("chat", OTHER), ("text_completion", OTHER)}
    assert len(seen - folded) == MODEL_CAP
    assert captured.total("stallwatch.streams", gen_ai__request__model=OTHER) == 10
