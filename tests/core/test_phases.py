"""The five deadlines, and what is charged to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.timeline import BYTES, FINISHED, LIMITS, Row, ending, play
from stallwatch.core.chunks import FINISH, HEARTBEAT, PREAMBLE, REASONING, USAGE, VISIBLE
from stallwatch.core.phases import Limits, Stall, Tracker
from stallwatch.core.words import Outcome, Phase

PLAIN = replace(LIMITS, keepalive_factor=1)

FIRST = (0.5, VISIBLE)
BACK_OFF: list[Row] = [(0.5, "back_off")]
FOR_EVER: list[Row] = [(0.25 * step, VISIBLE) for step in range(1, 239)]

DEADLINES: dict[str, tuple[list[Row], float, Phase, float]] = {
    "first_token runs from the start of the attempt": ([], 2, Phase.FIRST_TOKEN, 2),
    "late headers and preamble belong to first_token": (
        [(1.5, PREAMBLE), (1.6, PREAMBLE)],
        2,
        Phase.FIRST_TOKEN,
        2,
    ),
    "a role alone does not begin the idle phase": ([(0.1, PREAMBLE)], 2, Phase.FIRST_TOKEN, 2),
    "connect runs while the connection is opened": ([(0.25, "connecting")], 1.25, Phase.CONNECT, 1),
    "queueing before the connection is not charged to connect": (
        [(0.9, "connecting")],
        1.9,
        Phase.CONNECT,
        1,
    ),
    "opening once more does not restart connect": (
        [(0.25, "connecting"), (1, "connecting")],
        1.25,
        Phase.CONNECT,
        1,
    ),
    "connect is over when the connection stands": (
        [(0.25, "connecting"), (1.2, "connected")],
        2,
        Phase.FIRST_TOKEN,
        2,
    ),
    "a redirect opens a second connection with its own connect": (
        [(0.1, "connecting"), (0.2, "connected"), (0.4, "connecting")],
        1.4,
        Phase.CONNECT,
        1,
    ),
    "first_token goes on through a slow connect": ([(1.5, "connecting")], 2, Phase.FIRST_TOKEN, 2),
    "body bytes prove a connection nobody told of": (
        [(0.25, "connecting"), (0.5, BYTES)],
        2,
        Phase.FIRST_TOKEN,
        2,
    ),
    "reasoning begins the thinking phase": ([(0.5, REASONING)], 3.5, Phase.THINKING, 3),
    "a usage counter is progress and keeps the patient clock": ([(0.5, USAGE)], 3.5, Phase.THINKING, 3),
    "reasoning restarts thinking": ([(0.5, REASONING), (3, REASONING)], 6, Phase.THINKING, 3),
    "visible output begins the idle phase": ([FIRST], 4.5, Phase.IDLE, 4),
    "reasoning after visible output stays in the idle phase": ([FIRST, (1, REASONING)], 5, Phase.IDLE, 4),
    "visible output restarts idle": ([FIRST, (3, VISIBLE)], 7, Phase.IDLE, 4),
    "a finish reason without output is visible progress": ([(0.5, FINISH)], 4.5, Phase.IDLE, 4),
    "progress while connecting proves the connection": (
        [(0.25, "connecting"), (0.5, REASONING)],
        3.5,
        Phase.THINKING,
        3,
    ),
    "progress without an attempt after back-off is watched": (
        [*BACK_OFF, (1, REASONING)],
        4,
        Phase.THINKING,
        3,
    ),
    "only the total runs in back-off": (BACK_OFF, 60, Phase.TOTAL, 60),
    "a failed attempt that was finished ends nothing in back-off": (
        [(0.1, FINISHED), *BACK_OFF],
        60,
        Phase.TOTAL,
        60,
    ),
    "late news of a connection changes nothing in back-off": (
        [*BACK_OFF, (1, "connecting"), (2, "connected")],
        60,
        Phase.TOTAL,
        60,
    ),
    "late news of a connection changes nothing in the body": ([FIRST, (1, "connecting")], 4.5, Phase.IDLE, 4),
    "the next attempt has a first_token of its own": (
        [(1.9, "back_off"), (5, "attempt")],
        7,
        Phase.FIRST_TOKEN,
        2,
    ),
    "the next attempt has a connect of its own": (
        [(0.2, "connecting"), (1, "back_off"), (5, "attempt"), (5.5, "connecting")],
        6.5,
        Phase.CONNECT,
        1,
    ),
    "an attempt straight after another restarts first_token": ([(1.9, "attempt")], 3.9, Phase.FIRST_TOKEN, 2),
    "the next attempt is not whole because the last one was": (
        [(0.1, FINISHED), (1, "back_off"), (5, "attempt")],
        7,
        Phase.FIRST_TOKEN,
        2,
    ),
    "tokens for ever end at the total": (FOR_EVER, 60, Phase.TOTAL, 60),
    "the total counts all attempts and the back-off": (
        [(20, "attempt"), (39, "back_off"), (59, "attempt")],
        60,
        Phase.TOTAL,
        60,
    ),
}


@pytest.mark.parametrize(("rows", "at", "phase", "limit"), DEADLINES.values(), ids=DEADLINES.keys())
def test_deadline(rows: list[Row], at: float, phase: Phase, limit: float) -> None:
    end = ending(play(PLAIN, rows))
    assert end is not None
    instant, stall = end
    assert isinstance(stall, Stall)
    assert (instant, stall.phase, stall.limit) == (pytest.approx(at), phase, limit)
    assert stall.waited == pytest.approx(limit)


def test_a_tie_with_the_total_goes_to_the_phase() -> None:
    end = ending(play(replace(PLAIN, first_token=60), []))
    assert end is not None
    assert isinstance(end[1], Stall)
    assert end[1].phase is Phase.FIRST_TOKEN


def test_a_tie_of_connect_and_first_token_goes_to_first_token() -> None:
    due = play(PLAIN, [(1, "connecting")]).due()
    assert due is not None
    assert due.phase is Phase.FIRST_TOKEN


OFF: dict[str, tuple[dict[str, None], list[Row], Phase | None]] = {
    "first_token": ({"first_token": None}, [], Phase.TOTAL),
    "connect": ({"connect": None}, [(0.1, "connecting")], Phase.FIRST_TOKEN),
    "first_token beside connect": ({"first_token": None}, [(0.1, "connecting")], Phase.CONNECT),
    "thinking": ({"thinking": None}, [(0.1, REASONING)], Phase.TOTAL),
    "idle": ({"idle": None}, [FIRST], Phase.TOTAL),
    "total": ({"total": None}, [FIRST], Phase.IDLE),
    "total in back-off": ({"total": None}, BACK_OFF, None),
    "idle and total": ({"idle": None, "total": None}, [FIRST], None),
    "all while connecting": (dict.fromkeys(("connect", "first_token", "total")), [(0.1, "connecting")], None),
    "all": (dict.fromkeys(("connect", "first_token", "thinking", "idle", "total")), [], None),
}


@pytest.mark.parametrize(("off", "rows", "phase"), OFF.values(), ids=OFF.keys())
def test_a_deadline_that_is_off_never_passes_and_leaves_the_others(
    off: dict[str, None], rows: list[Row], phase: Phase | None
) -> None:
    due = play(replace(PLAIN, **off), rows).due()
    assert (None if due is None else due.phase) is phase


PAUSES: dict[str, tuple[list[Row], float, float]] = {
    # name: (rows, instant of the next deadline, seconds charged to the run by then)
    "a pause after a chunk is not charged": ([FIRST, (0.5, "pause"), (100, "wait")], 104, 4.5),
    "pauses without a chunk keep what was waited": (
        [FIRST, (3.5, "pause"), (100, "wait"), (100.5, "pause"), (200, "wait")],
        200.5,
        4.5,
    ),
    "a pause before the first token keeps the wait for the headers": (
        [(1.5, "pause"), (100, "wait")],
        100.5,
        2,
    ),
    "a pause while connecting is not charged to connect": (
        [(0.5, "connecting"), (1, "pause"), (100, "wait")],
        100.5,
        1.5,
    ),
    "waiting accumulates over heartbeats and pauses": (
        [FIRST, (2.5, HEARTBEAT), (2.5, "pause"), (50, "wait"), (51, HEARTBEAT), (51, "pause"), (90, "wait")],
        91,
        4.5,
    ),
    "two pauses in a row are one": ([FIRST, (1.5, "pause"), (2, "pause"), (100, "wait")], 103, 4.5),
    "two waits in a row are one": ([FIRST, (2, "wait"), (3, "wait")], 4.5, 4.5),
    "an attempt ends the reader's pause": ([(1, "pause"), (100, "attempt")], 102, 3),
    "back-off is waiting even when the reader paused before": (
        [(1, "pause"), (100, "back_off"), (110, "attempt")],
        112,
        13,
    ),
}


@pytest.mark.parametrize(("rows", "at", "charged"), PAUSES.values(), ids=PAUSES.keys())
def test_only_waiting_is_charged(rows: list[Row], at: float, charged: float) -> None:
    tracker = play(PLAIN, rows)
    end = ending(tracker)
    assert end is not None
    assert end[0] == pytest.approx(at)
    assert tracker.waited(at) == pytest.approx(charged)


def test_the_total_is_not_charged_with_the_callers_own_pauses() -> None:
    rows: list[Row] = [
        FIRST,
        (0.5, "pause"),
        (10_000, "wait"),
        (10_001, VISIBLE),
        (10_001, "pause"),
        (20_000, "wait"),
    ]
    tracker = play(Limits(total=60), rows)
    due = tracker.due()
    assert due is not None
    assert (due.phase, due.at) == (Phase.TOTAL, pytest.approx(20_058.5))
    assert tracker.waited(20_000) == pytest.approx(1.5)


def test_nothing_runs_while_the_reader_pauses() -> None:
    tracker = play(PLAIN, [FIRST, (0.5, "pause")])
    assert (tracker.due(), tracker.judge(1e9), tracker.waiting, tracker.wait_from) == (
        None,
        None,
        False,
        None,
    )
    assert (tracker.waited(1e9), tracker.silence(1e9)) == (0.5, 0)


def test_bytes_that_come_while_the_reader_pauses_restart_the_wire_clock() -> None:
    patient = replace(PLAIN, keepalive_factor=2)
    tracker = play(patient, [(1.5, "pause"), (50, BYTES), (100, "wait")])
    end = ending(tracker)
    assert end is not None
    assert end[0] == 102


def test_a_run_waits_from_its_beginning() -> None:
    tracker = Tracker(PLAIN, 10)
    assert (tracker.waiting, tracker.wait_from, tracker.started, tracker.waited(11)) == (True, 10, 10, 1)
    assert (tracker.attempts, tracker.outcome) == (0, None)
    due = tracker.due()
    assert due is not None
    assert (due.at, due.phase, tracker.attempt_started, tracker.whole) == (12, Phase.FIRST_TOKEN, 10, False)
    tracker.on_attempt(12)
    assert (tracker.attempts, tracker.attempt_started, tracker.wait_from) == (1, 12, 10)
    assert tracker.last_activity == 12


def test_waited_and_silence_are_never_negative_for_an_instant_before_the_wait() -> None:
    tracker = play(PLAIN, [FIRST, (0.5, "pause"), (10, "wait")])
    assert (tracker.waited(9), tracker.silence(9)) == (0.5, 0)


def test_an_end_dated_back_before_the_wait_charges_nothing() -> None:
    tracker = play(PLAIN, [FIRST, (0.5, "pause"), (10, "wait")])
    assert tracker.finish(Outcome.ABANDONED, tracker.last_activity)
    assert tracker.waited(1e9) == 0.5


def test_after_a_survived_stall_the_clocks_of_the_phase_run_again() -> None:
    tracker = play(LIMITS, [])
    end = ending(tracker)
    assert end is not None
    tracker.on_stall(end[1])
    due = tracker.due()
    assert due is not None
    assert due.phase is Phase.TOTAL
    tracker.on_survived()
    due = tracker.due()
    assert due is not None
    assert due.phase is Phase.FIRST_TOKEN
