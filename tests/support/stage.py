"""A story written once and played by both drivers.

A story is a coroutine function that speaks to the SDK only through a `Stage`. Played asynchronously it runs in an event
loop. Played synchronously nothing in it ever suspends, so one ``send`` runs it to its end, in the calling thread and
with no loop in sight.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import openai

from stallwatch.testing import FaultGateway
from support import leaks
from support.drivers import MESSAGES, Driver

__all__ = ["Stage", "play"]

_T = TypeVar("_T")

_OPTIONS: dict[str, Any] = {"api_key": "sk-test", "max_retries": 0, "timeout": 60.0}


class Stage:
    """The SDK in one of its two kinds."""

    def __init__(self, driver: Driver) -> None:
        self.is_async = driver.is_async

    async def of(self, value: Any) -> Any:
        """Return the value, or what awaiting it gives."""
        return await value if inspect.isawaitable(value) else value

    def over(self, stream: Any) -> Any:
        """Iterate a stream of either kind; nothing is closed at the end."""
        return aiter(stream) if self.is_async else _Steps(iter(stream))

    async def step(self, stream: Any) -> Any:
        """Return the next item; raises StopAsyncIteration at the end."""
        return await anext(self.over(stream))

    async def all(self, stream: Any) -> list[Any]:
        """Return all items."""
        return [item async for item in self.over(stream)]

    async def take(self, stream: Any, count: int) -> list[Any]:
        """Return the next items."""
        return [await self.step(stream) for _ in range(count)]

    @asynccontextmanager
    async def inside(self, manager: Any) -> AsyncIterator[Any]:
        """Enter a context manager of either kind."""
        if self.is_async:
            async with manager as value:
                yield value
        else:
            with manager as value:
                yield value

    async def sleep(self, seconds: float) -> None:
        """Pause the reader."""
        if self.is_async:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)

    async def close(self, stream: Any) -> None:
        """Close a stream or response by the name the SDK gives it."""
        if hasattr(stream, "aclose") and self.is_async:
            await stream.aclose()
        else:
            await self.of(stream.close())

    async def closed(self, gateway: FaultGateway, timeout: float, request: int = 0) -> None:
        """Wait until the gateway has seen a request's connection go away by the client's doing."""

        def gone(ledger: Any) -> bool:
            return ledger.requests[request].closed_how in ("fin", "rst")

        if self.is_async:
            await gateway.wait_for_async(gone, timeout)
        else:
            gateway.wait_for(gone, timeout)

    def client(self, base_url: str, **options: Any) -> Any:
        """Make a client without retries and with a long timeout of its own."""
        kind = openai.AsyncOpenAI if self.is_async else openai.OpenAI
        return kind(base_url=base_url, **{**_OPTIONS, **options})

    def azure(self, gateway: FaultGateway, **options: Any) -> Any:
        """Make an Azure client."""
        kind = openai.AsyncAzureOpenAI if self.is_async else openai.AzureOpenAI
        return kind(azure_endpoint=gateway.origin, api_version="2024-10-21", **{**_OPTIONS, **options})

    async def chat(self, client: Any, model: str, **request: Any) -> Any:
        """Open a chat stream."""
        return await self.of(
            client.chat.completions.create(
                **{"model": model, "messages": MESSAGES, "stream": True, **request}
            )
        )


class _Steps:
    """A plain iterator, spoken to asynchronously."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __aiter__(self) -> _Steps:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self._inner)
        except StopIteration:
            raise StopAsyncIteration from None


def play(driver: Driver, story: Callable[[Stage], Coroutine[Any, Any, _T]]) -> _T:
    """Play a story and return what it returns."""
    performance = story(Stage(driver))
    if driver.is_async:
        return leaks.run(performance)
    try:
        performance.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    performance.close()
    raise AssertionError("a synchronous story has suspended")
