"""Timers that come late, because the process was stopped or the loop blocked, excuse a server once and not for ever.

The other half, that no healthy server is blamed, is in tests/runtime/test_stopped_process.py and
test_healthy_is_never_cut.py.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import stallwatch
from support.bounds import LATE
from support.children import spawn
from support.places import MESSAGES, Place, places, run_on
from support.telemetry import instrumented

LIMITS: dict[str, Any] = {"first_token": 5, "thinking": 5, "idle": 0.6, "total": 30}

CASES: dict[str, tuple[str, dict[str, Any], int, str]] = {
    # What the server does, the caller's policy, the chunks until the clock that counts runs, and that clock.
    "silence": ("stall-after:tokens=2,gap=0", {}, 3, "idle"),
    "heartbeats without end": ("heartbeats:tokens=1,gap=0,every=0.02", {}, 2, "idle"),
    "comments without end": ("keepalive:tokens=1,gap=0,every=0.02", {}, 2, "idle"),
    "tokens without end": ("endless:gap=0.02", {"total": 0.6}, 1, "total"),
}
"""Whatever comes faster than the grace for late timers must not be granted one grace after the other."""


@pytest.mark.parametrize("case", CASES)
def test_a_blocked_loop_excuses_a_silent_server_once(plain: Place, loop: str, case: str) -> None:
    model, policy, chunks, phase = CASES[case]

    async def story() -> tuple[Any, float]:
        async with plain.async_client() as client:
            stream = await client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
            for _ in range(chunks):
                await anext(stream)
            # Over the deadline, which passes while the loop cannot look.
            asyncio.get_running_loop().call_later(0.4, time.sleep, 0.6)
            blocked_until = time.monotonic() + 1.0
            with pytest.raises(stallwatch.StreamTimeoutError) as raised:
                async with asyncio.timeout(5):
                    async for _ in stream:
                        pass
            return raised.value, time.monotonic() - blocked_until

    with instrumented(**{**LIMITS, **policy}) as captured:
        error, late = run_on(loop, story())
    assert error.phase == phase
    assert late < LATE
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


READERS = """
import asyncio, json, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import openai, stallwatch, trio
from support.places import LOOPS, MESSAGES
from support.telemetry import instrumented

base_url, cases, limits = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
names = [(kind, case) for kind in ("sync", *LOOPS, "trio") for case in cases]
reading = threading.Barrier(len(names) + 1)
options = {"base_url": base_url, "api_key": "sk-test", "max_retries": 0, "timeout": 30}

def request(case):
    return {"model": cases[case][0], "messages": MESSAGES, "stream": True}

def read(case):
    with openai.OpenAI(**options) as client, stallwatch.policy(**cases[case][1]):
        stream = client.chat.completions.create(**request(case))
        for _ in range(cases[case][2]):
            next(stream)
        reading.wait(20)
        for _ in stream:
            pass

async def read_async(case):
    async with openai.AsyncOpenAI(**options) as client:
        with stallwatch.policy(**cases[case][1]):
            stream = await client.chat.completions.create(**request(case))
            for _ in range(cases[case][2]):
                await anext(stream)
            reading.wait(20)
            async for _ in stream:
                pass

def tell(kind, case):
    try:
        if kind == "sync":
            read(case)
        elif kind == "trio":
            trio.run(read_async, case)
        else:
            with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
                runner.run(read_async(case))
    except stallwatch.StreamTimeoutError as error:
        return error.phase, time.monotonic()
    return "ended", time.monotonic()

with instrumented(**limits) as captured, ThreadPoolExecutor(len(names)) as threads:
    told = [threads.submit(tell, *name) for name in names]
    reading.wait(20)
    print(json.dumps("reading"), flush=True)
    ends = {" ".join(name): each.result() for name, each in zip(names, told)}
print(json.dumps(ends))
"""


@pytest.fixture(scope="module")
def ends() -> Iterator[dict[str, tuple[str, float]]]:
    """How each reader ended, and how long after a process that was stopped for longer than any limit went on."""
    with places("plain") as (plain,):
        child = spawn(READERS, plain.base_url, json.dumps(CASES), json.dumps(LIMITS))
        assert child.line() == "reading"
        # Each has its last chunk; a moment more, and each waits for the next.
        time.sleep(0.1)
        child.process.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        went_on = time.monotonic()
        child.process.send_signal(signal.SIGCONT)
        (told,), err = child.finish()
        assert err == ""
        yield {name: (phase, at - went_on) for name, (phase, at) in told.items()}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no way to stop a process here")
@pytest.mark.parametrize("kind", ["sync", "asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("case", CASES)
def test_a_stop_excuses_a_silent_server_once(
    ends: dict[str, tuple[str, float]], kind: str, case: str
) -> None:
    phase, late = ends[f"{kind} {case}"]
    assert phase == CASES[case][3]
    assert late < 2 * LATE, "sixteen readers go on at once, and have the interpreter's lock in turn"
