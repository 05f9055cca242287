"""Ends of a stream that come together, in the tasks of one loop: every two of them, at every two turns.

By default a sample of the turns; ``RACES_EVERY=1`` tries all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import combinations, islice, product

import pytest

from races.judged import judge_tasks
from races.tasks import TASK_ENDS, TURNS, Coming, TaskWorld
from races.world import Stage, stage

EVERY = int(os.environ.get("RACES_EVERY", "7"))
MEETINGS = [
    *combinations(TASK_ENDS, 2),
    *(("drop", end) for end in TASK_ENDS if end not in ("user", "lost")),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[Stage]:
    with stage() as made:
        yield made


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("names", MEETINGS, ids=["-".join(names) for names in MEETINGS])
def test_a_stream_ends_once_and_as_it_is_told(shared: Stage, names: tuple[str, str]) -> None:
    turns, behind = range(TURNS), (False, True)
    meetings = [
        [Coming(names[0], first, late), Coming(names[1], second, later)]
        for first, second, late, later in product(turns, turns, behind, behind)
    ]
    # Also who comes first of two that come at once.
    meetings += [coming[::-1] for coming in meetings if coming[0].turn == coming[1].turn]
    loop = asyncio.new_event_loop()
    try:
        for coming in islice(meetings, 0, None, EVERY):
            world = TaskWorld(shared.captured, shared.clock)
            shared.enter(world)
            loop.run_until_complete(world.play(coming, reads="drop" not in names))
            try:
                judge_tasks(world, list(names))
                shared.nothing_was_logged()
            except AssertionError as error:
                error.add_note(f"{coming} came to {world.told}")
                raise
    finally:
        loop.close()
