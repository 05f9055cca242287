"""The two clocks of ``first_token`` and ``thinking``, and the wire verdict of every phase."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.timeline import BYTES, LIMITS, Row, ending, play
from stallwatch.core.chunks import HEARTBEAT, PREAMBLE, REASONING, VISIBLE
from stallwatch.core.phases import EXTENDED_CAP, Limits, Stall, Tracker
from stallwatch.core.words import Phase, Wire

PLAIN = replace(LIMITS, keepalive_factor=1)
DEAD, KEEPALIVE, BEATS = Wire.DEAD_WIRE, Wire.KEEPALIVE_ONLY, Wire.HEARTBEAT_ONLY

EXTENSIONS = [
    # (limit, factor, allowed while bytes without progress arrive)
    (120, 2, 240),
    (120, 1, 120),
    (120, 1.5, 180),
    (300, 2, 600),
    (301, 2, 600),
    (400, 2, 600),
    (599, 10, 600),
    (600, 2, 600),
    (700, 2, 700),
    (3600, 10, 3600),
    (0.5, 2, 1),
]


@pytest.mark.parametrize(("limit", "factor", "allowed"), EXTENSIONS)
def test_the_extension_is_capped_at_ten_minutes_or_the_limit_itself(
    limit: float, factor: float, allowed: float
) -> None:
    assert EXTENDED_CAP == 600
    assert Limits(keepalive_factor=factor).extended(limit) == allowed


def flowing(start: float, until: float, step: float, event: object) -> list[Row]:
    count = int((until - start) / step)
    return [(start + step * number, event) for number in range(1, count + 1)]  # type: ignore[misc]


@pytest.mark.parametrize(("limit", "factor", "allowed"), EXTENSIONS)
@pytest.mark.parametrize("phase", [Phase.FIRST_TOKEN, Phase.THINKING])
def test_keepalives_extend_the_patient_phases(
    limit: float, factor: float, allowed: float, phase: Phase
) -> None:
    limits = Limits(first_token=limit, thinking=limit, keepalive_factor=factor)
    begin: list[Row] = [(0, REASONING)] if phase is Phase.THINKING else []
    end = ending(play(limits, begin + flowing(0, allowed, limit / 8, BYTES)))
    assert end is not None
    assert end == (
        pytest.approx(allowed),
        Stall(phase=phase, wire=KEEPALIVE, limit=limit, allowed=allowed, waited=allowed, silence=allowed),
    )


WIRE: dict[str, tuple[Limits, list[Row], float, Phase, Wire, float]] = {
    # name: (limits, rows, instant, phase, wire verdict, waited)
    "connect: no byte": (PLAIN, [(0.5, "connecting")], 1.5, Phase.CONNECT, DEAD, 1),
    "first_token: no byte": (LIMITS, [], 2, Phase.FIRST_TOKEN, DEAD, 2),
    "first_token: no byte, factor 1": (PLAIN, [], 2, Phase.FIRST_TOKEN, DEAD, 2),
    "first_token: comments, factor 1": (
        PLAIN,
        flowing(0, 2, 0.3, BYTES),
        2,
        Phase.FIRST_TOKEN,
        KEEPALIVE,
        2,
    ),
    "first_token: comments, factor 2": (
        LIMITS,
        flowing(0, 4, 0.3, BYTES),
        4,
        Phase.FIRST_TOKEN,
        KEEPALIVE,
        4,
    ),
    "first_token: heartbeats, factor 1": (
        PLAIN,
        flowing(0, 2, 0.3, HEARTBEAT),
        2,
        Phase.FIRST_TOKEN,
        BEATS,
        2,
    ),
    "first_token: heartbeats, factor 2": (
        LIMITS,
        flowing(0, 4, 0.3, HEARTBEAT),
        4,
        Phase.FIRST_TOKEN,
        BEATS,
        4,
    ),
    "first_token: heartbeats and comments": (
        PLAIN,
        [(0.5, HEARTBEAT), (1, BYTES)],
        2,
        Phase.FIRST_TOKEN,
        BEATS,
        2,
    ),
    "first_token: a role, then silence": (PLAIN, [(0.1, PREAMBLE)], 2, Phase.FIRST_TOKEN, BEATS, 2),
    "first_token: the wire dies after a role": (LIMITS, [(1, PREAMBLE)], 3, Phase.FIRST_TOKEN, DEAD, 2),
    "first_token: the wire dies after a comment": (LIMITS, [(1.5, BYTES)], 3.5, Phase.FIRST_TOKEN, DEAD, 2),
    "first_token: the last comment comes too late to help": (
        LIMITS,
        [(1.5, BYTES), (3, BYTES)],
        4,
        Phase.FIRST_TOKEN,
        KEEPALIVE,
        4,
    ),
    "first_token: the wire's silence goes on over a pause": (
        LIMITS,
        [(1.5, BYTES), (2.5, "pause"), (100, "wait")],
        101,
        Phase.FIRST_TOKEN,
        DEAD,
        2,
    ),
    "thinking: no byte": (LIMITS, [(1, REASONING)], 4, Phase.THINKING, DEAD, 3),
    "thinking: comments": (LIMITS, [(1, REASONING), (3, BYTES), (5, BYTES)], 7, Phase.THINKING, KEEPALIVE, 6),
    "thinking: heartbeats": (
        LIMITS,
        [(1, REASONING), (3, HEARTBEAT), (5, HEARTBEAT)],
        7,
        Phase.THINKING,
        BEATS,
        6,
    ),
    "thinking: the wire dies later": (LIMITS, [(1, REASONING), (3, HEARTBEAT)], 6, Phase.THINKING, DEAD, 3),
    "idle: no byte": (LIMITS, [(1, VISIBLE)], 5, Phase.IDLE, DEAD, 4),
    "idle: comments, not extended": (
        LIMITS,
        [(1, VISIBLE), (2, BYTES), (4, BYTES)],
        5,
        Phase.IDLE,
        KEEPALIVE,
        4,
    ),
    "idle: heartbeats, not extended": (
        LIMITS,
        [(1, VISIBLE), (2, HEARTBEAT), (4, BYTES)],
        5,
        Phase.IDLE,
        BEATS,
        4,
    ),
    "idle: what came before progress does not count": (
        LIMITS,
        [(0.5, HEARTBEAT), (0.7, BYTES), (1, VISIBLE)],
        5,
        Phase.IDLE,
        DEAD,
        4,
    ),
    "the next attempt's verdict is its own": (
        LIMITS,
        [(0.5, HEARTBEAT), (1, "back_off"), (2, "attempt")],
        4,
        Phase.FIRST_TOKEN,
        DEAD,
        2,
    ),
}


@pytest.mark.parametrize(("limits", "rows", "at", "phase", "wire", "waited"), WIRE.values(), ids=WIRE.keys())
def test_wire_verdict(
    limits: Limits, rows: list[Row], at: float, phase: Phase, wire: Wire, waited: float
) -> None:
    end = ending(play(limits, rows))
    assert end is not None
    instant, stall = end
    assert isinstance(stall, Stall)
    assert (instant, stall.phase, stall.wire) == (pytest.approx(at), phase, wire)
    assert stall.waited == stall.allowed == pytest.approx(waited)


def test_a_heartbeat_chunk_is_wire_activity_where_no_byte_seam_is_to_be_had() -> None:
    tracker = Tracker(LIMITS, 0)
    tracker.on_attempt(0)
    tracker.on_chunk(HEARTBEAT, 1.5)
    tracker.on_wait(1.5)
    end = ending(tracker)
    assert end is not None
    assert end[0] == 3.5


def test_a_late_judgement_tells_the_wait_as_it_was() -> None:
    stall = play(LIMITS, [(1, VISIBLE)]).judge(9.5)
    assert stall == Stall(phase=Phase.IDLE, wire=DEAD, limit=4, allowed=4, waited=8.5, silence=8.5)


def test_every_chunk_restarts_the_clock_when_every_chunk_is_progress() -> None:
    plain = replace(PLAIN, any_chunk_is_progress=True)
    beats = flowing(1, 50, 0.5, HEARTBEAT)
    tracker = play(plain, [(1, VISIBLE), *beats])
    assert ending(tracker) == (
        54,
        Stall(phase=Phase.IDLE, wire=DEAD, limit=4, allowed=4, waited=4, silence=4),
    )
    assert tracker.heartbeats == len(beats)


def test_a_chunk_that_counts_as_progress_ends_first_token_but_is_no_token() -> None:
    tracker = play(replace(PLAIN, any_chunk_is_progress=True), [(1, PREAMBLE)])
    assert (tracker.phase, tracker.first_token_at) == (Phase.THINKING, None)
    end = ending(tracker)
    assert end is not None
    assert end[0] == 4


def test_comments_are_no_chunks_even_when_every_chunk_is_progress() -> None:
    end = ending(play(replace(PLAIN, any_chunk_is_progress=True), [(1, VISIBLE), (4, BYTES)]))
    assert end is not None
    assert end == (5, Stall(phase=Phase.IDLE, wire=KEEPALIVE, limit=4, allowed=4, waited=4, silence=4))


LONGEST: list[tuple[Limits, float]] = [
    (Limits(), 0),
    (Limits(connect=5), 5),
    (Limits(connect=5, first_token=1, thinking=1, idle=1, total=3600), 5),
    (Limits(first_token=120, thinking=120, idle=120, total=3600), 240),
    (Limits(first_token=120, thinking=300, idle=120, total=3600), 600),
    (Limits(first_token=10, thinking=10, idle=120, total=3600, keepalive_factor=1), 120),
    # A phase without a limit may be silent for as long as the total allows.
    (Limits(first_token=120, thinking=120, total=3600), 3600),
    (Limits(connect=5, total=3600), 3600),
    (Limits(first_token=120, thinking=120), 240),
]


@pytest.mark.parametrize(("limits", "longest"), LONGEST)
def test_the_longest_silence_is_that_of_the_slowest_deadline(limits: Limits, longest: float) -> None:
    assert limits.longest_silence() == longest
