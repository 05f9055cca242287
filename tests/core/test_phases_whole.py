"""An answer whose choices are all finished is whole, and its silence is no stall."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.timeline import BYTES, FINISHED, LIMITS, Row, ending, finishing, play
from stallwatch.core.chunks import (
    FINISH,
    HEARTBEAT,
    OUTPUT_UNKNOWN,
    PREAMBLE,
    TERMINAL_EVENTS,
    USAGE,
    VISIBLE,
    event_facts,
)
from stallwatch.core.phases import WHOLE_ANSWER_WAIT, Limits, Stall, Whole
from stallwatch.core.words import Phase

LONG = replace(LIMITS, idle=120)
FIRST = (0.5, VISIBLE)
FUSED = replace(VISIBLE, finishes=1)
DONE = (1, FINISHED)

WHOLE: dict[str, tuple[Limits, int, list[Row], float, float]] = {
    # name: (limits, choices, rows, instant of the quiet end, silence)
    "idle shorter than five seconds": (LIMITS, 1, [FIRST, DONE], 5, 4),
    "idle longer than five seconds": (LONG, 1, [FIRST, DONE], 6, 5),
    "finish fused with the last content": (LONG, 1, [FIRST, (1, FUSED)], 6, 5),
    "finish in the very first chunk": (LONG, 1, [DONE], 6, 5),
    "one choice after the other": (LONG, 3, [FIRST, (1, FINISHED), (2, FINISHED), (3, FINISHED)], 8, 5),
    "choices that finish while others go on": (
        LONG,
        3,
        [FIRST, (1, FINISHED), (2, VISIBLE), (3, FINISHED), (4, VISIBLE), (5, FUSED)],
        10,
        5,
    ),
    "all choices in one chunk": (LONG, 3, [FIRST, (1, finishing(3))], 6, 5),
    "more finish reasons than choices": (LONG, 1, [FIRST, (1, finishing(2))], 6, 5),
    "a request for no choice is a request for one": (LONG, 0, [FIRST, DONE], 6, 5),
    "a late usage chunk gives another wait": (LONG, 1, [FIRST, DONE, (4, USAGE)], 9, 5),
    "heartbeats after the finish give none": (LONG, 1, [FIRST, DONE, (3, HEARTBEAT), (5, BYTES)], 6, 5),
    "an unknown field after the finish": (LONG, 1, [FIRST, DONE, (2, OUTPUT_UNKNOWN)], 7, 5),
    "the finish reason once more": (LONG, 1, [FIRST, DONE, (2, FINISH)], 7, 5),
    "the reader pauses after the finish": (LONG, 1, [FIRST, DONE, (1, "pause"), (100, "wait")], 105, 5),
    "the total passes while waiting for usage": (replace(LONG, total=3), 1, [FIRST, DONE], 3, 2),
    "idle is off: the total still ends it quietly": (replace(LONG, idle=None), 1, [FIRST, DONE], 60, 59),
}


@pytest.mark.parametrize(("limits", "choices", "rows", "at", "silence"), WHOLE.values(), ids=WHOLE.keys())
def test_silence_after_all_finish_reasons_ends_quietly(
    limits: Limits, choices: int, rows: list[Row], at: float, silence: float
) -> None:
    tracker = play(limits, rows, choices=choices)
    assert tracker.whole
    assert tracker.phase is Phase.DONE
    assert ending(tracker) == (pytest.approx(at), Whole(waited=silence))


def test_five_seconds_are_left_for_a_usage_chunk() -> None:
    assert WHOLE_ANSWER_WAIT == 5


def test_nothing_ends_a_whole_answer_when_idle_and_total_are_off() -> None:
    assert ending(play(replace(LONG, idle=None, total=None), [FIRST, DONE])) is None


@pytest.mark.parametrize("kind", [*sorted(TERMINAL_EVENTS), "error"])
@pytest.mark.parametrize("choices", [1, 3])
def test_a_terminal_event_finishes_whatever_the_number_of_choices(kind: str, choices: int) -> None:
    rows: list[Row] = [(0.2, PREAMBLE), FIRST, (1, event_facts(kind))]
    tracker = play(LONG, rows, choices=choices)
    assert tracker.finished_choices == choices
    assert ending(tracker) == (6, Whole(waited=5))


NOT_WHOLE: dict[str, tuple[int, list[Row], float]] = {
    # name: (choices, rows, instant of the idle stall)
    "one of three is open": (3, [FIRST, (1, FINISHED), (2, FINISHED)], 122),
    "visible output follows the finish reason": (1, [FIRST, DONE, (2, VISIBLE)], 122),
    "a finish reason on every chunk": (1, [(1, FUSED), (2, FUSED), (3, FUSED)], 123),
    "output, then the finish reason again": (1, [FIRST, DONE, (2, VISIBLE), (3, FINISHED)], 123),
    "output, then usage": (1, [FIRST, DONE, (2, VISIBLE), (3, USAGE)], 123),
    "usage alone": (1, [FIRST, (1, USAGE)], 121),
}


@pytest.mark.parametrize(("choices", "rows", "at"), NOT_WHOLE.values(), ids=NOT_WHOLE.keys())
def test_silence_is_a_stall_while_more_may_follow(choices: int, rows: list[Row], at: float) -> None:
    tracker = play(replace(LONG, total=None), rows, choices=choices)
    end = ending(tracker)
    assert end is not None
    instant, stall = end
    assert isinstance(stall, Stall)
    assert (instant, stall.phase) == (at, Phase.IDLE)
    assert tracker.phase is Phase.IDLE


@pytest.mark.parametrize("event", ["back_off", "attempt"])
def test_an_answer_that_must_be_asked_for_again_is_not_whole(event: str) -> None:
    tracker = play(LONG, [FIRST, DONE, (2, event)])
    assert (tracker.whole, tracker.finished_choices) == (False, 0)


def test_a_finish_reason_counts_as_progress_of_its_own_length() -> None:
    tracker = play(LONG, [FIRST])
    assert tracker.on_chunk(FINISHED, 2) == 1.5
    tracker.on_wait(2)
    assert tracker.on_chunk(USAGE, 3) == 1


def test_a_whole_answer_that_was_let_be_is_not_found_again() -> None:
    tracker = play(LONG, [FIRST, DONE])
    found = tracker.judge(6)
    assert isinstance(found, Whole)
    tracker.on_stall(found)
    assert ending(tracker) is None
    assert tracker.longest_gap == 0.5


def test_a_usage_chunk_after_a_whole_answer_that_was_let_be_starts_a_new_silence() -> None:
    tracker = play(LONG, [FIRST, DONE])
    found = tracker.judge(6)
    assert found is not None
    tracker.on_stall(found)
    tracker.on_chunk(USAGE, 10)
    tracker.on_wait(10)
    assert ending(tracker) == (15, Whole(waited=5))


# The end mark


def test_silence_after_the_end_mark_ends_quietly_without_any_finish_reason() -> None:
    tracker = play(LONG, [FIRST])
    tracker.on_end_mark(True)
    assert tracker.whole
    assert ending(tracker) == (0.5 + WHOLE_ANSWER_WAIT, Whole(waited=WHOLE_ANSWER_WAIT))


def test_the_total_after_the_end_mark_is_no_stall() -> None:
    tracker = play(replace(LONG, total=3), [FIRST])
    tracker.on_end_mark(True)
    assert ending(tracker) == (3, Whole(waited=2.5))


def test_chunks_still_on_their_way_after_the_end_mark_are_measured_as_ever() -> None:
    # A fast server's whole answer arrives in one read, mark included, before its first chunk is parsed.
    tracker = play(LONG, [])
    tracker.on_bytes(0.5)
    tracker.on_end_mark(True)
    assert tracker.on_chunk(VISIBLE, 0.5) is None
    assert tracker.first_token_at == 0.5
    tracker.on_wait(0.5)
    assert tracker.on_chunk(VISIBLE, 0.6) == pytest.approx(0.1)


def test_what_looked_like_the_end_mark_is_taken_back_by_further_bytes() -> None:
    tracker = play(replace(LONG, total=None), [FIRST])
    tracker.on_end_mark(True)
    tracker.on_end_mark(False)
    assert not tracker.whole
    found = ending(tracker)
    assert found is not None
    assert found[0] == 120.5


def test_a_new_attempt_forgets_the_end_mark_of_the_last() -> None:
    tracker = play(LONG, [FIRST])
    tracker.on_end_mark(True)
    tracker.on_attempt(1)
    assert not tracker.whole
