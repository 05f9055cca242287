"""The soak's judgement: a leak is told from noise, books that differ are named, and each row can fail."""

from __future__ import annotations

import random

import pytest
from soak.books import TRACED_LEAST, Soaked, rows
from soak.cases import CASES
from soak.judging import equal, grown, growth, nothing
from soak.sink import Received
from soak.ways import _ASYNC_WAYS, _WAYS

from stallwatch.testing.scenario_grammar import parse_model
from stallwatch.testing.scenarios import SCENARIOS

KIB = 1024.0


def _noisy(seed: int, count: int, noise: float, step: float = 0.0) -> list[float]:
    dice = random.Random(seed)
    return [15_000 * KIB + step * number + dice.gauss(0, noise) for number in range(count)]


@pytest.mark.parametrize("count", [6, 12, 28])
def test_noise_is_hardly_ever_taken_for_growth(count: int) -> None:
    alarms = sum(
        found.total > found.allowed
        for found in (growth(_noisy(seed, count, 200 * KIB), least=64 * KIB) for seed in range(300))
    )
    assert alarms <= 300 * (0.06 if count == 6 else 0.01)


@pytest.mark.parametrize("count", [6, 12, 28])
def test_growth_beyond_what_noise_makes_is_seen(count: int) -> None:
    for seed in range(100):
        found = growth(_noisy(seed, count, 20 * KIB, step=100 * KIB), least=64 * KIB)
        assert found.total > found.allowed, found


def test_one_odd_reading_changes_nothing() -> None:
    readings = _noisy(1, 12, 1 * KIB)
    readings[7] += 5000 * KIB
    assert growth(readings, least=64 * KIB).total < 64 * KIB


def test_an_object_left_of_each_call_is_seen_in_ten_minutes() -> None:
    calls, rests = 20_000, 26
    leak = [rest * 56 * calls / rests for rest in range(rests)]
    readings = [value + extra for value, extra in zip(_noisy(2, rests, 100 * KIB), leak, strict=True)]
    assert not grown("memory", readings, calls, TRACED_LEAST).holds


def test_too_few_readings_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        growth([1.0, 2.0, 3.0], least=0)


def test_books_that_differ_are_named() -> None:
    assert equal("calls", {"a": 2, "b": 0}, {"a": 2}).holds
    different = equal("calls", {"a": 2, "b": 1}, {"a": 3})
    assert not different.holds
    assert different.found == "a 2 != 3; b 1 != 0"
    assert equal("calls", {"a": 2}, {"a": 1}, at_most=frozenset({"a"})).holds
    assert not equal("calls", {"a": 2}, {"a": 3}, at_most=frozenset({"a"})).holds


def test_nothing_means_nothing() -> None:
    assert nothing("complaints", {"loop": 0}).holds
    assert not nothing("complaints", {"loop": 1}).holds


def test_quiet_readings_do_not_make_a_strict_judge() -> None:
    assert grown("memory", [1000.0 * KIB, 1001 * KIB, 1002 * KIB, 1003 * KIB], 1000, TRACED_LEAST).holds


REST = {
    "traced": 1000,
    "resident": 1000,
    "descriptors": 6,
    "threads": 4,
    "tasks": 0,
    "runs": 0,
    "spans": 0,
}


def _points(**more: int) -> list[dict[str, object]]:
    numbers = {
        "stallwatch.attempt.duration": 3,
        "gen_ai.client.operation.duration": 3,
        "stallwatch.streams": 3,
        "stallwatch.stalls": 0,
        "stallwatch.streams.active": 0,
        **more,
    }
    labels = {"gen_ai.request.model": "healthy", "stallwatch.outcome": "completed"}
    return [{"name": name, "number": number, "attributes": labels} for name, number in numbers.items()]


def _soaked(**changes: object) -> Soaked:
    told: dict[str, object] = {
        "calls": {"healthy": 3},
        "ended": {"healthy: completed": 3},
        "errors": {},
        "complaints": {},
        "late": [1, 2],
        "latest": (0.02, "silent"),
        "lag": 0.0,
        "spans": {"ended": {"healthy: completed": 3}, "attempts": {"healthy": 3}, "stalls": 0},
        "exported": {"delivered": {"healthy: completed": 2}, "refused": {"healthy: completed": 1}},
    }
    rests = [{**REST, "calls": number} for number in range(1, 7)]
    return Soaked(
        rests=[*rests[:-1], {**rests[-1], **changes.get("rest", {})}],  # type: ignore[dict-item]
        told={**told, **changes.get("told", {})},  # type: ignore[dict-item]
        gateway={"requests": {"healthy": 3}, "open": 0, **changes.get("gateway", {})},  # type: ignore[dict-item]
        sink=Received(
            changes.get("spans", {"1": "healthy: completed", "2": "healthy: completed"}),  # type: ignore[arg-type]
            _points(**changes.get("points", {})),  # type: ignore[arg-type]
        ),
    )


def _failed(soaked: Soaked) -> list[str]:
    return [row.what for row in rows(soaked) if not row.holds]


def test_books_that_agree_pass() -> None:
    assert _failed(_soaked()) == []


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"told": {"calls": {"healthy": 4}}}, "calls that ended"),
        ({"told": {"errors": {"healthy: stalled": 1}}}, "calls that ended as they should not"),
        ({"told": {"ended": {"healthy: stalled": 3}}}, "spans, by case and outcome"),
        ({"gateway": {"requests": {"healthy": 4}}}, "requests in the gateway's ledger"),
        ({"gateway": {"open": 1}}, "connections open at the gateway"),
        ({"points": {"stallwatch.attempt.duration": 4}}, "attempts in the metrics"),
        ({"points": {"gen_ai.client.operation.duration": 2}}, "calls in the metrics"),
        ({"points": {"stallwatch.streams": 2}}, "streams in the metrics, by case and outcome"),
        ({"points": {"stallwatch.stalls": 1}}, "stalls in the metrics"),
        ({"points": {"stallwatch.streams.active": 1}}, "streams open, by the metrics"),
        ({"spans": {"1": "healthy: completed"}}, "spans delivered that the sink lacks"),
        ({"spans": {str(n): "healthy: completed" for n in range(4)}}, "spans at the sink that nobody sent"),
        ({"rest": {"descriptors": 7}}, "descriptors at rest"),
        ({"rest": {"threads": 5}}, "threads at rest"),
        ({"rest": {"tasks": 1}}, "tasks at rest"),
        ({"rest": {"runs": 1}}, "runs at rest"),
        ({"rest": {"spans": 1}}, "spans at rest"),
        ({"told": {"complaints": {"loop": 1}}}, "complaints: logs, loops, threads, finalisers"),
        ({"told": {"latest": (0.6, "silent")}}, "stalls told late, median, 99th, last"),
    ],
)
def test_each_row_can_fail(changes: dict[str, object], row: str) -> None:
    assert row in _failed(_soaked(**changes))


def test_the_cases_are_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.ends for case in CASES} == {
        "completed",
        "truncated",
        "stalled",
        "cancelled",
        "closed_early",
        "abandoned",
        "failed",
    }
    for case in CASES:
        assert case.way in _WAYS
        assert case.way in _ASYNC_WAYS
        for attempt in case.attempts:
            parse_model(attempt, SCENARIOS)
