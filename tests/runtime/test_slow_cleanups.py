"""A user's cancel wins even if the cleanup that it runs into takes until long after our deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import openai
import pytest

from support.connects import http
from support.places import MESSAGES, Place, run_on
from support.telemetry import instrumented

LIMIT = 0.15
CANCEL = 0.05
CLEANUP = 0.2
"""Begun at ``CANCEL``, it lasts beyond ``LIMIT`` and beyond what the watch waits for the transport."""


class CleansUp(http.AsyncByteStream):  # type: ignore[misc, name-defined]
    """A body whose reading is cleaned up after for a while."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                yield piece
        finally:
            await asyncio.sleep(CLEANUP)

    async def aclose(self) -> None:
        await self._inner.aclose()


class CleansUpBodies(http.AsyncHTTPTransport):  # type: ignore[misc, name-defined]
    async def handle_async_request(self, request: Any) -> Any:
        response = await super().handle_async_request(request)
        response.stream = CleansUp(response.stream)
        return response


async def _hook(_: object) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(CLEANUP)


HTTP_CLIENTS: dict[str, Callable[[], Any]] = {
    "before the headers": lambda: http.AsyncClient(
        transport=http.AsyncHTTPTransport(verify=False), event_hooks={"request": [_hook]}
    ),
    "in the body": lambda: http.AsyncClient(transport=CleansUpBodies(verify=False)),
}


def _no_cancel_is_left() -> None:
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def _by_cancel(step: Coroutine[Any, Any, Any]) -> None:
    task = asyncio.create_task(step)
    await asyncio.sleep(CANCEL)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task.exception()


async def _by_timeout(step: Coroutine[Any, Any, Any]) -> None:
    scope = asyncio.timeout(CANCEL)
    with pytest.raises(TimeoutError) as caught:
        async with scope:
            await step
    assert type(caught.value) is TimeoutError
    assert scope.expired()
    _no_cancel_is_left()


async def _by_scope(step: Coroutine[Any, Any, Any]) -> None:
    with anyio.move_on_after(CANCEL) as scope:
        await step
    assert scope.cancelled_caught
    _no_cancel_is_left()


async def _by_group(step: Coroutine[Any, Any, Any]) -> None:
    async def fail() -> None:
        await asyncio.sleep(CANCEL)
        raise LookupError("sibling")

    with pytest.raises(BaseExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(step)
            group.create_task(fail())
    assert [type(error) for error in caught.value.exceptions] == [LookupError]


@pytest.mark.parametrize("cancelled", [_by_cancel, _by_timeout, _by_scope, _by_group])
@pytest.mark.parametrize("where", HTTP_CLIENTS)
def test_the_users_cancel_wins(plain: Place, loop: str, where: str, cancelled: Any) -> None:
    async def call(client: openai.AsyncOpenAI) -> None:
        # The role alone is no progress: the deadline counts from the call in either case.
        stream = await client.chat.completions.create(
            model="stall-after:tokens=0", messages=MESSAGES, stream=True
        )
        async for _ in stream:
            pass

    async def story() -> None:
        async with openai.AsyncOpenAI(
            base_url=plain.base_url, api_key="sk-test", max_retries=0, http_client=HTTP_CLIENTS[where]()
        ) as client:
            await cancelled(call(client))

    with instrumented(first_token=LIMIT, thinking=LIMIT, idle=LIMIT) as captured:
        run_on(loop, story())
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"
    assert captured.total("stallwatch.stalls") == 0
