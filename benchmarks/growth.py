"""What grows with what: a chunk, a call or an attempt against the number of everything there can be many of.

Each must be flat: the tenth model, the thousandth chunk and the hundredth open stream cost what the first did.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from benchmarks.feed import MESSAGES, MODEL, UNEVENTFUL, Feed

CHUNKS = (16, 64, 256, 1024, 4096)
OPEN = (1, 10, 100, 1000)
ATTEMPTS = (1, 2, 3, 5, 9)
MODELS = (1, 10, 50, 100, 200)
WORK = 2048
"""Chunks that are read for a point, at least."""
CALLS = 40
TOKENS = 20
"""Of each of many streams; short, so that a thousand can be read."""

Found = dict[str, float]
_FEED = Feed()


def by_chunks() -> Found:
    """Return microseconds of CPU for a chunk of streams of different lengths."""
    found = {}
    with _FEED.client() as client:
        for tokens in CHUNKS:
            times = max(2, WORK // tokens)
            _FEED.tokens = tokens
            used = _timed(lambda: _read(client, times))  # noqa: B023
            found[str(tokens)] = used / (times * (tokens + UNEVENTFUL))
    return found


def by_open_streams() -> Found:
    """Return microseconds of CPU for a chunk while so many streams are read in turn.

    The streams are equally long at every point, because each chunk bears its share of what opening its stream takes.
    """
    return {str(streams): asyncio.run(_together(streams)) for streams in OPEN}


def by_attempts() -> Found:
    """Return microseconds of CPU for an attempt of a call whose first attempts are answered 503.

    Nobody sleeps between them. A process that does finds its caches cold, which costs half a millisecond, and ours
    sleeps longer than the bare SDK because it paces a route that fails in bursts.
    """
    found = {}
    with _FEED.client(max_retries=max(ATTEMPTS)) as client, patch("time.sleep", lambda _: None):
        for attempts in ATTEMPTS:
            _FEED.failures = attempts - 1
            times = max(4, CALLS // attempts)
            found[str(attempts)] = _timed(lambda: _call(client, times)) / (times * attempts)  # noqa: B023
    _FEED.failures = 0
    return found


def by_models() -> Found:
    """Return microseconds of CPU for a call while so many models are called in turn, each seen before."""
    found = {}
    with _FEED.client() as client:
        for models in MODELS:
            names = [f"{MODEL}-{number}" for number in range(models)]
            names *= max(1, CALLS // models)
            _call_each(client, names)
            found[str(models)] = _timed(lambda: _call_each(client, names)) / len(names)  # noqa: B023
    return found


TASKS: dict[str, Callable[[], Found]] = {
    "by chunks": by_chunks,
    "by open streams": by_open_streams,
    "by attempts": by_attempts,
    "by models": by_models,
}


def _timed(work: Callable[[], None]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return 1e6 * (time.process_time() - began)


def _read(client: Any, times: int) -> None:
    for _ in range(times):
        for _chunk in client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True):
            pass


def _call(client: Any, times: int) -> None:
    for _ in range(times):
        client.chat.completions.create(model=MODEL, messages=MESSAGES)


def _call_each(client: Any, models: list[str]) -> None:
    for model in models:
        client.chat.completions.create(model=model, messages=MESSAGES)


async def _together(streams: int) -> float:
    _FEED.suspending, _FEED.tokens = True, TOKENS
    chunks = TOKENS + UNEVENTFUL
    times = max(1, WORK // (streams * chunks))
    try:
        async with _FEED.async_client() as client:

            async def one() -> None:
                stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
                async for _chunk in stream:
                    pass

            await one()
            gc.collect()
            began = time.process_time()
            for _ in range(times):
                await asyncio.gather(*(one() for _ in range(streams)))
            return 1e6 * (time.process_time() - began) / (times * streams * chunks)
    finally:
        _FEED.suspending = False
