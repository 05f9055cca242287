"""Crowds end when they should, bare and governed, and leave no connection behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("resource", reason="limits of open files are a matter of Unix")

import stallwatch
from benchmarks import crowd, growth


@pytest.fixture(params=["bare", "governed"])
def governing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(crowd, "IDLE", 0.3)
    monkeypatch.setattr(crowd, "RESTING", 0.3)
    monkeypatch.setattr(crowd, "LONE", 3)
    instrumentor = stallwatch.OpenAIInstrumentor()
    if request.param == "governed":
        instrumentor.instrument()
    yield request.param
    if request.param == "governed":
        instrumentor.uninstrument()


@pytest.mark.usefixtures("governing")
def test_streams_that_expire_together_all_end_after_their_deadline_and_soon() -> None:
    found = crowd.expiring(20)
    assert 0 <= found["p50"] <= found["p99"] <= found["most"] < 2000
    assert found["cpu"] > 0


@pytest.mark.usefixtures("governing")
def test_threads_that_wait_each_end_after_their_deadline_and_soon() -> None:
    assert 0 <= crowd.threads(5)["most"] < 2000


@pytest.mark.usefixtures("governing")
def test_single_stalls_are_told_soon() -> None:
    for lone in (crowd.lone_async, crowd.lone_sync):
        assert 0 <= lone()["most"] < 1000


def test_a_crowd_at_rest_has_no_thread_and_no_timer_for_each_of_its_streams(governing: str) -> None:
    found = crowd.resting(60)
    assert found["tasks"] == 60
    # The loop resolves names in a few threads, too.
    assert found["threads"] < 30
    # One each is the HTTP library's own.
    assert 60 <= found["timers"] < 70, governing


@pytest.mark.parametrize("task", growth.TASKS)
def test_growth_has_a_point_for_each_number(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for numbers, few in (("CHUNKS", (4, 16)), ("OPEN", (1, 4)), ("ATTEMPTS", (1, 2)), ("MODELS", (1, 3))):
        monkeypatch.setattr(growth, numbers, few)
    monkeypatch.setattr(growth, "WORK", 64)
    found = growth.TASKS[task]()
    assert len(found) == 2
    assert min(found.values()) > 0
