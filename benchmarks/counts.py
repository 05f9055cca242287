"""Counts what our code does for a chunk, a stream and a call: the same on every machine, whatever else it is doing.

Counted are steps of Python's bytecode inside our package, calls into it, in it and out of it, timers and threads that
are started by anybody, and records made on instruments of the OpenTelemetry SDK. What those records cost is the SDK's;
how many there are is ours. Each count is taken at two lengths of streams, and what differs is a chunk's. The collector
of garbage is off, because finalisers that run at some other time would be counted with whatever runs then.

A count says nothing of how much time a step takes. It says that nothing was added, which a clock on a shared machine
cannot.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from benchmarks.feed import MESSAGES, MODEL, UNEVENTFUL, Feed

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG, SHORT = 72, 8
COUNTED = ("steps", "calls", "records", "starts")
RECORDS = {"record", "add"}
STARTS = {"call_at", "start"}
"""A timer of an event loop, and a thread: what a transport without sockets needs none of."""

Counted = dict[str, float]


class Tally:
    """What was counted so far."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.steps = self.calls = self.records = self.starts = 0
        self.by_function: Counter[str] = Counter()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what happens in this thread inside."""
        gc.collect()
        gc.disable()
        sys.setprofile(self._called)
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(None)
            sys.setprofile(None)
            gc.enable()

    def _ours(self, frame: FrameType | None) -> bool:
        return frame is not None and frame.f_code.co_filename.startswith(self._package)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "c_call":
            self.calls += self._ours(frame)
        elif event == "call":
            self.calls += self._ours(frame) or self._ours(frame.f_back)
            code = frame.f_code
            if code.co_name in RECORDS and code.co_filename.endswith("metrics/_internal/instrument.py"):
                self.records += 1
            elif code.co_name in STARTS and code.co_filename.endswith(
                ("asyncio/base_events.py", "threading.py")
            ):
                self.starts += 1

    def _entered(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self._ours(frame):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            self.steps += 1
            code = frame.f_code
            self.by_function[f"{code.co_filename.removeprefix(self._package)[1:]} {code.co_qualname}"] += 1
        return self._stepped


def counts() -> Counted:
    """Return steps, calls and records for a chunk, a stream without its chunks, and a call, sync and async."""
    import stallwatch

    package = str(Path(stallwatch.__file__).parent)
    found: Counted = {}
    for kind, once in KINDS.items():
        with _a_stream_open():
            long, short, call = (once(package, tokens) for tokens in (LONG, SHORT, None))
        for what in COUNTED:
            chunk = (getattr(long, what) - getattr(short, what)) / (LONG - SHORT)
            found[f"{kind} chunk {what}"] = round(chunk, 2)
            found[f"{kind} stream {what}"] = round(getattr(short, what) - chunk * (SHORT + UNEVENTFUL), 1)
            found[f"{kind} call {what}"] = getattr(call, what)
    return found


@contextmanager
def _a_stream_open() -> Iterator[None]:
    """Keep the helper thread at work, which ends itself after two idle seconds, whatever is being counted just then."""
    feed = Feed()
    feed.tokens = SHORT
    with feed.client() as client:
        stream: Any = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        next(iter(stream))
        yield
        stream.close()


def _sync(package: str, tokens: int | None) -> Tally:
    tally, feed = Tally(package), Feed()
    feed.tokens = tokens or 0
    with feed.client() as client:

        def once() -> None:
            answer: Any = client.chat.completions.create(
                model=MODEL, messages=MESSAGES, stream=tokens is not None
            )
            if tokens is not None:
                for _ in answer:
                    pass

        _twice(once)
        with tally.counting():
            once()
    return tally


def _async(package: str, tokens: int | None) -> Tally:
    tally, feed = Tally(package), Feed()
    feed.tokens, feed.suspending = tokens or 0, True

    async def run() -> None:
        async with feed.async_client() as client:

            async def once() -> None:
                answer: Any = await client.chat.completions.create(
                    model=MODEL, messages=MESSAGES, stream=tokens is not None
                )
                if tokens is not None:
                    async for _ in answer:
                        pass

            await once()
            await once()
            with tally.counting():
                await once()

    asyncio.run(run())
    return tally


KINDS: dict[str, Callable[[str, int | None], Tally]] = {"sync": _sync, "async": _async}


def _twice(once: Callable[[], None]) -> None:
    """What is made once is made before counting begins."""
    once()
    once()
