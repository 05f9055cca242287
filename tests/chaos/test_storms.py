"""All traffic in a storm: wall clocks that jump to and fro, and collections of garbage all the time.

Frozen clocks are in tests/runtimes/test_clocks.py. That what the collector finds makes no noise and no deadlock is in
tests/runtime/test_dropped_streams.py.
"""

from __future__ import annotations

import pytest

from support.children import spawn
from support.places import Place
from support.traffic import check

PROGRAM = """
import asyncio, gc, json, sys, threading, time

base_url, storm, kind = sys.argv[1:]
over = threading.Event()

if storm == "clock":
    # An hour to and fro, as when a machine's time is set; before anybody takes the functions by name.
    steps, now, now_ns = [0], time.time, time.time_ns
    time.time = lambda: now() + steps[0]
    time.time_ns = lambda: now_ns() + steps[0] * 10**9
    def blow():
        number = 0
        while not over.wait(0.03):
            number += 1
            steps[0] = (0, 3600, -3600, 86400, -86400)[number % 5]

from support import backwards
from support.drivers import ASYNC, SYNC
from support.traffic import STORIES, async_traffic, sync_traffic

# What is loaded on first use is no part of the weather.
for driver in (SYNC, ASYNC):
    assert driver.tell(base_url, "healthy:tokens=1,gap=0").error is None

if storm == "garbage":
    # Each allocation may be the one that collects, and a thread collects whatever there is, beside that.
    gc.freeze()
    gc.set_threshold(1, 5, 5)
    def again(phase, info):
        if phase == "stop" and info["generation"] == 0 and info["collected"]:
            gc.collect(1)
    gc.callbacks.append(again)
    def blow():
        while not over.wait(0.1):
            gc.collect()

blowing = threading.Thread(target=blow, name="asyncio_storm", daemon=True)
blowing.start()
names = [name for name, story in STORIES.items() if story.ends != "own"]
told = sync_traffic(base_url, names=names) if kind == "sync" else asyncio.run(async_traffic(base_url, names))
over.set()
told["backwards"] = backwards.NAMES
print(json.dumps(told))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("storm", ["clock", "garbage"])
def test_nothing_changes_in_a_storm(plain: Place, storm: str, kind: str) -> None:
    (told,), err = spawn(PROGRAM, plain.base_url, storm, kind).finish(40)
    assert told["backwards"] == []
    assert err == ""
    # Hours would show; collections take the interpreter for themselves, a few hundredths of a second each.
    check(told, plain.gateway.ledger(), late=1.0)
