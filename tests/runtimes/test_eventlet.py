"""eventlet, with everything patched before anything is imported."""

from __future__ import annotations

import importlib.util

import pytest

from support.children import spawn
from support.places import Place
from support.traffic import check

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("eventlet") is None, reason="eventlet is not installed"),
]

ALL = """
import warnings
warnings.simplefilter("ignore")
import sys
import eventlet
eventlet.monkey_patch()
# The HTTP library imports trio where there is one, and trio cannot be imported once eventlet has patched the sockets.
sys.modules["trio"] = None
import json, platform, sys, time
from support.drivers import SYNC
from support.stage import Stage
from support.traffic import CANCEL_AFTER, left, play_now, sync_traffic, tell

def leave(client):
    def play(name):
        began, caught = time.monotonic(), False
        try:
            with eventlet.Timeout(CANCEL_AFTER):
                play_now(tell(Stage(SYNC), client, name))
        except eventlet.Timeout:
            caught = True
        return left(began, cancelled=caught)
    return play

print(json.dumps(sync_traffic(sys.argv[1], leave=leave)))
"""


def test_all_traffic(plain: Place) -> None:
    (told,), _ = spawn(ALL, plain.base_url).finish(30)
    check(told, plain.gateway.ledger())
