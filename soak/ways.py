"""What callers do, synchronously in threads and asynchronously in tasks, and how it ended as they saw it.

A way returns whether the answer was whole, or the outcome that it brought about itself. What it raises is judged by
its class alone: nothing here asks stallwatch what it thinks has happened.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import openai

import stallwatch
from soak.cases import LIMITS, Case

__all__ = ["Ended", "ended", "play", "play_async"]

MESSAGES: Any = [{"role": "user", "content": "Tell me a story."}]
DROP_AFTER = LEAVE_AFTER = 3


class Ended:
    """How a call ended for its caller: ``outcome``, and for a stall the seconds it was told ``late``."""

    __slots__ = ("error", "late", "outcome")

    def __init__(self, outcome: str, error: str = "", late: float | None = None) -> None:
        self.outcome, self.error, self.late = outcome, error, late


class Progress:
    """What a caller knows while it reads."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.whole = False

    def saw(self, chunk: Any) -> None:
        """Take a chunk of chat or Responses."""
        self.last = time.monotonic()
        if any(choice.finish_reason for choice in getattr(chunk, "choices", None) or ()):
            self.whole = True
        self.whole = self.whole or getattr(chunk, "type", None) == "response.completed"

    def outcome(self) -> str:
        """What the caller of a stream that has come to its end takes it for."""
        return "completed" if self.whole else "truncated"


def ended(case: Case, error: BaseException, progress: Progress) -> Ended:
    """Judge what a call has raised."""
    name = type(error).__name__
    if isinstance(error, stallwatch.StreamTimeoutError):
        name = f"{name} in {error.phase} after {error.limit:g} s"
        since = progress.began if error.phase in ("total", "first_token") else progress.last
        # A total counts waits for the server. A busy machine serves a reader late although its chunk has come, and
        # that is not charged; so as long again is allowed.
        limit = {**LIMITS, **case.policy}[error.phase] * (2 if error.phase == "total" else 1)
        # With retries the limit is an attempt's, and the caller's clock knows nothing of attempts.
        return Ended("stalled", name, None if case.retries else time.monotonic() - since - limit)
    if isinstance(error, (stallwatch.RunCancelledError, asyncio.CancelledError)):
        return Ended("cancelled", name)
    return Ended("failed", name)


def _request(case: Case) -> dict[str, Any]:
    return {"model": case.name, "messages": MESSAGES, "stream": True}


# --- synchronous ---


def play(client: openai.OpenAI, case: Case) -> Ended:
    """Make one call in this thread."""
    progress = Progress()
    try:
        with stallwatch.policy(**case.policy):
            return Ended(_WAYS[case.way](client.with_options(max_retries=case.retries), case, progress))
    except Exception as error:
        return ended(case, error, progress)


def _chat(client: openai.OpenAI, case: Case, progress: Progress) -> str:
    with client.chat.completions.create(**_request(case)) as stream:
        for chunk in stream:
            progress.saw(chunk)
    return progress.outcome()


def _responses(client: openai.OpenAI, case: Case, progress: Progress) -> str:
    with client.responses.create(model=case.name, input="Tell me a story.", stream=True) as stream:
        for event in stream:
            progress.saw(event)
    return progress.outcome()


def _plain(client: openai.OpenAI, case: Case, _: Progress) -> str:
    client.chat.completions.create(model=case.name, messages=MESSAGES)
    return "completed"


def _embed(client: openai.OpenAI, case: Case, _: Progress) -> str:
    client.embeddings.create(model=case.name, input="a story")
    return "completed"


def _lines(client: openai.OpenAI, case: Case, progress: Progress) -> str:
    with client.chat.completions.with_streaming_response.create(**_request(case)) as response:
        for line in response.iter_lines():
            progress.whole = progress.whole or line == "data: [DONE]"
    return progress.outcome()


def _pause(client: openai.OpenAI, case: Case, progress: Progress) -> str:
    with client.chat.completions.create(**_request(case)) as stream:
        for number, chunk in enumerate(stream):
            progress.saw(chunk)
            if number == 2:
                time.sleep(case.after)
    return progress.outcome()


def _cancel(client: openai.OpenAI, case: Case, progress: Progress) -> str:
    with stallwatch.Run(name="soak") as run:
        timer = threading.Timer(case.after, run.cancel, ["enough"])
        timer.daemon = True
        timer.start()
        try:
            return _chat(client, case, progress)
        finally:
            timer.cancel()
            timer.join()


