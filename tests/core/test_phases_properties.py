"""What holds for the clocks of a run whatever happens, in whatever order."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallwatch.core.chunks import (
    FINISH,
    HEARTBEAT,
    OUTPUT_UNKNOWN,
    PREAMBLE,
    REASONING,
    TERMINAL,
    USAGE,
    VISIBLE,
    ChunkFacts,
)
from stallwatch.core.phases import Limits, Stall, Tracker, Whole
from stallwatch.core.words import Outcome, Phase

FINISHED = replace(FINISH, finishes=1)
QUIET = (HEARTBEAT, PREAMBLE)
LOUD = (USAGE, OUTPUT_UNKNOWN, REASONING, VISIBLE, FINISHED, replace(VISIBLE, finishes=1), TERMINAL)

Event = str | ChunkFacts | Outcome
Script = list[tuple[float, Event]]

# Sixty-fourths add up without rounding, so that these properties can be exact.
STEPS = st.integers(0, 512).map(lambda count: count / 64)
LIMIT = st.none() | st.integers(1, 1280).map(lambda count: count / 64)
LIMITS = st.builds(
    Limits,
    connect=LIMIT,
    first_token=LIMIT,
    thinking=LIMIT,
    idle=LIMIT,
    total=st.none() | st.integers(1, 4096).map(lambda count: count / 64),
    keepalive_factor=st.sampled_from([1.0, 1.5, 2.0, 8.0]),
    any_chunk_is_progress=st.booleans(),
)
BEFORE = st.sampled_from(["attempt", "connecting", "connected", "back_off"])
READING = st.sampled_from(["wait", "pause", "bytes", *QUIET, *LOUD])
EVENTS = st.one_of(READING, READING, BEFORE)


def scripts(
    events: st.SearchStrategy[Event], steps: st.SearchStrategy[float] = STEPS
) -> st.SearchStrategy[Script]:
    return st.lists(st.tuples(steps, events), max_size=40)


exact = settings(deadline=None, max_examples=200)


def apply(tracker: Tracker, event: Event, now: float) -> float | bool | None:
    """Tell the tracker of ``event``; return its answer."""
    if isinstance(event, ChunkFacts):
        return tracker.on_chunk(event, now)
    if isinstance(event, Outcome):
        return tracker.finish(event, now)
    if event == "stall":
        found = tracker.judge(now)
        if found is not None:
            tracker.on_stall(found)
        return None
    getattr(tracker, f"on_{event}")(now)
    return None


def state_of(tracker: Tracker) -> dict[str, object]:
    return {name: getattr(tracker, name, None) for name in Tracker.__slots__}


# The end

WITH_ENDS = st.one_of(EVENTS, EVENTS, st.just("stall"), st.sampled_from(Outcome))


@exact
@given(LIMITS, scripts(WITH_ENDS), st.sampled_from(Outcome), st.integers(1, 3))
def test_exactly_one_end_wins_and_nothing_changes_after_it(
    limits: Limits, script: Script, last: Outcome, choices: int
) -> None:
    tracker, now, wins, ended = Tracker(limits, 0, choices), 0.0, 0, None
    for step, event in [*script, (1.0, last)]:
        now += step
        answer = apply(tracker, event, now)
        if ended is not None:
            assert not answer
            assert state_of(tracker) == ended
            assert tracker.due() is tracker.judge(now) is None
        elif isinstance(event, Outcome):
            assert answer is True
            assert (tracker.outcome, tracker.phase) == (event, Phase.DONE)
            wins, ended = wins + 1, state_of(tracker)
    assert wins == 1


@exact
@given(LIMITS, scripts(WITH_ENDS, st.floats(-8, 8, allow_nan=False)))
def test_instants_out_of_order_break_nothing(limits: Limits, script: Script) -> None:
    tracker, now, wins, charged = Tracker(limits, 0), 0.0, 0, 0.0
    for step, event in [*script, (0.0, Outcome.ABANDONED)]:
        now += step
        wins += apply(tracker, event, now) is True
        due = tracker.due()
        assert due is None or tracker.judge(due.at) is not None
        assert tracker.silence(now) >= 0
        if not tracker.waiting:
            assert tracker.waited(now) >= charged
            charged = tracker.waited(now)
    assert wins == 1


def test_of_many_threads_one_ends_the_run() -> None:
    for _ in range(20):
        tracker, barrier, wins = Tracker(Limits(), 0), threading.Barrier(6), []

        def end(
            outcome: Outcome,
            tracker: Tracker = tracker,
            barrier: threading.Barrier = barrier,
            wins: list[bool] = wins,
        ) -> None:
            barrier.wait(10)
            wins.append(tracker.finish(outcome, 1))

        threads = [threading.Thread(target=end, args=(outcome,)) for outcome in list(Outcome)[:6]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert sorted(wins) == [False] * 5 + [True]


# Deadlines


@exact
@given(LIMITS, scripts(EVENTS), st.integers(1, 3))
def test_no_deadline_comes_closer_within_a_phase_of_an_attempt(
    limits: Limits, script: Script, choices: int
) -> None:
    tracker, now = Tracker(limits, 0, choices), 0.0
    latest: dict[tuple[int, Phase], float] = {}
    for step, event in script:
        now += step
        apply(tracker, event, now)
        due, place = tracker.due(), (tracker.attempts, tracker.phase)
        if due is not None:
            assert due.at >= latest.get(place, -math.inf)
            latest[place] = due.at


@exact
@given(LIMITS, scripts(EVENTS), st.integers(1, 3))
def test_no_wait_is_unbounded(limits: Limits, script: Script, choices: int) -> None:
    watched = None not in (limits.first_token, limits.thinking, limits.idle)
    tracker, now = Tracker(limits, 0, choices), 0.0
    for step, event in script:
        now += step
        if tracker.waiting:
            silent = (
                watched
                and tracker.phase is not Phase.TOTAL
                and tracker.silence(now) >= limits.longest_silence()
            )
            spent = limits.total is not None and tracker.waited(now) >= limits.total
            assert not (silent or spent) or tracker.judge(now) is not None
        apply(tracker, event, now)


REAL = st.floats(0, 1000, allow_nan=False, allow_subnormal=False)
REAL_LIMIT = st.floats(0.001, 700, allow_nan=False)
REAL_LIMITS = st.builds(
    Limits,
    connect=REAL_LIMIT,
    first_token=REAL_LIMIT,
    thinking=REAL_LIMIT,
    idle=REAL_LIMIT,
    total=st.floats(1, 1e6),
    keepalive_factor=st.floats(1, 10),
)


@settings(deadline=None, max_examples=300)
@given(REAL_LIMITS, st.floats(0, 1e9), scripts(EVENTS, REAL), REAL)
def test_a_wait_is_judged_at_its_deadline_and_not_before(
    limits: Limits, start: float, script: Script, late: float
) -> None:
    tracker, now = Tracker(limits, start), start
    for step, event in [(0.0, "wait"), *script, (0.0, "wait")]:
        now += step
        apply(tracker, event, now)
        due = tracker.due()
        if due is None:
            assert not tracker.waiting
            continue
        assert tracker.judge(math.nextafter(due.at, -math.inf)) is None
        for instant in (due.at, math.nextafter(due.at, math.inf), due.at + late):
            found = tracker.judge(instant)
            if isinstance(found, Stall):
                assert found.waited >= found.allowed >= found.limit
                assert found.phase is due.phase
            else:
                assert isinstance(found, Whole)
                assert due.phase is Phase.DONE


# Accounting


@exact
@given(LIMITS, scripts(WITH_ENDS))
def test_waited_is_the_sum_of_the_waits(limits: Limits, script: Script) -> None:
    tracker, now, total, waiting = Tracker(limits, 0), 0.0, 0.0, True
    for step, event in script:
        now += step
        total += step * waiting
        apply(tracker, event, now)
        if event in ("wait", "attempt", "back_off"):
            waiting = True
        elif event == "pause" or isinstance(event, (ChunkFacts, Outcome)):
            waiting = False
        waiting = waiting and tracker.outcome is None
        assert (tracker.waited(now), tracker.waiting) == (total, waiting)


@exact
@given(LIMITS, scripts(READING), st.integers(1, 3))
def test_gaps_and_the_present_silence_add_up_to_the_waiting_since_the_first_progress(
    limits: Limits, script: Script, choices: int
) -> None:
    tracker, now = Tracker(limits, 0, choices), 0.0
    gaps: list[float] = []
    before: float | None = None
    for step, event in script:
        now += step
        gap = apply(tracker, event, now)
        if gap is not None:
            gaps.append(gap)
        progress = isinstance(event, ChunkFacts) and (event.progress or limits.any_chunk_is_progress)
        if before is None and progress:
            before = tracker.waited(now)
            assert gap is None
        if before is not None:
            assert sum(gaps) + tracker.silence(now) == tracker.waited(now) - before
        assert tracker.longest_gap == (max(gaps) if gaps else None)


Turn = tuple[float, str | ChunkFacts, float]
"""A wait, what came at its end, and the reader's pause after it."""

