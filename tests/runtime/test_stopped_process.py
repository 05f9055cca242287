"""A process that was stopped for longer than its idle limit finds the bytes that came meanwhile, and cuts nothing."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.children import spawn
from support.places import places

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no way to stop a process here"),
    pytest.mark.slow,
]

READERS = """
import asyncio, json, ssl, sys, threading
from concurrent.futures import ThreadPoolExecutor
import openai, trio
from support.places import LOOPS, MESSAGES
from support.telemetry import instrumented

plain, tls, authority, model = sys.argv[1:]
stop_at = 0 if model.startswith("late-headers") else 3
places = {"plain": (plain, False), "tls": (tls, ssl.create_default_context(cafile=authority))}
kinds = [f"{kind}-{wire}" for kind in ("sync", "asyncio", "uvloop", "trio") for wire in places]
reading = threading.Barrier(len(kinds) + 1)

def options(wire):
    return {"base_url": places[wire][0], "api_key": "sk-test", "max_retries": 0, "timeout": 30}

def request(name):
    return {"model": f"{model},id={name}", "messages": MESSAGES, "stream": True}

def read(name, wire):
    number = 0
    with openai.OpenAI(http_client=openai.DefaultHttpxClient(verify=places[wire][1]), **options(wire)) as client:
        for number, _ in enumerate(client.chat.completions.create(**request(name)), 1):
            if number == stop_at:
                reading.wait(10)
    return number

async def read_async(name, wire):
    number = 0
    http = openai.DefaultAsyncHttpxClient(verify=places[wire][1])
    async with openai.AsyncOpenAI(http_client=http, **options(wire)) as client:
        async for _ in await client.chat.completions.create(**request(name)):
            number += 1
            if number == stop_at:
                reading.wait(10)
    return number

def tell(name):
    kind, wire = name.split("-")
    if not stop_at:
        reading.wait(10)
    try:
        if kind == "sync":
            return read(name, wire), None
        if kind == "trio":
            return trio.run(read_async, name, wire), None
        with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
            return runner.run(read_async(name, wire)), None
    except Exception as failure:
        return 0, repr(failure)

with instrumented(idle=0.5, first_token=1.5, thinking=0.5) as captured, ThreadPoolExecutor(len(kinds)) as threads:
    told = {name: threads.submit(tell, name) for name in kinds}
    reading.wait(10)
    print(json.dumps("reading"), flush=True)
    told = {name: future.result() for name, future in told.items()}
stalls = [e.attributes["stallwatch.stall.phase"] for e in captured.events()]
print(json.dumps({"told": told, "stalls": stalls}))
"""

KINDS = [f"{kind}-{wire}" for kind in ("sync", "asyncio", "uvloop", "trio") for wire in ("plain", "tls")]


MODELS = {"headers": "late-headers:seconds=1,tokens=40,gap=0", "chunks": "slow:tokens=40,gap=0.05"}


@pytest.fixture(scope="module", params=MODELS)
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """What each kind of reader saw, all in one process that was stopped while they waited for headers or chunks."""
    with places("plain", "tls") as (plain, tls):
        authority = tls.write_authority(tmp_path_factory.mktemp("tls"))
        child = spawn(READERS, plain.base_url, tls.base_url, str(authority), MODELS[request.param])
        assert child.line() == "reading"
        for place in (plain, tls):
            place.gateway.wait_for(lambda ledger: len(ledger.requests) == len(KINDS) // 2)
        child.process.send_signal(signal.SIGSTOP)
        time.sleep(2.0)
        child.process.send_signal(signal.SIGCONT)
        yield child.finish()[0][-1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_process_is_not_a_silent_server(said: dict[str, Any], kind: str) -> None:
    assert said["told"][kind] == [42, None]


def test_nothing_is_told_of_a_stop(said: dict[str, Any]) -> None:
    assert said["stalls"] == []
