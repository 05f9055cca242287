"""Ends of a stream that come together, in threads: every place at which one may break into another is tried.

By default a sample of the places; ``RACES_EVERY=1`` tries all, and ``RACES_PREEMPTIONS=2`` two of them at a time.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from races.judged import judge
from races.stepping import Preemption, Stepper, all_schedules
from races.world import ENDS, Play, watched_world
from stallwatch.runtime.interrupt import BoundedReads

EVERY = int(os.environ.get("RACES_EVERY", "11"))
PREEMPTIONS = int(os.environ.get("RACES_PREEMPTIONS", "1"))
MEETINGS = [
    *(("reader", *pair) for pair in permutations(ENDS, 2)),
    *(("drop", end) for end in ENDS if end != "lost"),
]


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with watched_world() as playing:
        yield playing


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("names", MEETINGS, ids=["-".join(names) for names in MEETINGS])
def test_a_stream_ends_once_and_as_it_is_told(play: Play, names: tuple[str, ...]) -> None:
    met: set[str] = set()

    def played(schedule: list[Preemption]) -> Stepper:
        world = play(list(names), schedule)
        try:
            judge(world, list(names))
        except AssertionError as error:
            error.add_note(f"{schedule} came to {world.told}")
            raise
        met.add(world.told.outcomes[0])
        return world.stepper

    tried = sum(1 for _ in all_schedules(played, PREEMPTIONS, EVERY))
    assert tried > 5
    assert met


def test_the_same_schedule_is_the_same_run(play: Play) -> None:
    runs = [play(["reader", "cancel", "end"], [Preemption(60, 3)]) for _ in range(2)]
    first, second = [(run.stepper.step, run.stepper.choices, run.told.outcomes) for run in runs]
    assert first == second


class Closing:
    """A stream whose reader comes while it is being closed."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.reads = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.reads += 1
        return b""

    def close(self) -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            self.read(1)
        self.near.close()
        self.far.close()

    def get_extra_info(self, info: str) -> object:
        return self.near if info == "socket" else None


def test_no_read_begins_on_a_stream_that_is_being_closed() -> None:
    stream = Closing()
    run: Any = SimpleNamespace(forgotten=False)
    assert BoundedReads.install(stream, run) is not None
    stream.close()
    assert stream.near.fileno() < 0
    assert stream.reads == 0
