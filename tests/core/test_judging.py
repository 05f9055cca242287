"""Whether a wait that is due is a stall: the rules, their order and their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.core.judging import GRACE, LATE, PATIENCE, ROUNDS, Judge, Judgement

AGAIN, GRANT, STALL = Judgement.AGAIN, Judgement.GRANT, Judgement.STALL

Seen = dict[str, object]
NOTHING: Seen = {}
READY: Seen = {"ready": True}
READABLE: Seen = {"readable": True}
CLOSED: Seen = {"closed": True}
DUE, WAIT = 100.0, 90.0


def rule(
    judge: Judge, now: float, seen: Seen | None = None, *, due: float = DUE, wait: float = WAIT
) -> Judgement:
    observed: Seen = {"received": 7, **(seen or {})}
    return judge.rule(now, due, wait=wait, **observed)  # type: ignore[arg-type]


STORIES: dict[str, list[tuple[float, Seen, Judgement]]] = {
    # name: (seconds past due, what is seen, ruling) ...
    "silence is a stall after one turn for what is in the decoders": [
        (0, NOTHING, AGAIN),
        (0.001, NOTHING, STALL),
    ],
    "a reader about to run is let run, and its turns use nothing up": [
        (0, READY, AGAIN),
        (5, READY, AGAIN),
        (9, READY, AGAIN),
        (10, NOTHING, AGAIN),
        (10.001, NOTHING, GRANT),
        (10.06, NOTHING, STALL),
    ],
    "a reader about to run wins over a spent patience": [
        *[(step / 100, READABLE, AGAIN) for step in range(ROUNDS)],
        (1, READABLE, STALL),
        (1, READY, AGAIN),
    ],
    "a readable socket is read first": [
        (0, READABLE, AGAIN),
        (0.01, READABLE, AGAIN),
        (0.02, NOTHING, STALL),
    ],
    "a closed response ends by itself": [
        (0, CLOSED, AGAIN),
        (0.01, CLOSED, AGAIN),
        (0.02, NOTHING, STALL),
    ],
    "new bytes are given their turn": [
        (0, NOTHING, AGAIN),
        (0.01, {"received": 8}, AGAIN),
        (0.02, {"received": 9}, AGAIN),
        (0.03, {"received": 9}, STALL),
    ],
    "a late timer earns one grace": [
        (0.06, NOTHING, AGAIN),
        (0.061, NOTHING, GRANT),
        (0.12, NOTHING, STALL),
    ],
    "bytes that come in the grace are given their turn": [
        (2, NOTHING, AGAIN),
        (2.001, NOTHING, GRANT),
        (2.06, {"received": 8}, AGAIN),
        (2.061, {"received": 8}, STALL),
    ],
    "what was on time at first is not late by being judged again": [
        (0.04, READABLE, AGAIN),
        (5, NOTHING, STALL),
    ],
    "exactly fifty milliseconds is not late": [
        (LATE, NOTHING, AGAIN),
        (LATE, NOTHING, STALL),
    ],
    "a comment flood ends": [
        *[(step / 1000, {"received": 8 + step}, AGAIN) for step in range(50)],
        (0.05, {"received": 100}, STALL),
    ],
    "a flood after a late timer ends after its grace": [
        *[(1 + step / 100, READABLE, AGAIN) for step in range(ROUNDS)],
        (1.2, READABLE, GRANT),
        (1.3, READABLE, STALL),
    ],
    "slow rounds: time alone does not use up the reader's turns": [
        *[(0.25 * step, READABLE, AGAIN) for step in range(ROUNDS)],
        (0.25 * ROUNDS, READABLE, STALL),
    ],
    "quick rounds: turns alone do not use up the reader's time": [
        *[(0.0001 * step, READABLE, AGAIN) for step in range(400)],
        (PATIENCE + 0.001, READABLE, STALL),
    ],
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_story(story: list[tuple[float, Seen, Judgement]]) -> None:
    judge = Judge()
    assert [rule(judge, past, seen, due=0.0) for past, seen, _ in story] == [ruling for *_, ruling in story]


def test_the_bounds() -> None:
    assert (ROUNDS, PATIENCE, LATE, GRACE) == (10, 0.05, 0.05, 0.05)


def test_a_new_wait_starts_with_nothing_used_up() -> None:
    judge = Judge()
    first = [rule(judge, 102), rule(judge, 102.001), rule(judge, 102.1)]
    second = [rule(judge, 112, due=110, wait=105), rule(judge, 112.001, due=110, wait=105)]
    assert first == [AGAIN, GRANT, STALL]
    assert second == [AGAIN, GRANT]
    assert rule(judge, 112.1, due=110, wait=105) is STALL


def test_a_deadline_that_bytes_have_moved_has_its_own_rounds_and_lateness() -> None:
    judge = Judge()
    for number in range(ROUNDS):
        assert rule(judge, 100 + number, {"received": number}, due=100 + number) is AGAIN
    assert rule(judge, 120, {"readable": True, "received": ROUNDS}, due=120) is AGAIN
    assert rule(judge, 130.1, {"received": ROUNDS}, due=130) is GRANT


def test_the_grace_is_given_once_in_a_wait_even_when_its_deadline_moves() -> None:
    judge = Judge()
    assert [rule(judge, 101), rule(judge, 101), rule(judge, 101)] == [AGAIN, GRANT, STALL]
    assert [rule(judge, 202, due=200), rule(judge, 202, due=200)] == [STALL, STALL]


def test_a_deadline_that_had_passed_before_the_wait_began_is_granted_no_second_grace() -> None:
    judge = Judge()
    assert [rule(judge, 102), rule(judge, 102.001)] == [AGAIN, GRANT]
    # A chunk came within the grace, and changed nothing about the deadline.
    assert [rule(judge, 102.03, wait=102.03), rule(judge, 102.031, wait=102.03)] == [AGAIN, STALL]
    # Progress came, and made a new one.
    assert [rule(judge, 115, due=112, wait=104), rule(judge, 115.001, due=112, wait=104)] == [AGAIN, GRANT]


@given(st.floats(0.06, 3), st.lists(st.floats(0.005, 0.045), min_size=40, max_size=40))
def test_chunks_that_change_nothing_about_a_deadline_do_not_keep_it_off(
    late: float, gaps: list[float]
) -> None:
    """However late the first timer was: heartbeats, or any chunk once the total has passed."""
    judge, now, wait = Judge(), DUE + late, WAIT
    for received, gap in enumerate(gaps):
        ruling = AGAIN
        until = now + gap
        while ruling is AGAIN:
            ruling = judge.rule(now, DUE, wait=wait, received=received)
            now += 0.001
        if ruling is STALL:
            assert now < DUE + late + GRACE + 2 * PATIENCE
            return
        now = wait = until
    pytest.fail("it was granted one grace after the other")


def test_the_same_count_of_bytes_in_another_wait_is_no_news_but_its_first_turn_is_granted() -> None:
    judge = Judge()
    assert [rule(judge, 100), rule(judge, 100)] == [AGAIN, STALL]
    assert [rule(judge, 120, due=120, wait=110), rule(judge, 120, due=120, wait=110)] == [AGAIN, STALL]


OBSERVATIONS = st.tuples(
    st.floats(0, 0.02),
    st.fixed_dictionaries({"readable": st.booleans(), "closed": st.booleans()}),
    st.integers(0, 3),
)


@given(st.floats(0, 3), st.lists(OBSERVATIONS, min_size=1, max_size=200))
def test_a_wait_without_a_ready_reader_is_judged_in_bounded_rounds_and_time(
    late: float, turns: list[tuple[float, dict[str, bool], int]]
) -> None:
    judge, now, received, rounds = Judge(), late, 0, 0
    first: float | None = None
    for step, seen, more in turns:
        now, received = now + step, received + more
        first = now if first is None else first
        ruling = judge.rule(now, 0.0, wait=-1.0, received=received, **seen)
        if ruling is AGAIN:
            rounds += 1
            assert rounds <= ROUNDS or now - first < PATIENCE
        elif ruling is GRANT:
            assert first > LATE
        else:
            return


@given(st.lists(st.floats(0, 10), max_size=50))
def test_a_ready_reader_is_never_cut(steps: list[float]) -> None:
    judge, now = Judge(), DUE
    for step in steps:
        now += step
        assert rule(judge, now, {"ready": True, "readable": True, "closed": True}) is AGAIN


@pytest.mark.parametrize("seen", [READY, READABLE, NOTHING], ids=["ready", "readable", "new bytes"])
def test_a_flood_of_waits_that_move_nothing_is_a_stall(seen: Seen) -> None:
    """Each heartbeat ends a wait, and what comes faster than it is read is always there to be read."""
    judge, rulings = Judge(), []
    for number in range(200):
        now = DUE + number / 1000
        rulings.append(rule(judge, now, {"received": number, **seen}, wait=now - 0.0005))
        if rulings[-1] is STALL:
            break
    assert rulings[-1] is STALL
    assert ROUNDS <= len(rulings) <= 1000 * PATIENCE + 3


def test_what_moves_the_deadline_gives_patience_anew() -> None:
    judge = Judge()
    for number in range(200):
        now = DUE + number / 1000
        # Progress: the deadline of each wait lies behind the last judgement.
        assert rule(judge, now, READABLE, due=now - 0.0002, wait=now - 0.0005) is AGAIN
