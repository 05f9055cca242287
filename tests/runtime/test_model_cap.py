"""Series stay bounded: past the cap further combinations of operation, provider and model fold into one."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider

from stallwatch.catalogue import MODEL_CAP, OTHER
from stallwatch.core.words import Mode
from stallwatch.telemetry.metrics import MetricRecorder
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


class _SeenAtOnce(dict[Any, Any]):
    """Two threads look before either of them writes."""

    def __init__(self) -> None:
        self.both = threading.Barrier(2)

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        self.both.wait(5)
        return found


def test_threads_that_see_a_model_first_at_once_share_its_attributes() -> None:
    """What more is kept by their identity, which another model's could come by if one of two were dropped."""
    recorder = MetricRecorder(MeterProvider().get_meter("m"), list)
    recorder._labels = _SeenAtOnce()
    call = SimpleNamespace(operation="chat", provider="openai", model="m", stream=True)
    run: Any = SimpleNamespace(call=call, policy=SimpleNamespace(mode=Mode.ENFORCE))
    seen: list[Any] = []
    threads = [threading.Thread(target=lambda: seen.append(recorder.labels(run))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(seen) == 2
    assert seen[0] is seen[1]
