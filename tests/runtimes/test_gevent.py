"""gevent, with everything patched before anything is imported: greenlets are the threads, helper threads included."""

from __future__ import annotations

import importlib.util

import pytest

from support.children import spawn
from support.places import Place
from support.traffic import check

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed"),
]

ALL = """
from gevent import monkey
monkey.patch_all()
import json, platform, sys, threading, time
import gevent
from support.drivers import SYNC
from support.stage import Stage
from support.traffic import CANCEL_AFTER, left, play_now, sync_traffic, tell

# The SDK asks for it in its first request, and it may start a process. Greenlets that do that at the same time fork
# while others run, and under gevent those then run in the children, too: without us as well.
platform.platform()

def leave(client):
    def play(name):
        began, caught = time.monotonic(), False
        try:
            # A BaseException, as greenlets are killed with one.
            with gevent.Timeout(CANCEL_AFTER):
                play_now(tell(Stage(SYNC), client, name))
        except gevent.Timeout:
            caught = True
        return left(began, cancelled=caught)
    return play

ticks, over = [], threading.Event()
def tick():
    while not over.is_set():
        ticks.append(time.monotonic())
        gevent.sleep(0.01)
ticker = gevent.spawn(tick)
told = sync_traffic(sys.argv[1], leave=leave)
over.set()
ticker.join()
# No wait of ours has held the hub up.
told["longest_block"] = max(b - a for a, b in zip(ticks, ticks[1:]))
print(json.dumps(told))
"""


def test_all_traffic(plain: Place) -> None:
    (told,), err = spawn(ALL, plain.base_url).finish(30)
    check(told, plain.gateway.ledger())
    assert err == ""
    assert told["longest_block"] < 0.9
