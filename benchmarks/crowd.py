"""Many streams at once on real sockets: what they cost while nothing happens, and how late they end together.

*Late* is what a caller has waited beyond the deadline when the next statement of its program runs: the stream is
judged, broken, closed and the error raised by then. Bare, the same is done by what a careful program would write for
itself: a timer for each stream that cancels the task, and a close. So what both have in common, closing that many
connections of the HTTP library in one thread, is seen beside what we add. Clients are the SDK's own, which hold 1000
connections at most; more streams are more clients.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from statistics import median, quantiles
from typing import Any

import openai

from benchmarks.feed import MESSAGES, MODEL, http_library
from benchmarks.limits import allow_many_files
from benchmarks.silent_server import SPOKEN

OPENING = 25
"""Streams that are opened at the same time."""
CONNECT = 60.0
"""Seconds: opening is not what is measured, and a busy machine may take its time for it."""
A_CLIENT = 1000
"""Connections that the SDK's default client has at most."""
IDLE, RESTING = 2.0, 20.0
"""Seconds: the deadline of streams that expire, and how long a crowd is watched that does not; long enough that the one
look at each stream whose phase has changed counts for what it is."""
LONE, LONE_IDLE = 12, 0.25
"""How many single stalls one after the other, and their deadline."""

Found = dict[str, float]


def resting(streams: int) -> Found:
    """Return what open streams cost that all wait: share of a core in percent, threads, timers of the loop."""
    with _server() as url:
        return asyncio.run(_resting(url, streams))


def expiring(streams: int) -> Found:
    """Return how late streams end whose deadlines pass together, in milliseconds, and each's CPU in microseconds."""
    with _server() as url:
        found = asyncio.run(_expiring(url, streams))
        _wait_until_closed(url)
        return found


def lone_async() -> Found:
    """Return how late a stream ends that is the only one, in milliseconds."""
    with _server() as url:
        return _summed(asyncio.run(_lone(url)))


def lone_sync() -> Found:
    """Return the same of a synchronous stream; bare, only the transport's read timeout can end its wait."""
    with _server() as url:
        return _summed([value for _ in range(LONE) for value in _threads(url, 1, LONE_IDLE)])


def threads(count: int) -> Found:
    """Return how late synchronous streams end, each waiting in a thread of its own, all at once."""
    with _server() as url:
        return _summed(_threads(url, count, IDLE))


async def _resting(url: str, streams: int) -> Found:
    with _deadline(None):
        return await _rested(url, streams)


async def _rested(url: str, streams: int) -> Found:
    async with _opened(url, streams) as held:
        loop: Any = asyncio.get_running_loop()
        waiting = [asyncio.create_task(anext(stream)) for stream in held]
        await asyncio.sleep(1)
        gc.collect()
        began, used = time.monotonic(), time.process_time()
        await asyncio.sleep(RESTING)
        share = (time.process_time() - used) / (time.monotonic() - began)
        timers = sum(not handle.cancelled() for handle in loop._scheduled)
        found = {
            "core": 100 * share,
            "threads": threading.active_count(),
            "timers": timers,
            "tasks": len(waiting),
        }
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return found


async def _expiring(url: str, streams: int) -> Found:
    with _deadline(IDLE):
        async with _opened(url, streams) as held:
            used = time.process_time()
            late = await _all_late(held, IDLE)
            return _summed(late) | {"cpu": 1e6 * (time.process_time() - used) / streams}


async def _lone(url: str) -> list[float]:
    late = []
    with _deadline(LONE_IDLE):
        for _ in range(LONE):
            async with _opened(url, 1) as held:
                late += await _all_late(held, LONE_IDLE)
    return late


async def _all_late(held: list[Any], idle: float) -> list[float]:
    gc.collect()
    ending = _ended_by_us if _governed() else _ended_by_hand
    return list(await asyncio.gather(*(ending(stream, idle) for stream in held)))


