"""How long a back-off is, and how many retries a route may see."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallwatch.core.budget import (
    CALL_SHARE,
    HALF_LIFE,
    LONGEST_BACK_OFF,
    LONGEST_SERVER_WAIT,
    PER_MINUTE,
    RetryBudget,
    back_off,
)

ALMOST_ONE = math.nextafter(1, 0)


@pytest.mark.parametrize(
    ("retry", "longest"), [(0, 0.5), (1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (10, 8), (10**6, 8)]
)
def test_a_back_off_doubles_up_to_eight_seconds_and_loses_at_most_a_quarter(
    retry: int, longest: float
) -> None:
    assert back_off(retry, 0) == longest
    assert back_off(retry, 0.5) == longest * 0.875
    assert longest * 0.75 <= back_off(retry, ALMOST_ONE) <= longest * 0.7501


def test_the_numbers() -> None:
    assert (CALL_SHARE, PER_MINUTE, HALF_LIFE) == (0.2, 10, 60)
    assert (LONGEST_BACK_OFF, LONGEST_SERVER_WAIT) == (8, 120)


def spend(budget: RetryBudget, now: float) -> int:
    """Take what is left; return how many that were."""
    taken = 0
    while budget.take(now):
        taken += 1
    return taken


def test_a_new_route_may_see_ten_retries_at_once() -> None:
    budget = RetryBudget()
    assert budget.left(5) == 10
    assert spend(budget, 5) == 10
    assert budget.left(5) == 0


@pytest.mark.parametrize(("calls", "retries"), [(1, 10), (5, 11), (7, 11), (100, 30), (1000, 210)])
def test_calls_earn_a_fifth_of_their_number(calls: int, retries: int) -> None:
    budget = RetryBudget()
    for _ in range(calls):
        budget.on_call(0)
    assert spend(budget, 0) == retries


@pytest.mark.parametrize(
    ("later", "retries"), [(5, 0), (6, 1), (59, 9), (60, 10), (3600, 10), (10 * 3600, 10)]
)
def test_ten_a_minute_come_back_and_a_night_saves_up_no_more(later: float, retries: int) -> None:
    budget = RetryBudget()
    spend(budget, 100)
    assert spend(budget, 100 + later) == retries


@pytest.mark.parametrize(("later", "earned"), [(0, 200), (60, 100), (120, 50), (3600, 0)])
def test_what_calls_have_earned_lapses(later: float, earned: int) -> None:
    budget = RetryBudget()
    for _ in range(1000):
        budget.on_call(0)
    assert spend(budget, later) == PER_MINUTE + earned


def test_what_lapses_is_spent_first() -> None:
    budget = RetryBudget()
    for _ in range(10):
        budget.on_call(0)
    assert budget.take(0)
    assert budget.take(0)
    assert budget.left(0) == pytest.approx(10)
    assert budget.take(0)
    assert budget.left(0) == pytest.approx(9)


def test_a_steady_route_gets_a_fifth_of_its_calls_and_ten_a_minute() -> None:
    budget = RetryBudget()
    spend(budget, 0)
    granted = 0
    for second in range(1, 3601):
        for _ in range(5):
            budget.on_call(second)
        granted += spend(budget, second)
    assert granted == pytest.approx(3600 * 5 * CALL_SHARE + 60 * PER_MINUTE, rel=0.02)


def test_a_retry_that_was_refused_draws_nothing() -> None:
    budget = RetryBudget()
    spend(budget, 0)
    assert not any(budget.take(0) for _ in range(100))
    assert budget.take(6)


def test_what_is_put_back_may_be_taken_again() -> None:
    budget = RetryBudget()
    spend(budget, 0)
    budget.put_back(0)
    assert budget.take(0)
    assert not budget.take(0)


def test_of_what_was_drawn_from_nothing_nothing_is_put_back() -> None:
    budget = RetryBudget()
    spend(budget, 0)
    budget.on_call(0)
    drawn = [budget.count(0), budget.count(0)]
    assert drawn == [CALL_SHARE, 0]
    for part in drawn:
        budget.put_back(0, part)
    assert budget.left(0) == CALL_SHARE


def test_the_sdks_own_retries_draw_on_it_but_leave_no_debt() -> None:
    budget = RetryBudget()
    assert [budget.count(0) for _ in range(4)] == [1, 1, 1, 1]
    assert budget.left(0) == 6
    for _ in range(1000):
        budget.count(0)
    assert budget.left(0) == 0
    assert budget.left(6) == pytest.approx(1)


def test_while_the_sdks_own_retries_storm_there_is_nothing_for_others() -> None:
    budget = RetryBudget()
    for second in range(1, 60):
        budget.count(second)
        budget.count(second)
        assert second < 6 or not budget.take(second)


def test_an_instant_from_the_past_changes_nothing_but_the_count() -> None:
    budget = RetryBudget()
    spend(budget, 100)
    budget.on_call(40)
    assert budget.left(40) == budget.left(100) == CALL_SHARE
    assert budget.left(160) == pytest.approx(10 + CALL_SHARE / 2)


EVENTS = st.lists(
    st.tuples(st.floats(0, 500), st.sampled_from(["call", "take", "count", "put_back"]), st.integers(1, 30)),
    max_size=60,
)


@settings(deadline=None)
@given(EVENTS, st.floats(0, 1e9))
def test_no_stretch_of_time_sees_more_than_the_allowance_and_its_share(
    events: list[tuple[float, str, int]], start: float
) -> None:
    budget, now, calls, taken, put_back = RetryBudget(), start, 0, 0, 0
    for step, event, times in events:
        now += step
        for _ in range(times):
            if event == "call":
                budget.on_call(now)
                calls += 1
            elif event == "take":
                taken += budget.take(now)
            elif event == "count":
                budget.count(now)
            elif taken > put_back:
                budget.put_back(now)
                put_back += 1
        assert budget.left(now) >= 0
        most = PER_MINUTE + PER_MINUTE / 60 * (now - start) + CALL_SHARE * calls
        assert taken - put_back <= most + 1e-3
