"""A framework's way of asking a model, brought to one shape: asked a question, it gives pieces of text or an error.

Each surface is written as a user of the framework would write it; what differs between frameworks is data here, so that
every claim is one test over all of them.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MODEL", "OURS", "OUR_TOTAL", "QUESTION", "Ask", "Caught", "Surface", "Told", "chain", "tell"]

MODEL = "gpt-4o"
"""Some frameworks accept only models they know; the gateway is told what this one does."""

QUESTION = "Tell me a story."


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What is asked, and where; ``retries`` goes to the framework's own setting, None leaves its default."""

    base_url: str
    retries: int | None = 0
    extra: dict[str, Any] = field(default_factory=dict)

    def given(self, name: str) -> dict[str, Any]:
        """The framework's setting for retries as a keyword, if it is to be set."""
        return {} if self.retries is None else {name: self.retries}


@dataclass(frozen=True, kw_only=True)
class Caught:
    """What a user can write after ``except`` when a call stalls; ``name`` is the class that comes out."""

    name: str
    openai_timeout: bool
    builtin_timeout: bool


OURS = Caught(name="StreamInactivityTimeoutError", openai_timeout=True, builtin_timeout=True)
OUR_TOTAL = Caught(name="TotalTimeoutError", openai_timeout=True, builtin_timeout=True)


@dataclass(frozen=True, kw_only=True)
class Surface:
    """One way to ask; ``play`` gives pieces of text, an answer that is not streamed as one piece.

    The numbers are those of requests that reach the server with the framework's defaults: when it is refused each time,
    and when it never says a word.
    """

    name: str
    play: Callable[[Ask], Iterator[str] | AsyncIterator[str]]
    streams: bool = True
    caught: Caught = OURS
    refused: int = 3
    silent: int = 3
    spans: int = 1
    """How many calls of the SDK those are."""
    slow: bool = False
    """Whether it waits for seconds between its tries, whatever the server says."""
    tells_error_frames: bool = True
    """Whether an error that the server sends in place of an answer comes out as an error."""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def is_async(self) -> bool:
        """Whether it is played in an event loop."""
        return inspect.isasyncgenfunction(self.play)


@dataclass
class Told:
    """What the user saw."""

    pieces: list[str] = field(default_factory=list)
    error: BaseException | None = None
    seconds: float = 0.0
    after_last: float = 0.0
    """From the last piece (or the question) to the end."""

    @property
    def text(self) -> str:
        """All of the answer."""
        return "".join(self.pieces)


def chain(error: BaseException | None) -> list[BaseException]:
    """The error and what it came from, as a traceback would show it."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def tell(
    surface: Surface,
    ask: Ask,
    *,
    stop_after: int | None = None,
    cancel_when: Callable[[], object] | None = None,
) -> Told:
    """Ask once. Leave the loop after ``stop_after`` pieces; cancel the asking task once ``cancel_when`` holds."""
    answer = surface.play(ask)
    if isinstance(answer, Iterator):
        assert cancel_when is None, "a thread cannot be cancelled"
        return _read(answer, stop_after)
    return asyncio.run(_run(answer, stop_after, cancel_when))


def _read(answer: Iterator[str], stop_after: int | None) -> Told:
    told, started = Told(), time.monotonic()
    last = started
    try:
        for piece in answer:
            last = time.monotonic()
            told.pieces.append(piece)
            if len(told.pieces) == stop_after:
                break
    except Exception as error:
        told.error = error
    told.seconds, told.after_last = time.monotonic() - started, time.monotonic() - last
    return told


async def _run(
    answer: AsyncIterator[str], stop_after: int | None, cancel_when: Callable[[], object] | None
) -> Told:
    told = Told()
    task = asyncio.create_task(_read_async(answer, stop_after, told))
    if cancel_when is not None:
        until = time.monotonic() + 5
        while not cancel_when():
            assert time.monotonic() < until, "it never came to the point where it was to be cancelled"
            await asyncio.sleep(0.005)
        task.cancel()
    await asyncio.wait([task])
    if task.cancelled():
        told.error = asyncio.CancelledError()
    elif task.exception() is not None:
        told.error = task.exception()
    return told


async def _read_async(answer: AsyncIterator[str], stop_after: int | None, told: Told) -> None:
    started = last = time.monotonic()
    try:
        async for piece in answer:
            last = time.monotonic()
            told.pieces.append(piece)
            if len(told.pieces) == stop_after:
                break
    finally:
        told.seconds, told.after_last = time.monotonic() - started, time.monotonic() - last
