"""Ends of a stream that come together by force: real sockets and clocks, many times, with the interpreter made to
change over between threads as often as it can.

Four seconds of each by default; ``RACES_SECONDS`` says otherwise.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import openai
import pytest
from benchmarks.feed import MESSAGES

import stallwatch
from races.lines import ANSWER_ENDS, FIRST, HEAD
from stallwatch.runtime import registry
from support import leaks
from support.telemetry import Captured, instrumented

SECONDS = float(os.environ.get("RACES_SECONDS", "4"))
IDLE = 0.02
ENDS = ("cancel", "deadline", "end", "lost", "close", "drop")
PAIRS = [*combinations(ENDS, 2), *combinations(("user", *ENDS), 1)]


class Server:
    """Answers each connection with headers and a first event, and keeps it for whoever is to act."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def accept(self) -> socket.socket:
        """Answer the next connection."""
        line, _ = self._listener.accept()
        line.settimeout(10)
        while b"stream" not in line.recv(65536):
            pass
        # No connection is used twice: each call has one of its own to be ended.
        line.sendall(HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + FIRST)
        return line

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@contextmanager
def restless() -> Iterator[None]:
    """Let the interpreter change over between threads all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def sent(line: socket.socket, data: bytes) -> None:
    try:
        line.sendall(data)
    except OSError:
        # The client has closed before.
        pass


def gone(line: socket.socket) -> bool:
    """Whether the client has closed the connection, which the server sees within its patience."""
    try:
        while line.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def _collect_what_is_left() -> None:
    """A collection does nothing while another is under way, in whichever thread; so it is asked for again."""
    if registry.live():
        gc.collect()


def judge(captured: Captured, errors: list[BaseException | None], names: tuple[str, ...]) -> str:
    """Fail if the call has ended in no way or in two, or not as its reader was told."""

    def over() -> bool:
        _collect_what_is_left()
        # A run is told of when it is listed no more.
        return bool(captured.spans) and not registry.live()

    leaks.wait_until(over, lambda: f"{names}: {registry.live()}, {captured.spans}", timeout=10)
    (span,) = captured.spans
    outcome = str((span.attributes or {})["stallwatch.outcome"])
    (error,) = errors
    if outcome == "stalled":
        assert isinstance(error, stallwatch.StreamInactivityTimeoutError), (names, error)
    elif outcome == "completed":
        assert error is None, (names, error)
    elif outcome in ("failed", "closed_early"):
        assert not isinstance(error, (stallwatch.StreamTimeoutError, stallwatch.RunCancelledError)), (
            names,
            error,
        )
    elif outcome == "cancelled":
        assert not isinstance(error, openai.APITimeoutError), (names, error)
    else:
        assert outcome == "abandoned"
        assert error is None
    return outcome


def _dropped(response: list[Any], held: list[Any], errors: list[BaseException | None]) -> None:
    response.clear()
    held.clear()
    # A stream and its generator hold each other.
    gc.collect()
    errors.append(None)


def in_threads(
    client: openai.OpenAI, server: Server, captured: Captured, names: tuple[str, ...], chance: random.Random
) -> str:
    """Play one meeting: a reader, and each of the others in a thread of its own."""
    captured.forget()
    run = stallwatch.Run()
    errors: list[BaseException | None] = []
    lines: list[socket.socket] = []
    accepting = threading.Thread(target=lambda: lines.append(server.accept()))
    accepting.start()
    with run:
        held = [client.chat.completions.create(model="m", messages=MESSAGES, stream=True)]
    accepting.join()
    (line,) = lines
    next(held[0])
    response = [held[0].response]

    def read() -> None:
        stream = held.pop()
        try:
            for _ in stream:
                pass
        except Exception as error:
            errors.append(error.with_traceback(None))
        else:
            errors.append(None)

    def drop() -> None:
        _dropped(response, held, errors)

    acts: dict[str, Callable[[], object]] = {
        "cancel": run.cancel,
        "end": lambda: sent(line, ANSWER_ENDS),
        "lost": line.close,
        "close": lambda: [each.close() for each in response],
    }
    acting = [acts[name] for name in names if name in acts]
    acting.append(drop if "drop" in names else read)
    around = IDLE if "deadline" in names else 0.002
    threads = [
        threading.Thread(
            target=_after, args=(0 if act in (read, drop) else chance.gauss(around, 0.0005), act)
        )
        for act in acting
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), names
    outcome = judge(captured, errors, names)
    assert "lost" in names or gone(line)
    line.close()
    return outcome


def _after(seconds: float, act: Callable[[], object]) -> None:
    # Not slept: what is wanted is a moment, to the microsecond.
    at = time.perf_counter() + seconds
    while time.perf_counter() < at:
        pass
    act()


async def in_tasks(
    client: openai.AsyncOpenAI,
    server: Server,
    captured: Captured,
    names: tuple[str, ...],
    chance: random.Random,
) -> str:
    """Play one meeting: a task that reads, and each of the others when its moment comes."""
    captured.forget()
    run = stallwatch.Run()
    errors: list[BaseException | None] = []
    loop = asyncio.get_running_loop()
    accepted = loop.run_in_executor(None, server.accept)
    async with run:
        held = [await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)]
    line = await accepted
    await anext(held[0])
    response = [held[0].response]

    async def read() -> None:
        stream = held.pop()
        try:
            async for _ in stream:
                pass
        except BaseException as error:
            errors.append(error.with_traceback(None))
        else:
            errors.append(None)

    def drop() -> None:
        _dropped(response, held, errors)

    reader = None if "drop" in names else loop.create_task(read())
    closing: list[asyncio.Task[Any]] = []
    acts: dict[str, Callable[[], object]] = {
        "user": reader.cancel if reader is not None else drop,
        "cancel": run.cancel,
        "end": lambda: sent(line, ANSWER_ENDS),
        "lost": line.close,
        "close": lambda: closing.extend(loop.create_task(each.aclose()) for each in response),
        "drop": drop,
    }
    around = IDLE if "deadline" in names else 0.002
    for name in names:
        if name in acts:
            loop.call_later(max(chance.gauss(around, 0.0005), 0), acts[name])
    await asyncio.sleep(around)
    deadline = loop.time() + 20
    while not errors or registry.live() or not all(task.done() for task in closing):
        assert loop.time() < deadline, (names, errors, registry.live())
        await asyncio.sleep(0.002)
        _collect_what_is_left()
    outcome = judge(captured, errors, names)
    assert "lost" in names or await loop.run_in_executor(None, gone, line)
    line.close()
    return outcome


@pytest.fixture(scope="module")
def captured() -> Iterator[Captured]:
    with instrumented(policy=stallwatch.Policy.of(idle=IDLE)) as capturing:
        # What is there already need not be looked at in each collection.
        gc.collect()
        gc.freeze()
        yield capturing
        gc.unfreeze()


def meetings(task: bool) -> Iterator[tuple[str, ...]]:
    """Give pairs by turns until the time is over."""
    until = time.monotonic() + SECONDS
    # Where nobody else ends it, the deadline does.
    pairs = [pair for pair in PAIRS if task or "user" not in pair]
    while time.monotonic() < until:
        yield from pairs


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_threads_that_meet_by_chance(server: Server, captured: Captured) -> None:
    chance, outcomes = random.Random(0), Counter[str]()
    options: dict[str, Any] = {"base_url": server.url, "api_key": "none", "max_retries": 0}
    with restless(), leaks.leaves_nothing(), openai.OpenAI(**options) as client:
        for names in meetings(task=False):
            outcomes[in_threads(client, server, captured, names, chance)] += 1
    print(dict(outcomes))
    assert len(outcomes) >= 5


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_tasks_that_meet_by_chance(server: Server, captured: Captured) -> None:
    async def play() -> Counter[str]:
        chance, outcomes = random.Random(0), Counter[str]()
        async with openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
            for names in meetings(task=True):
                outcomes[await in_tasks(client, server, captured, names, chance)] += 1
        return outcomes

    with restless(), leaks.leaves_nothing():
        outcomes = leaks.run(play())
    print(dict(outcomes))
    assert len(outcomes) >= 5
