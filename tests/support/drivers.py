"""One story, two drivers: the same call, read the same way, synchronously and asynchronously."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import openai

from support import leaks

__all__ = ["ASYNC", "DRIVERS", "SYNC", "Driver", "Told"]

MESSAGES: list[Any] = [{"role": "user", "content": "Tell me a story."}]


@dataclass
class Told:
    """What the caller saw."""

    chunks: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    seconds: float = 0.0
    """From the call to its end."""
    after_last: float = 0.0
    """From the last chunk (or the call) to the end."""

    @property
    def text(self) -> str:
        """The visible text of chat or Responses chunks."""
        parts = []
        for chunk in self.chunks:
            if getattr(chunk, "type", None) == "response.output_text.delta":
                parts.append(chunk.delta)
            for choice in getattr(chunk, "choices", None) or ():
                delta = getattr(choice, "delta", None)
                parts.append((choice.text if delta is None else delta.content) or "")
        return "".join(parts)


@dataclass(frozen=True)
class Driver:
    """How a story is played; ``kind`` is ``sync`` or ``async``."""

    kind: str

    @property
    def is_async(self) -> bool:
        """Whether this is the asynchronous driver."""
        return self.kind == "async"

    def client(self, base_url: str, **options: Any) -> Any:
        """Make a client without retries and with a long timeout of its own."""
        made = openai.AsyncOpenAI if self.is_async else openai.OpenAI
        return made(base_url=base_url, **{"api_key": "sk-test", "max_retries": 0, "timeout": 60.0, **options})

    def tell(
        self,
        base_url: str,
        model: str,
        *,
        api: str = "chat",
        pauses: Sequence[float] = (),
        stop_after: int | None = None,
        client: Callable[..., Any] | None = None,
        options: dict[str, Any] | None = None,
        **request: Any,
    ) -> Told:
        """Stream one answer and return what the caller saw; ``pauses`` are the reader's, after its first chunks."""
        make = self.client if client is None else client
        if self.is_async:
            return leaks.run(
                self._tell_async(make(base_url, **(options or {})), model, api, pauses, stop_after, request)
            )
        return self._tell_sync(make(base_url, **(options or {})), model, api, pauses, stop_after, request)

    def _tell_sync(
        self,
        client: Any,
        model: str,
        api: str,
        pauses: Sequence[float],
        stop_after: int | None,
        request: dict[str, Any],
    ) -> Told:
        told, started = Told(), time.monotonic()
        last = started
        try:
            with client, _create(client, model, api, request) as stream:
                for chunk in stream:
                    last = time.monotonic()
                    told.chunks.append(chunk)
                    if len(told.chunks) <= len(pauses):
                        time.sleep(pauses[len(told.chunks) - 1])
                        last = time.monotonic()
                    if len(told.chunks) == stop_after:
                        break
        except Exception as error:
            told.error = error
        told.seconds, told.after_last = time.monotonic() - started, time.monotonic() - last
        return told

    async def _tell_async(
        self,
        client: Any,
        model: str,
        api: str,
        pauses: Sequence[float],
        stop_after: int | None,
        request: dict[str, Any],
    ) -> Told:
        told, started = Told(), time.monotonic()
        last = started
        try:
            async with client, await _create(client, model, api, request) as stream:
                async for chunk in stream:
                    last = time.monotonic()
                    told.chunks.append(chunk)
                    if len(told.chunks) <= len(pauses):
                        await asyncio.sleep(pauses[len(told.chunks) - 1])
                        last = time.monotonic()
                    if len(told.chunks) == stop_after:
                        break
        except Exception as error:
            told.error = error
        told.seconds, told.after_last = time.monotonic() - started, time.monotonic() - last
        return told


def _create(client: Any, model: str, api: str, request: dict[str, Any]) -> Any:
    if api == "chat":
        return client.chat.completions.create(model=model, messages=MESSAGES, stream=True, **request)
    if api == "responses":
        return client.responses.create(model=model, input="Tell me a story.", stream=True, **request)
    return client.completions.create(model=model, prompt="Tell me a story.", stream=True, **request)


SYNC = Driver("sync")
ASYNC = Driver("async")
DRIVERS = (SYNC, ASYNC)
