"""When the retries of a route may go: who queues, where, and for how long at most."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallwatch.core.budget import LONGEST_BACK_OFF, LONGEST_SERVER_WAIT
from stallwatch.core.pacing import BURST, BURST_WINDOW, SPACING, Pacing, Slot


def burst(now: float) -> Pacing:
    """A route that fails in a burst."""
    pacing = Pacing()
    for _ in range(BURST):
        pacing.on_failure(now)
    return pacing


def waits(pacing: Pacing, now: float, delays: list[float]) -> list[float]:
    return [pytest.approx(pacing.reserve(now, delay).delay) for delay in delays]


def test_the_numbers() -> None:
    assert (BURST, BURST_WINDOW, SPACING) == (5, 10, 0.1)
    assert BURST_WINDOW > LONGEST_BACK_OFF


def test_on_a_route_at_peace_a_wait_is_what_it_was() -> None:
    pacing = Pacing()
    assert [pacing.reserve(100, delay) for delay in (1.0, 1.0, 500.0)] == [
        Slot(delay=1),
        Slot(delay=1),
        Slot(delay=500),
    ]


# Who queues


def test_a_burst_makes_retries_queue() -> None:
    pacing = Pacing()
    for number in range(1, BURST + 1):
        pacing.on_failure(100)
        assert pacing.queueing(100) is (number == BURST)


@pytest.mark.parametrize(("between", "queueing"), [(2.5, True), (2.6, False)])
def test_failures_far_apart_are_no_burst(between: float, queueing: bool) -> None:
    pacing, now = Pacing(), 100.0
    for _ in range(BURST - 1):
        pacing.on_failure(now)
        now += between
    pacing.on_failure(now)
    assert pacing.queueing(now) is queueing


def test_a_burst_is_over_when_it_is_long_ago() -> None:
    pacing = burst(100)
    assert pacing.queueing(110)
    assert not pacing.queueing(110.1)


def test_a_success_ends_a_burst_but_not_a_servers_wait() -> None:
    pacing = burst(100)
    pacing.on_success(101)
    assert not pacing.queueing(101)
    pacing.on_failure(101, 20)
    pacing.on_success(102)
    assert pacing.queueing(120.9)
    assert not pacing.queueing(121)


def test_one_run_that_keeps_failing_does_not_queue_behind_itself() -> None:
    pacing = Pacing()
    for now in (100.0, 100.5, 101.5):
        pacing.on_failure(now)
        assert pacing.reserve(now, 0.5) == Slot(delay=0.5)


# Where


def test_slots_are_spaced() -> None:
    assert waits(burst(100), 100, [0.5, 0.5, 0.5]) == [0.5, 0.6, 0.7]


def test_a_queue_stands_behind_the_servers_wait_whatever_the_runs_own() -> None:
    pacing = Pacing()
    pacing.on_failure(100, 20)
    assert waits(pacing, 100, [20, 0.5, 20, 1]) == [20, 20.1, 20.2, 20.3]
    assert waits(pacing, 110, [0.5]) == [10.4]


def test_of_several_waits_of_the_server_the_one_that_ends_last_counts() -> None:
    pacing = Pacing()
    pacing.on_failure(100, 20)
    pacing.on_failure(101, 2)
    assert waits(pacing, 101, [2]) == [19]


def test_who_waits_long_holds_nobody_up() -> None:
    assert waits(burst(100), 100, [8, 0.5, 8, 0.5]) == [8, 0.5, 8.1, 0.6]


def test_a_slot_fits_between_two_others_only_where_there_is_room() -> None:
    assert waits(burst(100), 100, [1, 1.2, 1.35, 0.95, 1.05]) == [1, 1.2, 1.35, 1.1, 1.45]


def test_a_gap_as_wide_as_two_spacings_is_used_whatever_rounding_did() -> None:
    for start in range(100, 200):
        assert waits(burst(start), start, [0.3, 0.5, 0.3]) == [0.3, 0.5, 0.4]


def test_only_a_wait_that_became_longer_is_called_paced() -> None:
    pacing = burst(100)
    first, second = pacing.reserve(100, 0.5), pacing.reserve(100, 0.5)
    assert (first.delay, first.paced, first.at) == (0.5, False, 100.5)
    assert second.paced


def test_slots_of_the_past_hold_nobody_up() -> None:
    pacing = burst(100)
    waits(pacing, 100, [0.0] * 50)
    for _ in range(BURST):
        pacing.on_failure(104.95)
    assert waits(pacing, 104.95, [0, 0]) == [0.05, 0.15]


def test_slots_of_the_past_are_forgotten() -> None:
    pacing = Pacing()
    for second in range(3600):
        for _ in range(BURST):
            pacing.on_failure(second)
        waits(pacing, second, [1.0] * 9)
    assert len(pacing._taken) < 30


# How long


def test_the_longest_wait_a_server_may_ask_for_gets_a_slot_and_the_next_does_not() -> None:
    for start in (0.0, 0.1, 1e5 / 3, 1e6 / 7):
        pacing = Pacing()
        pacing.on_failure(start, LONGEST_SERVER_WAIT)
        assert pacing.reserve(start, LONGEST_SERVER_WAIT).at is not None
        assert pacing.reserve(start, LONGEST_SERVER_WAIT) == Slot(delay=pytest.approx(120.1), paced=True)


def test_a_queue_has_an_end() -> None:
    pacing = Pacing()
    pacing.on_failure(0, 100)
    slots = [pacing.reserve(0, 1) for _ in range(1000)]
    assert sum(slot.at is not None for slot in slots) == 201
    assert all((slot.at is None) == (slot.delay > LONGEST_SERVER_WAIT) for slot in slots)


def test_a_servers_wait_that_nobody_sleeps_is_not_held_against_others() -> None:
    pacing = Pacing()
    pacing.on_failure(100, 3600)
    assert pacing.reserve(100, 0.5) == Slot(delay=0.5)


# Giving back


def test_a_slot_given_back_is_handed_out_again() -> None:
    pacing = burst(100)
    first, second = pacing.reserve(100, 0.5), pacing.reserve(100, 0.5)
    pacing.release(first)
    assert pacing.reserve(100, 0.5).at == first.at
    assert waits(pacing, 100, [0.5]) == [0.7]
    assert second.at is not None


def test_giving_back_twice_takes_nobody_elses_place() -> None:
    pacing = burst(100)
    mine = pacing.reserve(100, 0.5)
    pacing.release(mine)
    theirs = pacing.reserve(100, 0.5)
    pacing.release(mine)
    assert theirs.at == mine.at
    assert waits(pacing, 100, [0.5]) == [0.6]


def test_giving_back_what_is_not_held_changes_nothing() -> None:
    pacing = burst(100)
    waits(pacing, 100, [0.5])
    pacing.release(Slot(delay=1))
    pacing.release(Slot(delay=1, at=100.7, number=9))
    assert waits(pacing, 100, [0.5]) == [0.6]


EVENTS = st.lists(
    st.tuples(
        st.floats(0, 20),
        st.sampled_from(["failure", "wait", "success", "reserve", "reserve", "reserve", "release"]),
        st.floats(0.01, 150),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(EVENTS, st.floats(0, 1e6), st.integers(1, 8))
def test_no_wait_is_shortened_none_is_too_long_and_slots_keep_their_distance(
    events: list[tuple[float, str, float]], start: float, crowd: int
) -> None:
    pacing, now, held = Pacing(), start, list[Slot]()
    until = start
    for step, event, seconds in events:
        now += step
        for _ in range(crowd):
            if event == "failure":
                pacing.on_failure(now)
            elif event == "wait":
                pacing.on_failure(now, seconds)
                if seconds <= LONGEST_SERVER_WAIT:
                    until = max(until, now + seconds)
            elif event == "success":
                pacing.on_success(now)
            elif event == "release" and held:
                pacing.release(held.pop())
            elif event == "reserve":
                slot = pacing.reserve(now, seconds)
                assert slot.delay >= seconds
                assert slot.paced == (slot.delay > seconds)
                if slot.at is not None:
                    assert slot.delay <= LONGEST_SERVER_WAIT
                    assert slot.at >= until
                    held.append(slot)
                elif slot.paced:
                    assert slot.delay > LONGEST_SERVER_WAIT
    # What lies in the past may have been forgotten, so distances are those of what was held at one time.
    instants = sorted(slot.at for slot in held if slot.at is not None and slot.at >= now)
    assert all(later - earlier > SPACING - 1e-5 for earlier, later in pairwise(instants))


def test_a_wait_that_is_only_asked_for_reserves_nothing() -> None:
    pacing = Pacing()
    assert pacing.wait(0.0, 0.5) == 0.5
    pacing.on_failure(0.0, 1.0)
    for _ in range(3):
        assert pacing.wait(0.0, 0.5) == pytest.approx(1.0)
    assert pacing.reserve(0.0, 0.5).delay == pytest.approx(1.0)
    assert pacing.wait(0.0, 0.5) == pytest.approx(1.0 + SPACING)
