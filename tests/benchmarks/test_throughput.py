"""At full load the product opens no file and no connection, starts no thread or timer for a chunk, and a dead exporter
slows nothing (A07; the figures are on the page on costs)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
from benchmarks.feed import Feed

from benchmarks import throughput
from support.markdown import ROOT

STREAMS, CHUNKS = 50, 40

AUDITED = """
import sys, threading
from benchmarks import throughput
from benchmarks.feed import Feed

feed = Feed()
feed.tokens = {chunks}
block = throughput.{block}
seen = []
watching = False

def hook(event, arguments):
    if watching and event in ("open", "socket.connect", "socket.getaddrinfo", "socket.bind", "subprocess.Popen",
                              "os.listdir", "os.scandir", "urllib.Request"):
        seen.append(f"{{event}} {{arguments!r}}")

sys.addaudithook(hook)
with block():
    throughput.in_one_loop(feed, 2)
    throughput.in_threads(feed, 2)
    watching = True
    throughput.in_one_loop(feed, {streams})
    throughput.in_threads(feed, {streams})
    watching = False
print(seen)
"""


@pytest.mark.parametrize("block", ["none", "in_memory", "dead"])
def test_load_touches_no_file_and_no_network_of_its_own(block: str) -> None:
    """The chunks come out of memory, so that whatever is touched is the product's or the SDK's doing."""
    ran = subprocess.run(
        [sys.executable, "-c", AUDITED.format(block=block, streams=STREAMS, chunks=CHUNKS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("block", throughput.EXPORTERS.values(), ids=list(throughput.EXPORTERS))
def test_load_starts_no_thread_and_no_timer_for_a_chunk(block: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started: Counter[str] = Counter()
    timed: Counter[str] = Counter()
    ours = threading.Thread.start
    call_at = asyncio.BaseEventLoop.call_at

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("stallwatch"):
            started[thread.name] += 1
        ours(thread)

    def at(loop: Any, when: float, callback: Any, *arguments: Any, context: Any = None) -> Any:
        if "stallwatch" in str(getattr(callback, "__module__", "")):
            timed[callback.__qualname__] += 1
        return call_at(loop, when, callback, *arguments, context=context)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(asyncio.BaseEventLoop, "call_at", at)
    feed = Feed()
    feed.tokens = CHUNKS
    with block():
        throughput.in_one_loop(feed, STREAMS)
        throughput.in_threads(feed, STREAMS)
    # 2000 chunks in each: helpers are few, and timers are those of the one loop, armed anew now and then.
    assert sum(started.values()) <= 4, started
    assert 1 <= sum(timed.values()) <= STREAMS, timed


def test_a_dead_exporter_slows_nothing() -> None:
    """That its thread is stuck is seen by nobody: what it does not take is dropped."""
    feed = Feed()
    feed.tokens = CHUNKS
    fastest: dict[str, float] = {}
    for name, block in (
        ("bare", nullcontext),
        ("in memory", throughput.in_memory),
        ("dead", throughput.dead),
    ):
        with block():
            throughput.in_one_loop(feed, 2)
            fastest[name] = min(throughput.in_one_loop(feed, STREAMS // 5)[0] for _ in range(3))
    assert fastest["dead"] < 2 * fastest["in memory"], fastest
