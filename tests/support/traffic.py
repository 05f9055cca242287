"""The traffic every runtime is tried with, and what must be true of it afterwards.

Each story is one call. All of a kind are played at the same time against the gateway; what the caller saw of each, the
outcomes on the ended spans and what was left over are plain data, so that a program in another process can print it.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import openai

import stallwatch
from stallwatch.runtime import registry
from stallwatch.testing.ledger import Ledger
from support.bounds import EARLY, LATE
from support.drivers import ASYNC, SYNC
from support.leaks import HELPERS
from support.places import MESSAGES
from support.stage import Stage
from support.telemetry import Captured, instrumented

__all__ = [
    "CANCEL_AFTER",
    "LIMITS",
    "STORIES",
    "Said",
    "Story",
    "async_traffic",
    "check",
    "client_options",
    "left",
    "left_over",
    "play_at_once",
    "play_now",
    "played",
    "real_time",
    "seen",
    "sync_traffic",
    "tell",
]

_T = TypeVar("_T")

real_time = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
"""The monotonic clock, by the name under which tools that freeze time leave it alone."""

LIMITS: dict[str, Any] = {"connect": 5.0, "first_token": 0.5, "thinking": 0.4, "idle": 0.3, "total": 20.0}

CANCEL_AFTER = 0.2
"""Seconds from the last chunk, or the call, to each cancel."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """One call: the server's part, and what comes of it."""

    model: str
    outcome: str
    error: str | None = None
    phase: str | None = None
    wire: str | None = None
    limit: float | None = None
    """Seconds from the last progress to the end."""
    chunks: int = 0
    retries: int = 0
    policy: dict[str, Any] = field(default_factory=dict)
    ends: str = ""
    """What ends it from outside: ``run`` for a Run's cancel, ``own`` for the runtime's own, ``drop`` for nobody."""


_STALLED = "StreamInactivityTimeoutError"

STORIES: dict[str, Story] = {
    "healthy": Story(model="healthy:tokens=3,gap=0.02", outcome="completed", chunks=5),
    "slow": Story(model="slow:tokens=5,gap=0.15", outcome="completed", chunks=7),
    "no headers": Story(
        model="never-responds",
        outcome="stalled",
        error=_STALLED,
        phase="first_token",
        wire="dead_wire",
        limit=0.5,
    ),
    "no token": Story(
        model="silent", outcome="stalled", error=_STALLED, phase="first_token", wire="dead_wire", limit=0.5
    ),
    "idle": Story(
        model="stall-after:tokens=2,gap=0",
        outcome="stalled",
        error=_STALLED,
        phase="idle",
        wire="dead_wire",
        limit=0.3,
        chunks=3,
    ),
    "keepalive": Story(
        model="keepalive:tokens=2,gap=0,every=0.05",
        outcome="stalled",
        error=_STALLED,
        phase="idle",
        wire="keepalive_only",
        limit=0.3,
        chunks=3,
    ),
    "retried": Story(model="silent>healthy:tokens=3,gap=0.02", outcome="completed", chunks=5, retries=1),
    "cancelled": Story(
        model="stall-after:tokens=2,gap=0,id=run",
        outcome="cancelled",
        error="RunCancelledError",
        limit=CANCEL_AFTER,
        chunks=3,
        policy={"idle": 30},
        ends="run",
    ),
    "cancelled early": Story(
        model="never-responds:id=run",
        outcome="cancelled",
        error="RunCancelledError",
        limit=CANCEL_AFTER,
        policy={"first_token": 30},
        ends="run",
    ),
    "left": Story(
        model="stall-after:tokens=2,gap=0,id=own",
        outcome="cancelled",
        limit=CANCEL_AFTER,
        chunks=3,
        policy={"idle": 30},
        ends="own",
    ),
    "dropped": Story(
        model="stall-after:tokens=2,gap=0,id=drop",
        outcome="abandoned",
        chunks=1,
        policy={"idle": 30},
        ends="drop",
    ),
}

Said = dict[str, Any]


async def tell(stage: Stage, client: Any, name: str) -> Said:
    """Play one story and say what the caller saw."""
    story, chunks, text = STORIES[name], 0, ""
    began = last = real_time()
    error: BaseException | None = None
    run = stallwatch.Run(name=name)
    canceller = threading.Timer(CANCEL_AFTER, run.cancel, args=("enough",))
    if story.ends == "run" and not story.chunks:
        canceller.start()
    try:
        with run, stallwatch.policy(**story.policy):
            stream = await stage.chat(
                client.with_options(max_retries=story.retries), story.model, messages=MESSAGES
            )
            async for chunk in stage.over(stream):
                last = real_time()
                chunks += 1
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
                if story.ends == "drop":
                    break
                if story.ends == "run" and chunks == story.chunks:
                    canceller.start()
    except Exception as failure:
        error = failure
    return {
        "chunks": chunks,
        "text": text,
        "error": None if error is None else type(error).__name__,
        "code": getattr(error, "code", None),
        "phase": getattr(error, "phase", None),
        "wire": getattr(error, "wire", None),
        "waited": real_time() - last,
        "seconds": real_time() - began,
    }


def play_now(story: Coroutine[Any, Any, _T]) -> _T:
    """Run a story that never suspends, because its stage is synchronous, in the calling thread."""
    try:
        story.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise AssertionError("a synchronous story has suspended")


