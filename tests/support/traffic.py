"""The traffic every runtime is tried with, and what must be true of it afterwards.

Each story is one call. All of a kind are played at the same time against the gateway; what the caller saw of each, the
outcomes on the ended spans and what was left over are plain data, so that a program in another process can print it.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import stallwatch
from stallwatch.runtime import registry
from stallwatch.testing.ledger import Ledger
from support.bounds import EARLY, LATE
from support.leaks import HELPERS
from support.places import MESSAGES
from support.stage import Stage
from support.telemetry import Captured

__all__ = [
    "CANCEL_AFTER",
    "LIMITS",
    "STORIES",
    "Said",
    "Story",
    "check",
    "left_over",
    "play_at_once",
    "play_now",
    "played",
    "seen",
    "tell",
]

_T = TypeVar("_T")

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
    began = last = time.monotonic()
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
                last = time.monotonic()
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
        "waited": time.monotonic() - last,
        "seconds": time.monotonic() - began,
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


def left_over(within: float = 2.0) -> list[str]:
    """What is still there of all the calls, once it had time to go: listed runs, and threads beyond the helpers."""
    until = time.monotonic() + within
    while True:
        gc.collect()
        left = [f"run of {run.call.model}" for run in registry.live()]
        left += [
            f"thread {thread.name}"
            for thread in threading.enumerate()
            if thread is not threading.main_thread()
            and thread.name not in HELPERS
            and not _of_the_runtime(thread)
        ]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.01)


def _of_the_runtime(thread: threading.Thread) -> bool:
    return thread is threading.current_thread() or thread.name.startswith(
        ("asyncio_", "stallwatch-fault-gateway", "Trio")
    )


def played(said: dict[str, Said], captured: Captured, times: int = 1, within: float = 3.0) -> dict[str, Any]:
    """Everything there is to say of stories that were played ``times`` times; waits for the ends that come later."""
    until = time.monotonic() + within
    while sum(seen(captured).values()) < times * len(said) and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    return {"said": said, "spans": seen(captured), "left": left_over()}


def check(
    told: dict[str, Any], ledger: Ledger | None = None, *, own: str = "cancelled", times: int = 1
) -> None:
    """Everything is as the stories say. ``own`` is the outcome of the runtime's own way to leave a stream."""
    for name, said in told["said"].items():
        _check_one(name, said)
    expected = {
        f"{name}: {own if STORIES[name].ends == 'own' else STORIES[name].outcome}": times
        for name in told["said"]
    }
    assert told["spans"] == expected
    assert told["left"] == []
    if ledger is not None:
        for name in told["said"]:
            for request in ledger.for_model(STORIES[name].model):
                assert request.completed_at is not None or request.closed_how in ("fin", "rst"), (
                    name,
                    request,
                )


def _check_one(name: str, said: Said) -> None:
    story = STORIES[name]
    assert said["chunks"] == story.chunks, (name, said)
    if story.ends != "own":
        assert said["error"] == story.error, (name, said)
    assert (said["phase"], said["wire"]) == (story.phase, story.wire), (name, said)
    if story.phase is not None:
        assert said["code"] == "ETIMEDOUT", (name, said)
    if story.limit is not None:
        waited = said["seconds"] if story.ends == "own" else said["waited"]
        assert story.limit - EARLY <= waited <= story.limit + LATE, (name, said)
