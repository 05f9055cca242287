"""A server and clients without sockets: what an ASGI app is given, and what it does with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from stallwatch.asgi import StallwatchMiddleware
from stallwatch.run import Run, current_run
from support import leaks

__all__ = ["BODY", "DISCONNECT", "END", "PIECE", "START", "FakeServer", "here", "played", "scope", "turns"]

Message = dict[str, Any]

BODY: Message = {"type": "http.request", "body": b"", "more_body": False}
DISCONNECT: Message = {"type": "http.disconnect"}
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
PIECE: Message = {"type": "http.response.body", "body": b"x", "more_body": True}
END: Message = {"type": "http.response.body", "body": b""}


def scope(*headers: tuple[bytes, bytes], kind: str = "http", **more: Any) -> dict[str, Any]:
    """A request's scope."""
    return {
        "type": kind,
        "method": "POST",
        "path": "/users/4711",
        "query_string": b"q=secret",
        "headers": list(headers),
        **more,
    }


class FakeServer:
    """Gives messages as told, and counts how often it is asked."""

    def __init__(self, *messages: Any) -> None:
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self.asked = self.given = 0
        self.sent: list[Any] = []
        for message in messages:
            self.says(message)

    def says(self, message: Any) -> None:
        """Have the next message ready; an exception is raised in its place."""
        self._messages.put_nowait(message)

    async def receive(self) -> Any:
        """What the app's side reads from."""
        self.asked += 1
        message = await self._messages.get()
        self.given += 1
        if isinstance(message, BaseException):
            raise message
        return message

    async def send(self, message: Any) -> None:
        """What the app's side writes to."""
        self.sent.append(message)

    async def serve(self, app: Any, **options: Any) -> None:
        """Serve one request."""
        await StallwatchMiddleware(app, **options)(scope(), self.receive, self.send)


def here() -> Run:
    """The run that the app is in."""
    run = current_run()
    assert run is not None
    return run


async def turns() -> None:
    """Let every task do all it can without anything new."""
    for _ in range(20):
        await asyncio.sleep(0)


def played(story: Callable[[], Awaitable[Any]]) -> Any:
    """Play a story; the middleware's task must be gone at its very end, not a moment later."""

    async def whole() -> Any:
        result = await story()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return leaks.run(whole())
