"""Frozen, ticking and jumping clocks: deadlines go by real time, and no span ends before it began.

On an asyncio loop whose clock stands still no timer fires, the SDK's own timeouts and back-offs included. There a
helper thread finds what is due.
"""

from __future__ import annotations

import importlib.util

import pytest

from support.bounds import LATE
from support.children import spawn
from support.places import Place
from support.traffic import check

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio, json, sys, threading, time

tool, motion, kind, when, base_url = sys.argv[1:]

def freeze():
    if tool == "freezegun":
        import freezegun
        return freezegun.freeze_time("2031-01-01", tick=motion == "ticks")
    import time_machine
    return time_machine.travel("2031-01-01", tick=motion == "ticks")

def jump(clock):
    while not over.wait(0.05):
        clock.shift(3600) if tool == "time-machine" else clock.tick(3600)

if when == "imported frozen":
    freezer = freeze()
    clock = freezer.start()
from stallwatch.telemetry.spans import SpanRecorder
from support.traffic import STORIES, async_traffic, sync_traffic
if when != "imported frozen":
    freezer = freeze()
    clock = freezer.start()

# What waits on the loop's own timers does not go on while its clock stands still, ours or not.
names = [n for n, s in STORIES.items() if s.ends not in ("own", "drop") and n != "retried"]
over = threading.Event()
if motion == "jumps":
    threading.Thread(target=jump, args=(clock,), name="asyncio_jumps", daemon=True).start()
from support import backwards
if kind == "sync":
    told = sync_traffic(base_url)
elif kind == "asyncio":
    told = asyncio.run(async_traffic(base_url, names))
else:
    import uvloop
    told = uvloop.run(async_traffic(base_url, names))
over.set()
told["backwards"] = backwards.NAMES
print(json.dumps(told))
"""

CASES = [
    ("freezegun", "stands", "sync", "imported before"),
    ("freezegun", "stands", "sync", "imported frozen"),
    ("freezegun", "stands", "asyncio", "imported before"),
    ("freezegun", "stands", "asyncio", "imported frozen"),
    ("freezegun", "stands", "uvloop", "imported frozen"),
    ("freezegun", "ticks", "sync", "imported frozen"),
    ("freezegun", "jumps", "sync", "imported before"),
    ("freezegun", "jumps", "uvloop", "imported before"),
    ("time-machine", "stands", "sync", "imported frozen"),
    ("time-machine", "stands", "asyncio", "imported before"),
    ("time-machine", "jumps", "sync", "imported before"),
    ("time-machine", "jumps", "asyncio", "imported before"),
]


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_deadlines_go_by_real_time(plain: Place, case: tuple[str, str, str, str]) -> None:
    tool, motion, kind, _ = case
    if importlib.util.find_spec(tool.replace("-", "_")) is None:
        pytest.skip(f"{tool} is not installed")
    (told,), _ = spawn(PROGRAM, *case, plain.base_url).finish(40)
    assert told["backwards"] == []
    # The helper thread looks once a second, and what is found late is granted a moment more, until its next look.
    check(
        told,
        plain.gateway.ledger(),
        late=4.0 if (tool, motion, kind) == ("freezegun", "stands", "asyncio") else LATE,
    )