def _leave(client: openai.OpenAI, case: Case, progress: Progress) -> str:
    with client.chat.completions.create(**_request(case)) as stream:
        for number, chunk in enumerate(stream, 1):
            progress.saw(chunk)
            if number == LEAVE_AFTER:
                return "closed_early"
    return progress.outcome()


def _drop(client: openai.OpenAI, case: Case, progress: Progress) -> str:
    stream = client.chat.completions.create(**_request(case))
    for _ in range(DROP_AFTER):
        progress.saw(next(stream))
    return "abandoned"


# --- asynchronous ---


async def play_async(client: openai.AsyncOpenAI, case: Case) -> Ended:
    """Make one call in this task."""
    progress = Progress()
    try:
        with stallwatch.policy(**case.policy):
            way = _ASYNC_WAYS[case.way]
            return Ended(await way(client.with_options(max_retries=case.retries), case, progress))
    except Exception as error:
        return ended(case, error, progress)


async def _chat_async(client: openai.AsyncOpenAI, case: Case, progress: Progress) -> str:
    async with await client.chat.completions.create(**_request(case)) as stream:
        async for chunk in stream:
            progress.saw(chunk)
    return progress.outcome()


async def _responses_async(client: openai.AsyncOpenAI, case: Case, progress: Progress) -> str:
    async with await client.responses.create(
        model=case.name, input="Tell me a story.", stream=True
    ) as stream:
        async for event in stream:
            progress.saw(event)
    return progress.outcome()


async def _plain_async(client: openai.AsyncOpenAI, case: Case, _: Progress) -> str:
    await client.chat.completions.create(model=case.name, messages=MESSAGES)
    return "completed"


async def _embed_async(client: openai.AsyncOpenAI, case: Case, _: Progress) -> str:
    await client.embeddings.create(model=case.name, input="a story")
    return "completed"


async def _lines_async(client: openai.AsyncOpenAI, case: Case, progress: Progress) -> str:
    async with client.chat.completions.with_streaming_response.create(**_request(case)) as response:
        async for line in response.iter_lines():
            progress.whole = progress.whole or line == "data: [DONE]"
    return progress.outcome()


async def _pause_async(client: openai.AsyncOpenAI, case: Case, progress: Progress) -> str:
    async with await client.chat.completions.create(**_request(case)) as stream:
        number = 0
        async for chunk in stream:
            progress.saw(chunk)
            number += 1
            if number == 3:
                await asyncio.sleep(case.after)
    return progress.outcome()


async def _cancel_async(client: openai.AsyncOpenAI, case: Case, progress: Progress) -> str:
    """Cancel the run, or the task: both are the caller's, and every other call takes the other."""
    loop = asyncio.get_running_loop()
    if time.monotonic_ns() % 2:
        async with stallwatch.Run(name="soak") as run:
            timer = loop.call_later(case.after, run.cancel, "enough")
            try:
                return await _chat_async(client, case, progress)
            finally:
                timer.cancel()
    task = loop.create_task(_chat_async(client, case, progress))
    timer = loop.call_later(case.after, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        if task.cancelled():
            return "cancelled"
        raise
    finally:
        timer.cancel()


async def _leave_async(client: openai.AsyncOpenAI, case: Case, progress: Progress) -> str:
    async with await client.chat.completions.create(**_request(case)) as stream:
        number = 0
        async for chunk in stream:
            progress.saw(chunk)
            number += 1
            if number == LEAVE_AFTER:
                return "closed_early"
    return progress.outcome()


async def _drop_async(client: openai.AsyncOpenAI, case: Case, progress: Progress) -> str:
    stream = await client.chat.completions.create(**_request(case))
    for _ in range(DROP_AFTER):
        progress.saw(await anext(stream))
    return "abandoned"


_WAYS: dict[str, Callable[[openai.OpenAI, Case, Progress], str]] = {
    "chat": _chat,
    "responses": _responses,
    "plain": _plain,
    "embed": _embed,
    "lines": _lines,
    "pause": _pause,
    "cancel": _cancel,
    "leave": _leave,
    "drop": _drop,
}
_ASYNC_WAYS: dict[str, Callable[[openai.AsyncOpenAI, Case, Progress], Awaitable[str]]] = {
    "chat": _chat_async,
    "responses": _responses_async,
    "plain": _plain_async,
    "embed": _embed_async,
    "lines": _lines_async,
    "pause": _pause_async,
    "cancel": _cancel_async,
    "leave": _leave_async,
    "drop": _drop_async,
}