def play_at_once(
    stage: Stage, client: Any, names: Iterable[str], leave: Callable[[Any], Said] | None = None
) -> dict[str, Said]:
    """Play synchronous stories, each in a thread of its own (under gevent or eventlet: a green one).

    ``leave`` plays the one that the runtime's own means end, and is given its name.
    """
    said: dict[str, Said] = {}

    def play(name: str) -> None:
        own = STORIES[name].ends == "own" and leave is not None
        said[name] = leave(name) if own and leave is not None else play_now(tell(stage, client, name))

    threads = [threading.Thread(target=play, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    return said


def seen(captured: Captured) -> dict[str, int]:
    """Count the ended spans by story and outcome."""
    names = {story.model: name for name, story in STORIES.items()}
    return dict(
        Counter(
            f"{names[span.attributes['gen_ai.request.model']]}: {span.attributes['stallwatch.outcome']}"
            for span in captured.spans
            if span.attributes is not None
        )
    )


def left_over(known: Collection[str] = (), within: float = 2.0) -> list[str]:
    """What is still there of all the calls, once it had time to go: listed runs, and threads beyond the helpers.

    ``known`` are names of threads that are not theirs.
    """
    until = real_time() + within
    while True:
        gc.collect()
        left = [f"run of {run.call.model}" for run in registry.live()]
        left += [
            f"thread {thread.name}"
            for thread in threading.enumerate()
            if thread is not threading.main_thread()
            and thread.name not in HELPERS
            and thread.name not in known
            and not _of_the_runtime(thread)
        ]
        if not left or real_time() > until:
            return left
        time.sleep(0.01)


def _of_the_runtime(thread: threading.Thread) -> bool:
    return thread is threading.current_thread() or thread.name.startswith(
        ("asyncio_", "uvloop_", "stallwatch-fault-gateway", "Trio")
    )


def played(
    said: dict[str, Said],
    captured: Captured,
    times: int = 1,
    known: Collection[str] = (),
    within: float = 3.0,
) -> dict[str, Any]:
    """Everything there is to say of stories that were played ``times`` times; waits for the ends that come later."""
    until = real_time() + within
    while sum(seen(captured).values()) < times * len(said) and real_time() < until:
        gc.collect()
        time.sleep(0.01)
    return {"said": said, "spans": seen(captured), "left": left_over(known)}


def check(
    told: dict[str, Any],
    ledger: Ledger | None = None,
    *,
    own: str = "cancelled",
    times: int = 1,
    late: float = LATE,
) -> None:
    """Everything is as the stories say. ``own`` is the outcome of the runtime's own way to leave a stream."""
    for name, said in told["said"].items():
        _check_one(name, said, late)
    expected = {
        f"{name}: {own if STORIES[name].ends == 'own' else STORIES[name].outcome}": times
        for name in told["said"]
    }
    assert told["spans"] == expected, told["spans"]
    assert told["left"] == [], told["left"]
    if ledger is not None:
        for name in told["said"]:
            for request in ledger.for_model(STORIES[name].model):
                assert request.completed_at is not None or request.closed_how in ("fin", "rst"), (
                    name,
                    request,
                )


def _check_one(name: str, said: Said, late: float) -> None:
    story = STORIES[name]
    assert said["chunks"] == story.chunks, (name, said)
    if story.ends != "own":
        assert said["error"] == story.error, (name, said)
    assert (said["phase"], said["wire"]) == (story.phase, story.wire), (name, said)
    if story.phase is not None:
        assert said["code"] == "ETIMEDOUT", (name, said)
    if story.limit is not None:
        waited = said["seconds"] if story.ends == "own" else said["waited"]
        assert story.limit - EARLY <= waited <= story.limit + late, (name, said)


def client_options(base_url: str) -> dict[str, Any]:
    """What a client of a program in another process is made with."""
    return {"base_url": base_url, "api_key": "sk-test", "max_retries": 0, "timeout": 30.0}


def sync_traffic(
    base_url: str,
    *,
    leave: Callable[[Any], Callable[[str], Said]] | None = None,
    names: Iterable[str] = STORIES,
) -> dict[str, Any]:
    """Play synchronous stories with one client, instrumented for the time, and say all there is to say.

    ``leave`` is given the client, and returns what plays a story that the runtime's own means end.
    """
    known = _thread_names()
    names = [name for name in names if leave is not None or STORIES[name].ends != "own"]
    with instrumented(**LIMITS) as captured:
        with openai.OpenAI(**client_options(base_url)) as client:
            said = play_at_once(Stage(SYNC), client, names, None if leave is None else leave(client))
        return played(said, captured, known=known)


async def async_traffic(base_url: str, names: Iterable[str] = STORIES) -> dict[str, Any]:
    """Play asynchronous stories on the asyncio loop that runs here, and say all there is to say."""
    known = _thread_names()
    said: dict[str, Said] = {}

    async def play(client: Any, name: str) -> None:
        if STORIES[name].ends != "own":
            said[name] = await tell(Stage(ASYNC), client, name)
            return
        began = real_time()
        task = asyncio.create_task(tell(Stage(ASYNC), client, name))
        await asyncio.sleep(CANCEL_AFTER)
        task.cancel()
        await asyncio.wait([task])
        said[name] = left(began, cancelled=task.cancelled())

    with instrumented(**LIMITS) as captured:
        async with openai.AsyncOpenAI(**client_options(base_url)) as client:
            await asyncio.gather(*(play(client, name) for name in names))
            until = real_time() + 5
            while len(captured.spans) < len(said) and real_time() < until:
                gc.collect()
                await asyncio.sleep(0.05)
        return played(said, captured, known=known)


def _thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def left(began: float, *, cancelled: bool) -> Said:
    """What is said of a story that the runtime's own means have ended, at ``began`` plus ``CANCEL_AFTER``."""
    return {
        "chunks": STORIES["left"].chunks if cancelled else -1,
        "phase": None,
        "wire": None,
        "seconds": real_time() - began,
    }
