"""Several calls at once through one client: in threads, or in the tasks of one loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from support.drivers import MESSAGES, Driver
from support.stage import Stage, play

__all__ = ["Call", "together"]


@dataclass
class Call:
    """One of them: what it asks for, and what it saw."""

    model: str
    stream: bool = True
    after: float = 0.0
    """Seconds after the first call at which it begins."""
    within: Callable[[], Any] | None = None
    """What makes a context manager for it, as a policy or a run."""
    then: Callable[[Any], Any] | None = None
    """Done once with its stream, when that has been opened, in another thread or task."""
    request: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    chunks: int = 0
    error: BaseException | None = None
    seconds: float = 0.0
    last_at: float = 0.0
    """The instant of its last chunk, or of its beginning."""
    last: float = 0.0
    """Seconds from its last chunk, or its beginning, to its end."""
    ended: float = 0.0
    """The instant of its end."""


def together(driver: Driver, make: Callable[[], Any], calls: Sequence[Call]) -> list[Call]:
    """Make all calls through the client that ``make`` makes, and return them."""

    async def story(stage: Stage) -> None:
        async with stage.inside(make()) as client:
            if driver.is_async:
                await asyncio.gather(*(_one(stage, client, call) for call in calls))
                return
            threads = [threading.Thread(target=_run, args=(stage, client, call)) for call in calls]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert not any(thread.is_alive() for thread in threads), "a call does not end"

    play(driver, story)
    return list(calls)


def _run(stage: Stage, client: Any, call: Call) -> None:
    story = _one(stage, client, call)
    try:
        story.send(None)
    except StopIteration:
        return
    raise AssertionError("a synchronous story has suspended")


async def _one(stage: Stage, client: Any, call: Call) -> None:
    await stage.sleep(call.after)
    started = call.last_at = time.monotonic()
    try:
        with nullcontext() if call.within is None else call.within():
            await _read(stage, client, call)
    except Exception as error:
        call.error = error
    call.ended = time.monotonic()
    call.seconds, call.last = call.ended - started, call.ended - call.last_at


async def _read(stage: Stage, client: Any, call: Call) -> None:
    options = {"model": call.model, "messages": MESSAGES, "stream": call.stream, **call.request}
    answer = await stage.of(client.chat.completions.create(**options))
    if not call.stream:
        call.text = answer.choices[0].message.content
        return
    if call.then is not None:
        _later(stage, call.then, answer)
    async with stage.inside(answer):
        async for chunk in stage.over(answer):
            call.last_at = time.monotonic()
            call.chunks += 1
            for choice in chunk.choices:
                call.text += choice.delta.content or ""


def _later(stage: Stage, job: Callable[[Any], Any], stream: Any) -> None:
    if not stage.is_async:
        threading.Thread(target=job, args=(stream,), daemon=True).start()
        return
    task = asyncio.get_running_loop().create_task(job(stream))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


_tasks: set[asyncio.Task[Any]] = set()
