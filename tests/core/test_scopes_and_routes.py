"""The clocks of a call within a scope, and of one that goes on with another route."""

from __future__ import annotations

import pytest

from stallwatch.core.chunks import VISIBLE
from stallwatch.core.deadlines import Limits, Until
from stallwatch.core.phases import Stall, Tracker, Whole
from stallwatch.core.words import Outcome, Phase


def tracker(until: Until | None = None, now: float = 0.0, **limits: float) -> Tracker:
    made = Tracker(Limits(**limits), now)
    made.until = until
    made.on_attempt(now)
    return made


@pytest.mark.parametrize(
    ("limits", "until", "at", "scoped"),
    [
        ({}, Until(at=5.0, total=5.0), 5.0, True),
        ({"total": 9.0}, Until(at=5.0, total=5.0), 5.0, True),
        ({"total": 3.0}, Until(at=5.0, total=5.0), 3.0, False),
        ({"total": 5.0}, Until(at=5.0, total=5.0), 5.0, False),
        ({"total": 3.0}, None, 3.0, False),
    ],
)
def test_the_nearer_of_the_two_totals_counts(
    limits: dict[str, float], until: Until | None, at: float, scoped: bool
) -> None:
    due = tracker(until, **limits).due()
    assert due is not None
    assert (due.at, due.phase, due.scoped) == (at, Phase.TOTAL, scoped)


def test_a_phase_that_ends_before_the_scope_does_is_due_first() -> None:
    due = tracker(Until(at=5.0, total=5.0), first_token=2.0).due()
    assert due is not None
    assert (due.at, due.phase, due.scoped) == (2.0, Phase.FIRST_TOKEN, False)


def test_a_scope_runs_by_the_wall_and_a_total_by_waiting() -> None:
    clocks = tracker(Until(at=5.0, total=5.0), total=4.0)
    clocks.on_chunk(VISIBLE, 1.0)
    clocks.on_wait(4.0)
    due = clocks.due()
    assert due is not None
    assert (due.at, due.scoped) == (5.0, True)
    found = clocks.judge(5.5)
    assert isinstance(found, Stall)
    assert (found.phase, found.limit, found.scoped) == (Phase.TOTAL, 5.0, True)
    assert found.waited == pytest.approx(5.5)


def test_a_scope_that_ends_finds_a_whole_answer_whole() -> None:
    clocks = tracker(Until(at=5.0, total=5.0))
    clocks.on_end_mark(True)
    assert isinstance(clocks.judge(5.5), Whole)


def test_a_spent_scope_is_found_once() -> None:
    clocks = tracker(Until(at=5.0, total=5.0))
    found = clocks.judge(6.0)
    assert isinstance(found, Stall)
    clocks.on_stall(found)
    assert clocks.due() is None


def test_another_route_goes_on_with_start_total_and_longest_gap() -> None:
    first = tracker(first_token=2.0, total=10.0)
    found = first.judge(2.5)
    assert isinstance(found, Stall)
    first.on_stall(found)
    first.finish(Outcome.STALLED, 2.5)
    second = tracker(now=3.0, total=10.0)
    second.follow(first, 3.0)
    assert second.started == 0.0
    assert second.longest_gap == pytest.approx(2.5)
    due = second.due()
    assert due is not None
    # What the first has waited is spent; the half second between the two was nobody's wait.
    assert due.at == pytest.approx(3.0 + 10.0 - 2.5)
