"""Forks, exits and event loops that come and go."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
import weakref
from typing import Any

import pytest

import stallwatch
from support.children import spawn
from support.places import MESSAGES, Place, eventually, run_on
from support.telemetry import Captured, instrumented

STALLS = "stall-after:tokens=2,gap=0"


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def _outcomes(captured: Captured) -> list[Any]:
    return [span.attributes["stallwatch.outcome"] for span in captured.spans]


FORKS = """
import gc, json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from support.places import MESSAGES
from support.telemetry import instrumented
import openai, stallwatch

base_url, how = sys.argv[1:]
options = {"base_url": base_url, "api_key": "sk-test", "max_retries": 0}

def create(client, model):
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)

def in_child(stream):
    if how == "closes":
        stream.close()
    elif how == "collects":
        streams.clear()
        del stream
        gc.collect()
        time.sleep(0.2)
    began = time.monotonic()
    try:
        list(create(openai.OpenAI(**options), "stall-after:tokens=2,gap=0,id=child"))
    except stallwatch.StreamInactivityTimeoutError as error:
        assert error.chunks_received == 3
        assert time.monotonic() - began < 1.5
        deadline = time.monotonic() + 2
        while not captured.spans and time.monotonic() < deadline:
            time.sleep(0.01)
        outcomes = [span.attributes["stallwatch.outcome"] for span in captured.spans]
        os._exit(0 if outcomes == ["stalled"] else 3)
    os._exit(4)

with instrumented(idle=0.4) as captured:
    client = openai.OpenAI(**options)
    streams = [create(client, "slow:tokens=24,gap=0.05")]
    next(streams[0])
    reading = []
    if how != "collects":
        threads = ThreadPoolExecutor(1)
        reading.append(threads.submit(list, streams[0]))
        time.sleep(0.1)
    child = os.fork()
    if not child:
        in_child(streams[0])
    rest = reading[0].result() if reading else list(streams[0])
    _, status = os.waitpid(child, 0)
    outcomes = [span.attributes["stallwatch.outcome"] for span in captured.spans]
    print(json.dumps([os.waitstatus_to_exitcode(status), len(rest), outcomes]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("how", ["calls", "closes", "collects"])
def test_a_forked_child_guards_its_own_calls_and_leaves_its_parents_alone(plain: Place, how: str) -> None:
    ((child, rest, outcomes),), _ = spawn(FORKS, plain.base_url, how).finish()
    assert child == 0
    assert rest == 25
    assert outcomes == ["completed"]


EXITS = """
import asyncio, sys, threading
import openai, stallwatch
from support.places import MESSAGES
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

base_url, how = sys.argv[1:]
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(
    formatter=lambda span: '"' + str(span.attributes["stallwatch.outcome"]) + '"\\n')))
stallwatch.OpenAIInstrumentor().instrument(tracer_provider=provider, skip_dep_check=True, idle=60)
options = {"base_url": base_url, "api_key": "sk-test", "max_retries": 0}
request = {"model": "stall-after:tokens=2,gap=0", "messages": MESSAGES, "stream": True}
kept = []

async def open_async():
    stream = await openai.AsyncOpenAI(**options).chat.completions.create(**request)
    await anext(stream)
    kept.append(stream)

if how == "async":
    asyncio.run(open_async())
else:
    stream = openai.OpenAI(**options).chat.completions.create(**request)
    next(stream)
    kept.append(stream)
    if how == "blocked":
        began = threading.Event()
        def read():
            next(stream), next(stream)
            began.set()
            next(stream)
        threading.Thread(target=read, daemon=True).start()
        began.wait(5)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["paused", "blocked", "async"])
def test_an_exit_with_an_open_stream_is_prompt_and_exports_its_span(plain: Place, how: str) -> None:
    said, err = spawn(EXITS, plain.base_url, how).finish(within=8)
    if how == "async":
        # The loop closes half-read generators at its end, and the newer SDK its response then. It may be loud about it.
        assert said in (["closed_early"], ["abandoned"])
    else:
        assert said == ["abandoned"]
        assert err == ""


def test_one_client_serves_two_loops_one_after_the_other(plain: Place, loop: str) -> None:
    client = plain.async_client()

    async def story() -> None:
        with pytest.raises(stallwatch.StreamInactivityTimeoutError):
            async for _ in await _create(client, STALLS):
                pass
        stream = await _create(client, "healthy:tokens=2,gap=0")
        assert len([chunk async for chunk in stream]) == 4
        await client.close()

    with instrumented(idle=0.15) as captured:
        run_on(loop, story())
        client = client.copy(http_client=plain.async_client()._client)
        run_on(loop, story())
    assert _outcomes(captured) == ["stalled", "completed"] * 2


def test_two_loops_at_the_same_time_are_watched_apart(plain: Place, loop: str) -> None:
    seen: list[BaseException] = []

    async def story() -> None:
        async with plain.async_client() as client:
            try:
                async for _ in await _create(client, STALLS):
                    pass
            except stallwatch.StreamInactivityTimeoutError as error:
                seen.append(error)

    with instrumented(idle=0.2) as captured:
        threads = [threading.Thread(target=run_on, args=(loop, story())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
    assert len(seen) == 3
    assert _outcomes(captured) == ["stalled"] * 3


def test_a_stream_that_outlives_its_loop_is_ended_when_it_is_dropped(plain: Place) -> None:
    kept: list[Any] = []
    socket: list[Any] = []

    async def story() -> None:
        client = plain.async_client()
        stream = await _create(client, STALLS)
        kept.extend((client, stream))
        socket.append(weakref.ref(stream.response.extensions["network_stream"]))

    with instrumented(idle=0.2) as captured:
        asyncio.run(story())
        assert captured.spans == []
        with warnings.catch_warnings():
            # The transport of a closed loop complains, with and without us.
            warnings.simplefilter("ignore", ResourceWarning)
            kept.clear()
            gc.collect()
            eventually(lambda: captured.spans)
            eventually(lambda: gc.collect() >= 0 and socket[0]() is None)
        assert _outcomes(captured) == ["abandoned"]
