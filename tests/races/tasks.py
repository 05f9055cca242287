"""One governed stream and those who may end it, in the tasks of one event loop, each at a chosen turn of it.

Tasks change over where they await, and the loop calls what is due in the order in which it became so. So a meeting is
told in full by the turns at which each comes, counted from when the reader waits, and by whether it comes ahead of what
that turn has to do already, or behind it.
"""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import openai
from benchmarks.feed import MESSAGES

import stallwatch
from races.lines import ANSWER_ENDS, FIRST, HEAD, core, http
from races.world import IDLE, Told
from stallwatch.runtime import registry
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.timers import watch_of
from stallwatch.testing import FakeClock
from support.telemetry import Captured

__all__ = ["TASK_ENDS", "TURNS", "Coming", "TaskWorld"]

TURNS = 6
"""Turns after which all that an end sets going has been done, so that coming later is meeting nobody."""
_PATIENCE = 400
"""Turns after which a reader is given up."""

TASK_ENDS = ("user", "cancel", "deadline", "end", "lost", "close")
"""What may come while a task reads; ``user`` is a cancel of the task itself."""


@dataclass(frozen=True, slots=True)
class Coming:
    """Who comes, at which turn, and whether behind what that turn has to do."""

    name: str
    turn: int
    behind: bool = False


class AsyncLine(core.AsyncNetworkStream):  # type: ignore[misc]
    """One connection: what has come, and who waits for more."""

    def __init__(self) -> None:
        self.come = bytearray(HEAD + FIRST)
        self.broken = False
        self.closes = 0
        self._waiting: asyncio.Future[None] | None = None

    def bring(self, data: bytes = b"", *, broken: bool = False) -> None:
        """Something comes from the network."""
        self.come += data
        self.broken = self.broken or broken
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read as the library's own does."""
        while not self.come:
            if self.broken or self.closes:
                raise core.ReadError("the connection is gone")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        data, self.come = bytes(self.come[:max_bytes]), self.come[max_bytes:]
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Nobody looks at requests here."""

    async def aclose(self) -> None:
        """Close, and count; one that is closed already is not closed again."""
        self.closes += not self.closes
        self.bring()
        await asyncio.sleep(0)

    def get_extra_info(self, info: str) -> Any:
        """Tell what the library asks for."""
        return bool(self.come or self.closes) if info == "is_readable" else None


class _Backend(core.AsyncNetworkBackend):  # type: ignore[misc]
    def __init__(self) -> None:
        self.lines: list[AsyncLine] = []

    async def connect_tcp(self, *_: Any, **__: Any) -> AsyncLine:
        self.lines.append(AsyncLine())
        return self.lines[-1]


@functools.cache
def _transport() -> Any:
    """Made once, for its TLS is costly; each world gives it a pool of its own."""
    return http.AsyncHTTPTransport()


class TaskWorld:
    """One stream, opened and read once."""

    def __init__(self, captured: Captured, clock: FakeClock) -> None:
        self.captured, self.clock = captured, clock
        self.told = Told()
        self.jobs: list[Callable[[], object]] = []
        self.scope = stallwatch.Run(name="race")
        self.backend = _Backend()
        self.held: list[Any] = []
        self.user_came_first = False
        """Whether the task was cancelled while nobody had ended its stream."""

    @property
    def line(self) -> AsyncLine:
        """The stream's connection."""
        return self.backend.lines[0]

    def insist(self, wake: Callable[[], bool]) -> None:
        """As the waker does, again and again."""
        if wake():
            self.jobs.append(lambda: self.insist(wake))

    async def play(self, coming: list[Coming], *, reads: bool) -> None:
        """Open the stream, have them come, and wait for the end."""
        transport = _transport()
        transport._pool = core.AsyncConnectionPool(network_backend=self.backend)
        client = openai.AsyncOpenAI(
            base_url="http://127.0.0.1:1/v1",
            api_key="none",
            max_retries=0,
            http_client=http.AsyncClient(transport=transport),
        )
        async with self.scope:
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        await anext(stream)
        (self.run,) = registry.live()
        assert isinstance(self.run, InFlight)
        self.loop = asyncio.get_running_loop()
        self.response = stream.response
        self.held.append(stream)
        del stream
        self.reader = self.loop.create_task(self._read()) if reads else None
        await self._turns(coming)
        for _ in range(_PATIENCE):
            if self._all_done():
                break
            await asyncio.sleep(0)
        assert self._all_done(), f"after {_PATIENCE} turns somebody still waits"
        self.response = None
        await client.close()

    def _all_done(self) -> bool:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return not others and not self.jobs and bool(self.told.outcomes)

    async def _turns(self, coming: list[Coming]) -> None:
        # The reader comes to wait.
        for _ in range(3):
            await asyncio.sleep(0)
        for turn in range(TURNS + 3):
            for one in coming:
                if one.turn == turn:
                    come = getattr(self, f"_{one.name}")
                    if one.behind:
                        self.loop.call_soon(come)
                    else:
                        come()
            await asyncio.sleep(0)
            while self.jobs:
                self.jobs.pop(0)()

    async def _read(self) -> None:
        stream = self.held.pop()
        try:
            async for _ in stream:
                self.told.chunks += 1
        except BaseException as error:
            self.told.error = error.with_traceback(None)
            error.__cause__ = error.__context__ = None
            if not isinstance(error, Exception):
                raise

    # Who comes

    def _user(self) -> None:
        assert self.reader is not None
        self.user_came_first = self.reader.cancel() and not self.told.outcomes

    def _cancel(self) -> None:
        self.scope.cancel("user")

    def _deadline(self) -> None:
        """The time of the deadline comes; the watch looks a second time, and more time passes."""
        self.clock.advance(IDLE)
        watch_of(self.loop).look()
        self.loop.call_soon(self._deadline_again)

    def _deadline_again(self) -> None:
        self.clock.advance(1)
        watch_of(self.loop).look()

    def _end(self) -> None:
        self.line.bring(ANSWER_ENDS)

    def _lost(self) -> None:
        self.line.bring(broken=True)

    def _close(self) -> None:
        self.loop.create_task(self._close_response())

    async def _close_response(self) -> None:
        if self.response is not None:
            await self.response.aclose()

    def _drop(self) -> None:
        self.held.clear()
        self.response = None
        gc.collect()