TURNS = st.lists(
    st.tuples(STEPS, st.sampled_from(["bytes", "pause", *QUIET, *LOUD]), st.integers(0, 64_000).map(float)),
    max_size=30,
)


def readings(limits: Limits, turns: Iterable[Turn], start: float) -> list[object]:
    """Return everything a run measures, turn by turn."""
    tracker, now, seen = Tracker(limits, start), start, list[object]()
    tracker.on_attempt(now)
    for wait, event, pause in turns:
        tracker.on_wait(now)
        due = tracker.due()
        seen.append(None if due is None else due._replace(at=due.at - now))
        now += wait
        found = tracker.judge(now)
        if found is not None:
            tracker.on_stall(found)
        gap = apply(tracker, event, now)
        tracker.on_pause(now)
        now += pause
        seen += [found, gap, tracker.waited(now), tracker.silence(now), tracker.longest_gap, tracker.phase]
    return seen


@exact
@given(LIMITS, TURNS)
def test_the_readers_pauses_change_no_wait_no_gap_no_stall_and_no_total(
    limits: Limits, turns: list[Turn]
) -> None:
    brisk = [(wait, event, 0.0) for wait, event, _ in turns]
    assert readings(limits, turns, 0) == readings(limits, brisk, 0)


@exact
@given(LIMITS, TURNS, st.integers(0, 2**30).map(float))
def test_it_does_not_matter_when_the_run_began(limits: Limits, turns: list[Turn], start: float) -> None:
    assert readings(limits, turns, start) == readings(limits, turns, 0)


@pytest.mark.parametrize("magnitude", [0.0, 1e6, 1e9])
def test_a_thousand_short_waits_add_up_to_the_limit(magnitude: float) -> None:
    tracker, now = Tracker(Limits(idle=1), magnitude), magnitude
    tracker.on_attempt(now)
    tracker.on_chunk(VISIBLE, now)
    for _ in range(1000):
        now += 7.0
        tracker.on_wait(now)
        now += 0.0005
        tracker.on_chunk(HEARTBEAT, now)
    assert tracker.silence(now) == pytest.approx(0.5, abs=1e-3)
    tracker.on_wait(now)
    due = tracker.due()
    assert due is not None
    assert due.at - now == pytest.approx(0.5, abs=1e-3)