async def _ended_by_us(stream: Any, idle: float) -> float:
    began = time.monotonic()
    try:
        await anext(stream)
    except TimeoutError:
        return 1e3 * (time.monotonic() - began - idle)
    raise AssertionError("the server was to say nothing")


async def _ended_by_hand(stream: Any, idle: float) -> float:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    began = time.monotonic()
    loop.call_at(loop.time() + idle, task.cancel)
    try:
        await anext(stream)
    except asyncio.CancelledError:
        task.uncancel()
        await stream.close()
        return 1e3 * (time.monotonic() - began - idle)
    raise AssertionError("the server was to say nothing")


def _threads(url: str, count: int, idle: float) -> list[float]:
    options: dict[str, Any] = {} if _governed() else {"timeout": idle}
    started = threading.Barrier(count)

    def late(client: openai.OpenAI) -> float:
        stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        for _ in range(SPOKEN):
            next(stream)
        started.wait()
        began = time.monotonic()
        try:
            next(stream)
        except (TimeoutError, http_library().ReadTimeout, openai.APITimeoutError):
            stream.close()
            return 1e3 * (time.monotonic() - began - idle)
        raise AssertionError("the server was to say nothing")

    with (
        _deadline(idle),
        openai.OpenAI(base_url=url, api_key="none", max_retries=0, **options) as client,
        ThreadPoolExecutor(count) as pool,
    ):
        # A policy is bound to the context, which threads of a pool do not take over.
        calls = [pool.submit(contextvars.copy_context().run, late, client) for _ in range(count)]
        return [call.result() for call in calls]


def _governed() -> bool:
    ours = sys.modules.get("stallwatch")
    return ours is not None and ours.OpenAIInstrumentor().is_instrumented_by_opentelemetry


@contextmanager
def _deadline(idle: float | None) -> Iterator[None]:
    """Let streams opened inside expire, or be as by default; where we are not there, nothing."""
    if not _governed():
        yield
        return
    import stallwatch

    settings = {} if idle is None else {"idle": idle}
    with stallwatch.policy(connect=CONNECT, max_retries=0, **settings):
        yield


def _summed(late: list[float]) -> Found:
    if len(late) < 3:
        return {"p50": median(late), "p99": max(late), "most": max(late), "closing": max(late) - min(late)}
    p99 = quantiles(late, n=100, method="inclusive")[98]
    return {"p50": median(late), "p99": p99, "most": max(late), "closing": max(late) - min(late)}


@asynccontextmanager
async def _opened(url: str, streams: int) -> AsyncIterator[list[Any]]:
    """Open so many streams, all chunks that will ever come read."""
    async with AsyncExitStack() as stack:
        clients = []
        timeout = http_library().Timeout(600, connect=CONNECT)
        for _ in range(-(-streams // A_CLIENT)):
            client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=timeout)
            clients.append(await stack.enter_async_context(client))
        held: list[Any] = []
        for start in range(0, streams, OPENING):
            numbers = range(start, min(start + OPENING, streams))
            held += await asyncio.gather(*(_open(clients[number % len(clients)]) for number in numbers))
        yield held


async def _open(client: openai.AsyncOpenAI) -> Any:
    stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    for _ in range(SPOKEN):
        await anext(stream)
    return stream


@contextmanager
def _server() -> Iterator[str]:
    allow_many_files()
    command = [sys.executable, "-m", "benchmarks.silent_server"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate("\n")


def _wait_until_closed(url: str) -> None:
    until = time.monotonic() + 30
    while (left := int(urllib.request.urlopen(f"{url}/open").read())) and time.monotonic() < until:
        time.sleep(0.05)
    if left:
        raise AssertionError(f"{left} connections were left open")


TASKS: dict[str, Callable[[], Found]] = {
    "lone async": lone_async,
    "lone sync": lone_sync,
    "200 threads": lambda: threads(200),
    "1000 expire": lambda: expiring(1000),
    "2000 expire": lambda: expiring(2000),
    "5000 expire": lambda: expiring(5000),
    "10000 rest": lambda: resting(10_000),
}
