"""What a web server tells of a request, read in the app's stead so that a disconnect is noticed; see ``asgi``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["Inbox", "Message", "Receive"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class Inbox:
    """What the server has to say: read by one task, handed over as the app asks."""

    def __init__(self, receive: Receive, on_disconnect: Callable[[], None]) -> None:
        self._receive = receive
        self._on_disconnect = on_disconnect
        self._kept: deque[Message] = deque()
        self._disconnect: Message | None = None
        self._error: BaseException | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def open(self) -> None:
        """Begin to read, if nobody does and there is more to come."""
        if self._task is not None or self._stopped or self._disconnect is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._task = loop.create_task(self._read(), name="stallwatch-asgi")

    async def receive(self) -> Message:
        """Give the app the next message, and the disconnect as often as it asks."""
        while not self._kept:
            self.open()
            if self._disconnect is not None:
                return dict(self._disconnect)
            if self._error is not None:
                error, self._error, self._task = self._error, None, None
                raise error
            if self._task is None:
                return self._noted(await self._receive())
            self._news.clear()
            await self._news.wait()
        message = self._kept.popleft()
        self._room.set()
        return message

    async def _read(self) -> None:
        try:
            while self._disconnect is None:
                message = self._noted(await self._receive())
                if self._disconnect is None:
                    self._kept.append(message)
                    self._news.set()
                while not self._may_read_on():
                    self._room.clear()
                    await self._room.wait()
        except (Exception, asyncio.CancelledError) as error:
            # The server's own, a cancel included, belongs to whoever reads next.
            if self._stopped:
                raise
            self._error = error
        finally:
            self._news.set()

    def _noted(self, message: Message) -> Message:
        if message["type"] == "http.disconnect" and self._disconnect is None:
            self._disconnect = message
            self._on_disconnect()
        return message

    def _may_read_on(self) -> bool:
        if len(self._kept) != 1:
            return not self._kept
        (message,) = self._kept
        return message["type"] == "http.request" and not message.get("more_body", False)

    async def stop(self) -> None:
        """End the task and wait for its end."""
        task = self._task
        self.drop()
        if task is not None and not task.done():
            await asyncio.wait({task})

    def drop(self) -> None:
        """End the task; whoever still reads, speaks to the server."""
        task, self._task = self._task, None
        self._stopped, self._error = True, None
        if task is not None and not task.done() and not task.get_loop().is_closed():
            self._news.set()
            task.cancel()
