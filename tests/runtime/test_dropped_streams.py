"""A stream nobody holds any more is ended once, its connection comes back, and nothing of ours kept it alive."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from typing import Any

import pytest

from stallwatch.telemetry.metrics import MetricRecorder
from support.children import spawn
from support.places import MESSAGES, Place, eventually, eventually_async, run_on
from support.telemetry import Captured, instrumented


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def _outcomes(captured: Captured) -> list[Any]:
    return [span.attributes["stallwatch.outcome"] for span in captured.spans]


def _open_and_drop(client: Any, read: int) -> weakref.ref[Any]:
    stream = _create(client, "stall-after:tokens=3,gap=0")
    for _ in range(read):
        next(stream)
    return weakref.ref(stream)


async def _open_and_drop_async(client: Any, read: int) -> weakref.ref[Any]:
    stream = await _create(client, "stall-after:tokens=3,gap=0")
    for _ in range(read):
        await anext(stream)
    return weakref.ref(stream)


@pytest.mark.parametrize("read", [0, 2])
def test_a_dropped_stream_is_abandoned_and_its_connection_comes_back(place: Place, read: int) -> None:
    with instrumented() as captured, place.client(connections=1) as client:
        dropped = _open_and_drop(client, read)
        gc.collect()
        assert dropped() is None
        eventually(lambda: captured.spans)
        assert _outcomes(captured) == ["abandoned"]
        place.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how)
        assert len(list(_create(client, "healthy:tokens=2,gap=0"))) == 4
        assert _outcomes(captured) == ["abandoned", "completed"]


@pytest.mark.parametrize("read", [0, 2])
def test_a_dropped_async_stream_is_abandoned_and_its_connection_comes_back(
    place: Place, loop: str, read: int
) -> None:
    async def story() -> None:
        async with place.async_client(connections=1) as client:
            dropped = await _open_and_drop_async(client, read)
            gc.collect()
            assert dropped() is None
            await eventually_async(lambda: captured.spans)
            assert _outcomes(captured) == ["abandoned"]
            await place.gateway.wait_for_async(lambda ledger: ledger.requests[0].closed_how)
            stream = await _create(client, "healthy:tokens=2,gap=0")
            assert len([chunk async for chunk in stream]) == 4

    with instrumented() as captured:
        run_on(loop, story())
        assert _outcomes(captured) == ["abandoned", "completed"]


def test_the_span_of_a_dropped_stream_ends_with_its_last_activity(plain: Place) -> None:
    with instrumented() as captured, plain.client() as client:
        stream = _create(client, "stall-after:tokens=3,gap=0")
        next(stream)
        last = time.time()
        time.sleep(0.3)
        del stream
        gc.collect()
        eventually(lambda: captured.spans)
        end = captured.span.end_time
        assert end is not None
        assert abs(end / 1e9 - last) < 0.15


def test_a_whole_answer_left_before_its_end_mark_is_completed(plain: Place) -> None:
    with instrumented() as captured, plain.client() as client:
        stream = _create(client, "finish-then-silence:tokens=2,gap=0")
        for _ in range(4):
            next(stream)
        del stream
        gc.collect()
        eventually(lambda: captured.spans)
        assert _outcomes(captured) == ["completed"]


def test_a_kept_response_goes_on_after_its_stream_is_dropped(place: Place) -> None:
    with instrumented() as captured, place.client() as client:
        response = _create(client, "healthy:tokens=5,gap=0.05").response
        gc.collect()
        assert b"".join(response.iter_bytes()).endswith(b"data: [DONE]\n\n")
        response.close()
        eventually(lambda: captured.spans)
        assert len(captured.spans) == 1


def test_a_kept_async_response_goes_on_after_its_stream_is_dropped(place: Place, loop: str) -> None:
    async def story() -> bytes:
        async with place.async_client() as client:
            response = (await _create(client, "healthy:tokens=5,gap=0.05")).response
            gc.collect()
            return b"".join([piece async for piece in response.aiter_bytes()])

    with instrumented() as captured:
        assert run_on(loop, story()).endswith(b"data: [DONE]\n\n")
        eventually(lambda: captured.spans)
        assert len(captured.spans) == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_collection_inside_a_telemetry_lock_cannot_deadlock(
    plain: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The metrics SDK holds plain locks while it allocates, so a collection may run our finalisers inside them.
    lock = threading.Lock()
    end = MetricRecorder.end

    def ending(recorder: MetricRecorder, run: Any, now: float) -> None:
        assert lock.acquire(timeout=5), "telemetry was called from within its own lock"
        try:
            end(recorder, run, now)
        finally:
            lock.release()

    monkeypatch.setattr(MetricRecorder, "end", ending)

    async def story() -> None:
        async with plain.async_client() as client:
            dropped = [await _open_and_drop_async(client, read) for read in (0, 2)]
            with lock:
                gc.collect()
            assert [each() for each in dropped] == [None, None]
            await eventually_async(lambda: len(captured.spans) == 2)

    with instrumented() as captured:
        if kind == "async":
            asyncio.run(story())
        else:
            with plain.client() as client:
                dropped = [_open_and_drop(client, read) for read in (0, 2)]
                with lock:
                    gc.collect()
                assert [each() for each in dropped] == [None, None]
                eventually(lambda: len(captured.spans) == 2)
        assert _outcomes(captured) == ["abandoned"] * 2


NOISELESS = """
import asyncio, gc, sys, time
from support.telemetry import instrumented
from support.places import MESSAGES
import openai

