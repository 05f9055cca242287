"""The numbers of the built-in policy, and what the clocks make of them."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from core.timeline import BYTES, Row, ending, play
from stallwatch.core.chunks import REASONING, VISIBLE
from stallwatch.core.phases import Limits, Stall
from stallwatch.policy import Policy
from stallwatch.resolution import Layers, resolve


def limits_of(model: str, **settings: object) -> Limits:
    calls = [Policy.of(**settings)] if settings else []
    return resolve(Layers(), model=model, base_url=None, calls=calls).limits


FIELDS = ("connect", "first_token", "thinking", "idle", "total")


@pytest.mark.parametrize(
    ("model", "numbers"), [("gpt-4o", (5, 120, 120, 120, 3600)), ("o3", (5, 300, 300, 120, 3600))]
)
def test_the_built_in_deadlines(model: str, numbers: tuple[float, ...]) -> None:
    limits = limits_of(model)
    assert asdict(limits) == {
        **dict(zip(FIELDS, numbers, strict=True)),
        "keepalive_factor": 2,
        "any_chunk_is_progress": False,
    }


PINGS: list[Row] = [(10 * step, BYTES) for step in range(1, 71)]
SILENCES: dict[str, tuple[str, list[Row], float]] = {
    "no byte before the first token": ("gpt-4o", [], 120),
    "no byte, hidden reasoning": ("o3", [], 300),
    "keepalives before the first token": ("gpt-4o", PINGS, 240),
    "keepalives, hidden reasoning": ("o3", PINGS, 600),
    "silence while thinking": ("gpt-4o", [(0, REASONING)], 120),
    "silence while thinking, hidden reasoning": ("o3", [(0, REASONING)], 300),
    "keepalives while thinking, hidden reasoning": ("o3", [(0, REASONING), *PINGS], 600),
    "silence in mid-answer": ("gpt-4o", [(0, VISIBLE)], 120),
    "keepalives in mid-answer": ("gpt-4o", [(0, VISIBLE), *PINGS], 120),
    "keepalives in mid-answer, hidden reasoning": ("o3", [(0, VISIBLE), *PINGS], 120),
}


@pytest.mark.parametrize(("model", "rows", "at"), SILENCES.values(), ids=SILENCES.keys())
def test_how_long_a_default_call_may_be_silent(model: str, rows: list[Row], at: float) -> None:
    tracker = play(limits_of(model), [row for row in rows if row[0] < at])
    end = ending(tracker)
    assert end is not None
    assert isinstance(end[1], Stall)
    assert end[0] == at


@pytest.mark.parametrize("off", [0, None, -1, "0s", "off"])
@pytest.mark.parametrize("field", FIELDS)
def test_zero_none_or_negative_switches_a_deadline_off(field: str, off: object) -> None:
    assert getattr(limits_of("o3", **{field: off}), field) is None


def test_an_explicit_value_wins_over_the_built_in_downwards_too() -> None:
    assert limits_of("o3", first_token=1).first_token == 1
    assert limits_of("o3", first_token=120).first_token == 120
    assert limits_of("o3", first_token=1).thinking == 300


def test_progress_by_chunk_is_handed_to_the_clocks() -> None:
    assert limits_of("gpt-4o", progress="chunk").any_chunk_is_progress


def test_a_silent_call_bounded_by_the_total_alone_keeps_its_span_open_until_then() -> None:
    resolved = resolve(Layers(), model="gpt-4o", base_url=None, calls=[Policy.of(idle=None)])
    assert resolved.backstop == 3630
    assert resolve(Layers(), model="gpt-4o", base_url=None).backstop == 300
    assert resolve(Layers(), model="o3", base_url=None).backstop == 630
