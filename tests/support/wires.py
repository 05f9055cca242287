"""Clients without a network, synchronous and asynchronous: whatever answers a request is called with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import openai
from benchmarks.feed import http_library

from support.stage import Stage

__all__ = ["wired"]

_http = http_library()


def wired(stage: Stage, respond: Callable[[Any], Any], **options: Any) -> Any:
    """Return a client of the stage's kind whose requests ``respond`` answers."""

    class Transport(_http.BaseTransport):
        def handle_request(self, request: Any) -> Any:
            return respond(request)

    class AsyncTransport(_http.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any:
            # What a call has left to the loop is done in a turn of it.
            await asyncio.sleep(0)
            return respond(request)

    kind: Any = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
    transport = AsyncTransport() if stage.is_async else Transport()
    base_url = options.pop("base_url", "http://model.test/v1")
    return stage.client(base_url, http_client=kind(transport=transport), **options)
