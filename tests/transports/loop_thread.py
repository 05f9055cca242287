"""A server of a test in a thread and an event loop of its own, so that tests of any kind can use it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Self

__all__ = ["LoopThread"]


class LoopThread:
    """Runs what ``serve`` starts for as long as the ``with`` block lasts."""

    def __init__(self) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._over: asyncio.Event | None = None
        self._failures: list[Any] = []
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    async def serve(self) -> asyncio.AbstractServer:
        """Begin to listen."""
        raise NotImplementedError

    def call(self, job: Callable[[], Any]) -> None:
        """Have something done in the server's thread."""
        self._loop.call_soon_threadsafe(job)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(5), "the server's thread did not start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._over is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(5)
        assert not self._thread.is_alive(), "the server's thread did not end"
        assert not self._failures, self._failures

    def _run(self) -> None:
        self._loop.set_exception_handler(lambda _, context: self._note(context))
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()

    def _note(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), (OSError, asyncio.CancelledError)):
            self._failures.append(context)

    async def _main(self) -> None:
        self._over = asyncio.Event()
        server = await self.serve()
        sockets = getattr(server, "sockets", ())
        if sockets and isinstance(sockets[0].getsockname(), tuple):
            self.port = sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for _ in range(3):
            # Transports free their sockets in the next rounds of the loop.
            await asyncio.sleep(0)
