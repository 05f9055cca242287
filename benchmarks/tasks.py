"""What one process measures in one round, in CPU time: chunks, streams, calls, latency, memory.

Two lengths of streams give two unknowns: what a chunk costs is the slope between them, what a stream costs beyond its
chunks is where the line begins. So neither is hidden in the other, and what is done in one go at the end of a stream,
for all its chunks, counts for the chunks.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import time
import tracemalloc
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks import crowd, growth
from benchmarks.counts import counts
from benchmarks.feed import MESSAGES, MODEL, UNEVENTFUL, Feed

LONG, SHORT = 256, 8
"""Tokens of a long and of a short stream."""
LONG_STREAMS, SHORT_STREAMS, CALLS = 5, 30, 60
"""How many of each make a round: each kind takes some 30 to 80 ms of CPU."""

_STATE = Feed()

Found = dict[str, float]


def sync_costs() -> Found:
    """Return microseconds of CPU for a chunk, a stream without its chunks, and a plain call."""
    with _STATE.client() as client:
        return _costs(
            _timed(lambda: _streams(client, LONG, LONG_STREAMS)) / LONG_STREAMS,
            _timed(lambda: _streams(client, SHORT, SHORT_STREAMS)) / SHORT_STREAMS,
            _timed(lambda: _calls(client, CALLS)) / CALLS,
        )


def async_costs() -> Found:
    """Return the same of the asynchronous client whose data has always arrived."""
    return asyncio.run(_async_costs(suspending=False))


def waiting_costs() -> Found:
    """Return the same of the asynchronous client that waits a turn of the loop for every read."""
    return asyncio.run(_async_costs(suspending=True))


def sync_latency() -> Found:
    """Return how long a chunk takes from the transport to the reader, in microseconds: the median."""
    feed = _STATE
    feed.stamped, feed.tokens = True, LONG
    took = []
    try:
        with feed.client() as client:
            for _ in range(LONG_STREAMS):
                stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
                took.extend(time.perf_counter_ns() - feed.handed for _chunk in stream)
    finally:
        feed.stamped = False
    return {"latency": median(took) / 1e3}


def async_latency() -> Found:
    """Return the same of the asynchronous client."""
    return asyncio.run(_async_latency())


def memory() -> Found:
    """Return bytes of traced memory for an open asynchronous stream, three chunks of which were read.

    ``held``: nobody reads at the moment; ``waiting``: a task waits for the next chunk.
    """
    return asyncio.run(_memory(200))


TASKS: dict[str, Callable[[], Found]] = {
    "sync": sync_costs,
    "async": async_costs,
    "waiting": waiting_costs,
    "sync latency": sync_latency,
    "async latency": async_latency,
    "memory": memory,
    "counts": counts,
    **growth.TASKS,
    **crowd.TASKS,
}


def _costs(long: float, short: float, call: float) -> Found:
    chunk = (long - short) / (LONG - SHORT)
    return {"chunk": chunk, "stream": short - chunk * (SHORT + UNEVENTFUL), "call": call}


def _timed(work: Callable[[], None]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return 1e6 * (time.process_time() - began)


def _streams(client: Any, tokens: int, times: int) -> None:
    _STATE.tokens = tokens
    create = client.chat.completions.create
    for _ in range(times):
        for _chunk in create(model=MODEL, messages=MESSAGES, stream=True):
            pass


def _calls(client: Any, times: int) -> None:
    create = client.chat.completions.create
    for _ in range(times):
        create(model=MODEL, messages=MESSAGES)


async def _async_costs(*, suspending: bool) -> Found:
    _STATE.suspending = suspending
    try:
        async with _STATE.async_client() as client:
            long = await _async_timed(client, LONG, LONG_STREAMS)
            short = await _async_timed(client, SHORT, SHORT_STREAMS)
            gc.collect()
            began = time.process_time()
            for _ in range(CALLS):
                await client.chat.completions.create(model=MODEL, messages=MESSAGES)
            call = 1e6 * (time.process_time() - began) / CALLS
    finally:
        _STATE.suspending = False
    return _costs(long, short, call)


async def _async_timed(client: Any, tokens: int, times: int) -> float:
    _STATE.tokens = tokens
    create = client.chat.completions.create
    gc.collect()
    began = time.process_time()
    for _ in range(times):
        async for _chunk in await create(model=MODEL, messages=MESSAGES, stream=True):
            pass
    return 1e6 * (time.process_time() - began) / times


async def _async_latency() -> Found:
    feed = _STATE
    feed.stamped, feed.tokens = True, LONG
    took = []
    try:
        async with feed.async_client() as client:
            create = client.chat.completions.create
            for _ in range(LONG_STREAMS):
                stream = await create(model=MODEL, messages=MESSAGES, stream=True)
                took.extend([time.perf_counter_ns() - feed.handed async for _chunk in stream])
    finally:
        feed.stamped = False
    return {"latency": median(took) / 1e3}


async def _memory(streams: int) -> Found:
    _STATE.tokens, _STATE.silent_after = SHORT, 3
    try:
        async with _STATE.async_client() as client:
            # What is made once is made before counting begins: the first wait that is cancelled loads modules, too.
            warm = await _opened(client, 20)
            await _let_go(warm, await _awaited(warm))
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            held = await _opened(client, streams)
            gc.collect()
            taken = (tracemalloc.get_traced_memory()[0] - before) / streams
            readers = await _awaited(held)
            gc.collect()
            waiting = (tracemalloc.get_traced_memory()[0] - before) / streams
            tracemalloc.stop()
            await _let_go(held, readers)
    finally:
        _STATE.silent_after = None
    return {"held": taken, "waiting": waiting}


async def _awaited(streams: list[Any]) -> list[asyncio.Task[Any]]:
    """Return tasks that wait for the next chunk of each stream."""
    readers = [asyncio.create_task(anext(stream)) for stream in streams]
    for _ in range(5):
        await asyncio.sleep(0)
    return readers


async def _let_go(streams: list[Any], readers: list[asyncio.Task[Any]]) -> None:
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    for stream in streams:
        await _close(stream)


async def _close(stream: Any) -> None:
    closed = stream.close()
    # Not every wrapper around a stream kept its close a coroutine.
    if inspect.isawaitable(closed):
        await closed


async def _opened(client: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        for _chunk in range(3):
            await anext(stream)
        found.append(stream)
    return found
