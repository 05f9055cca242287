"""Counts are the same however often they are taken, and a slowdown is seen."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.counts import counts
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import stallwatch
from benchmarks import check

BARS = json.loads(check.BARS.read_text(encoding="utf-8"))["bars"]


@pytest.fixture
def governed() -> Iterator[None]:
    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(
        tracer_provider=TracerProvider(), meter_provider=MeterProvider([InMemoryMetricReader()])
    )
    yield
    instrumentor.uninstrument()


@pytest.mark.usefixtures("governed")
def test_counting_twice_finds_the_same() -> None:
    first, second = counts(), counts()
    assert first["sync chunk steps"] > 0
    assert second == pytest.approx(first, rel=0.02, abs=1)


@pytest.mark.usefixtures("governed")
def test_every_gap_is_one_record_and_a_stream_makes_as_many_more_as_were_agreed() -> None:
    found = counts()
    for kind in ("sync", "async"):
        assert found[f"{kind} chunk records"] == 1
        assert found[f"{kind} stream records"] <= BARS["all"][f"{kind} stream records"]
        assert found[f"{kind} call records"] <= BARS["all"][f"{kind} call records"]


@pytest.mark.usefixtures("governed")
def test_no_chunk_starts_a_timer_or_a_thread() -> None:
    found = counts()
    assert found["sync chunk starts"] == found["async chunk starts"] == 0
    assert found["sync stream starts"] <= 1
    assert found["async stream starts"] <= 2


def test_a_process_without_our_package_in_its_frames_counts_nothing() -> None:
    # The SDK's own close of an asynchronous stream may start a timer.
    assert {figure for figure, value in counts().items() if value} <= {"async stream starts"}


def test_what_is_within_chance_is_no_slowdown() -> None:
    assert check.slower(BARS, BARS, same_python=True) == []


@pytest.mark.parametrize(
    ("figure", "times"),
    [
        ("sync chunk steps", 1.06),
        ("async stream calls", 1.06),
        ("bytes held", 1.09),
        ("sync stream records", 1.2),
    ],
)
def test_a_little_more_work_is_seen(figure: str, times: float) -> None:
    now = {name: dict(figures) for name, figures in BARS.items()}
    now["all"][figure] *= times
    (told,) = check.slower(now, BARS, same_python=True)
    assert told.startswith(f"all, {figure}: ")


def test_time_is_allowed_to_double() -> None:
    now = {name: dict(figures) for name, figures in BARS.items()}
    for times, seen in ((1.9, 0), (2.1, 1)):
        now["all"]["ratio chunk"] = 1 + (BARS["all"]["ratio chunk"] - 1) * times
        assert len(check.slower(now, BARS, same_python=True)) == seen


def test_the_counters_leave_nothing_behind() -> None:
    counts()
    assert sys.getprofile() is None
    assert sys.gettrace() is None


def test_every_pin_of_a_peer_is_exact() -> None:
    pins = sorted((Path(check.__file__).parents[1] / "requirements" / "peers").glob("*.txt"))
    assert len(pins) == 7
    for file in pins:
        lines = file.read_text(encoding="utf-8").splitlines()
        assert all(line.startswith("#") or line.count("==") == 1 for line in lines), file.name


def test_time_is_taken_again_only_where_it_seems_to_have_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least of all rounds counts, so that a busy moment is not taken for a slowdown and a slowdown stays one."""
    taken: list[str] = []

    def alternate(names: Any, tasks: dict[str, int], generations: int, progress: Any) -> Any:
        (task,) = tasks
        if task != "sync":
            one = {"counts": {"steps": 1.0}, "memory": {"held": 1.0, "waiting": 1.0}}[task]
            return {task: {name: [one] for name in names}}, {}
        taken.append(task)
        slow = 2.0 if len(taken) == 1 else 1.1
        return {task: {name: [{"chunk": 1.0 if name == "bare" else slow, "call": 1.0}] for name in names}}, {}

    monkeypatch.setattr(check, "alternate", alternate)
    found = check.measured(enough=lambda now: now["all"]["ratio chunk"] < 1.2)
    assert (len(taken), found["all"]["ratio chunk"]) == (2, 1.1)
    taken.clear()
    check.measured(enough=lambda now: now["all"]["ratio chunk"] < 1.05)
    assert len(taken) == check.TIMED_TRIES
