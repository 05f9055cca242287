"""What a run's clocks tell afterwards: gaps, first token, reports, and that the end is the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from core.timeline import BYTES, FINISHED, LIMITS, Row, ending, play
from stallwatch.core.chunks import (
    FINISH,
    HEARTBEAT,
    OUTPUT_UNKNOWN,
    PREAMBLE,
    REASONING,
    USAGE,
    VISIBLE,
    ChunkFacts,
    event_facts,
)
from stallwatch.core.phases import Limits, Stall, Tracker
from stallwatch.core.words import Outcome, Phase

FIRST = (0.5, VISIBLE)


def stalled(tracker: Tracker) -> Stall:
    end = ending(tracker)
    assert end is not None
    assert isinstance(end[1], Stall)
    tracker.on_stall(end[1])
    return end[1]


# Gaps


def test_gaps_are_server_waits_between_progress() -> None:
    tracker = play(LIMITS, [])
    steps: list[tuple[float, ChunkFacts, float | None]] = [
        (0.25, PREAMBLE, None),
        (0.5, HEARTBEAT, None),
        (1, REASONING, None),
        (1.5, HEARTBEAT, None),
        (2, REASONING, 1),
        (2.25, VISIBLE, 0.25),
        (2.5, USAGE, 0.25),
        (3.5, FINISHED, 1),
    ]
    for now, facts, gap in steps:
        assert tracker.on_chunk(facts, now) == gap
        tracker.on_wait(now)
    assert (tracker.longest_gap, tracker.chunks, tracker.heartbeats) == (1, 8, 2)


def test_the_readers_pauses_are_in_no_gap() -> None:
    tracker = play(LIMITS, [FIRST, (0.5, "pause"), (100, "wait")])
    assert tracker.on_chunk(VISIBLE, 100.25) == 0.25
    assert tracker.longest_gap == 0.25


def test_chunks_that_were_there_already_have_no_gap() -> None:
    tracker = play(LIMITS, [FIRST, (0.75, "pause")])
    assert [tracker.on_chunk(VISIBLE, now) for now in (3, 4)] == [0.25, 0]


def test_no_gap_is_known_before_the_second_progress() -> None:
    assert play(LIMITS, [(0.1, PREAMBLE), FIRST]).longest_gap is None


FATAL: dict[str, tuple[Limits, list[Row], float]] = {
    # name: (limits, rows, longest gap with the wait that ended in the stall)
    "before the first token": (LIMITS, [], 2),
    "while connecting, queueing included": (LIMITS, [(0.5, "connecting")], 1.5),
    "while thinking": (LIMITS, [(0.5, REASONING), (1, REASONING)], 3),
    "in mid-answer": (LIMITS, [FIRST, (1, VISIBLE)], 4),
    "on a wire that died after keepalives": (LIMITS, [(0.5, REASONING), (2.5, BYTES)], 5),
    "a total ends a stream of short gaps": (
        replace(LIMITS, total=2),
        [FIRST, (1, VISIBLE), (1.75, VISIBLE)],
        0.75,
    ),
    "a total ends the longest gap": (replace(LIMITS, total=4), [FIRST, (1, VISIBLE)], 3),
    "shorter than a gap before": (replace(LIMITS, idle=9, total=10), [FIRST, (8, VISIBLE)], 7.5),
}


@pytest.mark.parametrize(("limits", "rows", "longest"), FATAL.values(), ids=FATAL.keys())
def test_the_longest_gap_includes_the_fatal_wait(limits: Limits, rows: list[Row], longest: float) -> None:
    tracker = play(limits, rows)
    stalled(tracker)
    assert tracker.longest_gap == pytest.approx(longest)


# First token and first visible output

TIMES: dict[str, tuple[list[Row], float | None, float | None]] = {
    # name: (rows, first token, first visible output)
    "heartbeats only": ([(0.05, PREAMBLE), (0.3, HEARTBEAT), (0.6, HEARTBEAT)], None, None),
    "a model that thinks in silence": ([(0.1, PREAMBLE), (5.1, VISIBLE), (5.2, VISIBLE)], 5.1, 5.1),
    "reasoning before the answer": (
        [(0.1, PREAMBLE), (0.4, REASONING), (0.7, REASONING), (6, VISIBLE), (7, FINISHED)],
        0.4,
        6,
    ),
    "reasoning and an answer in one chunk": ([(0.4, VISIBLE)], 0.4, 0.4),
    "tool call": ([(0.1, PREAMBLE), (0.3, VISIBLE), (0.5, VISIBLE)], 0.3, 0.3),
    "role, comment, empty delta, token, usage": (
        [(0.05, PREAMBLE), (0.5, BYTES), (0.8, HEARTBEAT), (1.5, VISIBLE), (2, FINISHED), (2.1, USAGE)],
        1.5,
        1.5,
    ),
    "role and finish only": ([(0.05, PREAMBLE), (1, FINISHED)], None, None),
    "usage counters only": ([(0.05, PREAMBLE), (1, USAGE), (2, USAGE)], None, None),
    "usage before the token": ([(1, USAGE), (2, VISIBLE)], 2, 2),
    "something unknown": ([(1, OUTPUT_UNKNOWN), (2, VISIBLE)], 1, 2),
    "an event stream": (
        [
            (0.05, event_facts("response.created")),
            (0.06, event_facts("response.in_progress")),
            (0.1, event_facts("response.output_item.added", "message")),
            (0.1, event_facts("response.content_part.added")),
            (1.5, event_facts("response.output_text.delta")),
            (2, event_facts("response.completed")),
        ],
        1.5,
        1.5,
    ),
    "an event stream that fails at once": (
        [(0.05, event_facts("response.created")), (1, event_facts("response.failed"))],
        None,
        None,
    ),
}


@pytest.mark.parametrize(("rows", "token", "visible"), TIMES.values(), ids=TIMES.keys())
def test_first_token_and_first_visible_output(
    rows: list[Row], token: float | None, visible: float | None
) -> None:
    tracker = play(Limits(), rows)
    assert (tracker.first_token_at, tracker.first_visible_at) == (token, visible)


def test_the_first_chunk_is_any_chunk_and_comments_are_none() -> None:
    tracker = play(Limits(), [(0.2, BYTES), (0.5, HEARTBEAT), (1, VISIBLE)])
    assert (tracker.first_chunk_at, tracker.chunks, tracker.heartbeats) == (0.5, 2, 1)


def test_the_last_activity_is_the_last_sign_of_life() -> None:
    tracker = play(Limits(), [(1, "connecting"), (2, "connected")])
    seen = [tracker.last_activity]
    for name, now in [("back_off", 3), ("attempt", 4), ("bytes", 5), ("pause", 6), ("wait", 7)]:
        getattr(tracker, f"on_{name}")(now)
        seen.append(tracker.last_activity)
    tracker.on_chunk(HEARTBEAT, 8)
    assert [*seen, tracker.last_activity] == [2, 3, 4, 5, 5, 5, 8]


# Stalls that are only reported


def test_a_silence_is_reported_once_and_the_total_still_runs() -> None:
    tracker = play(LIMITS, [FIRST])
    assert stalled(tracker).phase is Phase.IDLE
    due = tracker.due()
    assert due is not None
    assert (due.phase, due.at) == (Phase.TOTAL, 60)
    tracker.on_chunk(HEARTBEAT, 20)
    tracker.on_wait(20)
    tracker.on_bytes(21)
    due = tracker.due()
    assert due is not None
    assert due.phase is Phase.TOTAL


def test_progress_after_a_reported_silence_starts_a_new_one() -> None:
    tracker = play(LIMITS, [FIRST])
    stalled(tracker)
    assert tracker.on_chunk(VISIBLE, 20) == 19.5
    tracker.on_wait(20)
    assert stalled(tracker).waited == 4
    assert tracker.longest_gap == 19.5


def test_an_attempt_after_a_reported_silence_starts_a_new_one() -> None:
    tracker = play(LIMITS, [])
    stalled(tracker)
    tracker.on_attempt(5)
    end = ending(tracker)
    assert end is not None
    assert end[0] == 7


def test_a_connect_that_is_only_reported_does_not_report_the_same_silence_again() -> None:
    tracker = play(LIMITS, [(0.5, "connecting")])
    assert stalled(tracker).phase is Phase.CONNECT
    tracker.on_connected(5)
    due = tracker.due()
    assert due is not None
    assert due.phase is Phase.TOTAL


def test_the_total_is_reported_once_in_a_run_and_mutes_nothing_else() -> None:
    tracker = play(replace(LIMITS, total=2), [FIRST])
    assert stalled(tracker).phase is Phase.TOTAL
    assert stalled(tracker).phase is Phase.IDLE
    assert ending(tracker) is None
    tracker.on_chunk(VISIBLE, 20)
    tracker.on_wait(20)
    assert stalled(tracker).phase is Phase.IDLE
    assert ending(tracker) is None


# The end


def test_a_run_ends_once() -> None:
    tracker = play(LIMITS, [FIRST])
    assert tracker.finish(Outcome.STALLED, 3)
    assert not tracker.finish(Outcome.COMPLETED, 4)
    assert not tracker.finish(Outcome.STALLED, 5)
    assert (tracker.outcome, tracker.phase, tracker.waiting) == (Outcome.STALLED, Phase.DONE, False)
    assert (tracker.waited(9), tracker.silence(9)) == (3, 2.5)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_finished_run_has_no_deadline(outcome: Outcome) -> None:
    tracker = play(LIMITS, [FIRST])
    tracker.finish(outcome, 1)
    assert (tracker.outcome, tracker.due(), tracker.judge(1e9)) == (outcome, None, None)


AFTER: dict[str, Callable[[Tracker], object]] = {
    "attempt": lambda tracker: tracker.on_attempt(9),
    "connecting": lambda tracker: tracker.on_connecting(9),
    "connected": lambda tracker: tracker.on_connected(9),
    "back_off": lambda tracker: tracker.on_back_off(9),
    "wait": lambda tracker: tracker.on_wait(9),
    "pause": lambda tracker: tracker.on_pause(9),
    "bytes": lambda tracker: tracker.on_bytes(9),
    "heartbeat": lambda tracker: tracker.on_chunk(HEARTBEAT, 9),
    "token": lambda tracker: tracker.on_chunk(VISIBLE, 9),
    "finish reason": lambda tracker: tracker.on_chunk(FINISH, 9),
    "stall": lambda tracker: tracker.on_stall(
        Stall(phase=Phase.IDLE, wire=stalled(play(LIMITS, [])).wire, limit=1, allowed=1, waited=9, silence=9)
    ),
    "second end": lambda tracker: tracker.finish(Outcome.FAILED, 9),
}


@pytest.mark.parametrize("event", AFTER.values(), ids=AFTER.keys())
@pytest.mark.parametrize(
    "rows", [[], [FIRST], [(0.5, "connecting")], [FIRST, (1, "pause")], [(1, "back_off")]]
)
def test_nothing_changes_after_the_end(rows: list[Row], event: Callable[[Tracker], object]) -> None:
    tracker = play(LIMITS, rows)
    tracker.finish(Outcome.COMPLETED, 2)
    before = {name: getattr(tracker, name, None) for name in Tracker.__slots__}
    event(tracker)
    assert {name: getattr(tracker, name, None) for name in Tracker.__slots__} == before
    assert (tracker.due(), tracker.waited(99), tracker.waiting) == (None, tracker.waited(2), False)


def test_a_stall_that_was_only_observed_and_went_on_is_measured_to_its_real_end() -> None:
    tracker = play(LIMITS, [])
    assert stalled(tracker).waited == 2
    tracker.on_bytes(7)
    assert tracker.on_chunk(VISIBLE, 7) is None
    assert tracker.longest_gap == 7