options = {"base_url": sys.argv[1], "api_key": "sk-test", "max_retries": 0}
request = {"model": "stall-after:tokens=3,gap=0", "messages": MESSAGES, "stream": True}

async def drop():
    # A slow machine is no noise of ours.
    asyncio.get_running_loop().slow_callback_duration = 60
    async with openai.AsyncOpenAI(**options) as client:
        for read in (0, 2):
            stream = await client.chat.completions.create(**request)
            for _ in range(read):
                await anext(stream)
            del stream
            gc.collect()
            while len(captured.spans) < before + 1 + (read > 0):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

with instrumented() as captured:
    with openai.OpenAI(**options) as client:
        for read in (0, 2):
            stream = client.chat.completions.create(**request)
            for _ in range(read):
                next(stream)
            del stream
            gc.collect()
        while len(captured.spans) < 2:
            time.sleep(0.01)
    before = len(captured.spans)
    asyncio.run(drop())
"""


@pytest.mark.slow
def test_dropped_streams_make_no_noise_in_development_mode(plain: Place) -> None:
    _, err = spawn(NOISELESS, plain.base_url, options=("-X", "dev")).finish()
    assert [line for line in err.splitlines() if "Deprecat" not in line] == []


COLLECTED_ELSEWHERE = """
import asyncio, gc, sys, threading, time
from support.telemetry import instrumented
from support.places import MESSAGES
import openai

request = {"model": "stall-after:tokens=3,gap=0", "messages": MESSAGES, "stream": True}
over = threading.Event()

def collect():
    while not over.is_set():
        gc.collect()
        time.sleep(0.002)

async def drop():
    async with openai.AsyncOpenAI(base_url=sys.argv[1], api_key="sk-test", max_retries=0) as client:
        for _ in range(DROPS):
            stream = await client.chat.completions.create(**request)
            for _ in range(2):
                await anext(stream)
            # A cycle, which only a collection finds.
            held = [stream]
            held.append(held)
            del stream, held
            await asyncio.sleep(0.005)
        while len(captured.spans) < DROPS:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

DROPS = 60
with instrumented() as captured:
    gc.disable()
    collecting = threading.Thread(target=collect)
    collecting.start()
    try:
        asyncio.run(drop())
    finally:
        over.set()
        collecting.join()
"""


def test_dropped_streams_that_another_thread_collects_make_no_noise(plain: Place) -> None:
    """The generators of a stream are all closed by the loop then, in whatever order the collector found them."""
    _, err = spawn(COLLECTED_ELSEWHERE, plain.base_url).finish(within=40)
    assert err == ""


DROPPED_LAST = """
import asyncio, gc, sys, time, weakref
from support.telemetry import instrumented
from support.places import MESSAGES
import openai

request = {"model": "stall-after:tokens=3,gap=0", "messages": MESSAGES, "stream": True}

async def drop(read_raw):
    client = openai.AsyncOpenAI(base_url=sys.argv[1], api_key="sk-test", max_retries=0)
    create = client.chat.completions
    stream = await (create.with_raw_response.create(**request) if read_raw else create.create(**request))
    del stream
    gc.collect()

gc.disable()
with instrumented() as captured:
    gone = []
    for number in range(6):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(drop(number % 2))
        if number < 4:
            loop.close()
        gone.append(weakref.ref(loop))
        del loop
        gc.collect()
    until = time.monotonic() + 5
    while len(captured.spans) < 6 and time.monotonic() < until:
        time.sleep(0.01)
    gc.collect()
    print([[each() is None for each in gone].count(True), len(captured.spans)])
"""


def test_a_loop_that_ends_with_the_drop_is_freed_and_says_nothing(plain: Place) -> None:
    """Like the bare SDK's: what is closed late must neither hold the loop for good nor complain of its end."""
    out, err = spawn(DROPPED_LAST, plain.base_url).finish(within=40)
    assert (out, err) == ([[6, 6]], "")


LOOP_OF_ANOTHER_KIND = """
import asyncio, gc, json, sys, time
from support.telemetry import instrumented
from support.places import MESSAGES
import openai

class Loop(asyncio.SelectorEventLoop):
    def call_soon_threadsafe(self, callback, *args):
        return super().call_soon_threadsafe(callback, *args)

request = {"model": "stall-after:tokens=3,gap=0", "messages": MESSAGES, "stream": True}

async def drop():
    async with openai.AsyncOpenAI(base_url=sys.argv[1], api_key="sk-test", max_retries=0) as client:
        stream = await client.chat.completions.create(**request)
        del stream
        gc.collect()
        until = time.monotonic() + 5
        while not captured.spans and time.monotonic() < until:
            await asyncio.sleep(0.01)

with instrumented() as captured:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(drop())
    print(json.dumps([span.attributes["stallwatch.outcome"] for span in captured.spans]))
"""


def test_a_loop_that_takes_no_context_costs_the_close_only(plain: Place) -> None:
    """A finaliser has nobody to tell that a loop of somebody's own would not have the call."""
    out, err = spawn(LOOP_OF_ANOTHER_KIND, plain.base_url).finish(within=40)
    assert (out, err) == ([["abandoned"]], "")
