"""A server that is killed under its streams, and comes back: the bare SDK's errors, and calls that go on afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.children import Child, spawn
from support.drivers import DRIVERS, Driver
from support.leaks import wait_until
from support.servers import free_port
from support.stage import Stage
from support.telemetry import instrumented
from support.traffic import play_now

GATEWAY = """
import sys
from stallwatch.testing import FaultGateway
with FaultGateway(int(sys.argv[1])) as gateway:
    print('"serving"', flush=True)
    for line in sys.stdin:
        gateway.wait_for(lambda ledger: len(ledger.requests) >= int(line), 10)
        print('"they are here"', flush=True)
"""

PATIENT: dict[str, Any] = {"connect": 10, "first_token": 20, "thinking": 20, "idle": 20, "total": 60}

MODELS = {
    "before the headers": "never-responds",
    "before the first token": "silent",
    "in the answer": "stall-after:tokens=3,gap=0",
}


class _Server:
    """A gateway in a process of its own, that can be killed and started on the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self._child: Child | None = None

    def start(self) -> None:
        self._child = spawn(GATEWAY, str(self.port), asked=True)
        assert self._child.line() == "serving"

    def has(self, requests: int) -> None:
        assert self._child is not None
        assert self._child.process.stdin is not None
        self._child.process.stdin.write(f"{requests}\n")
        self._child.process.stdin.flush()
        assert self._child.line() == "they are here"

    def kill(self) -> None:
        if self._child is not None:
            self._child.process.kill()
            self._child.process.communicate()
            self._child = None


@pytest.fixture(scope="module")
def server() -> Iterator[_Server]:
    started = _Server()
    try:
        yield started
    finally:
        started.kill()


def _shape(error: BaseException | None) -> list[tuple[type, str]]:
    shape = []
    while error is not None:
        shape.append((type(error), str(error)))
        error = error.__cause__
    return shape


async def _told(stage: Stage, client: Any, model: str) -> tuple[int, list[tuple[type, str]]]:
    """How many chunks came, and how it ended."""
    chunks = 0
    try:
        stream = await stage.chat(client, model)
        async for _ in stage.over(stream):
            chunks += 1
    except Exception as error:
        return chunks, _shape(error)
    return chunks, []


async def _story(driver: Driver, server: _Server) -> dict[str, Any]:
    """All streams are open when the server is killed; then it is back, and the same client asks again."""
    stage = Stage(driver)
    client = stage.client(server.base_url)
    with ThreadPoolExecutor(len(MODELS)) as threads:
        loop = asyncio.get_running_loop()

        def in_thread(model: str) -> Any:
            return play_now(_told(stage, client, model))

        calls = {
            when: asyncio.ensure_future(
                _told(stage, client, model)
                if driver.is_async
                else loop.run_in_executor(threads, in_thread, model)  # type: ignore[arg-type]
            )
            for when, model in MODELS.items()
        }
        await asyncio.to_thread(server.has, len(MODELS))
        # What was sent is in the readers' hands, so that all the kill can take is what never came.
        await asyncio.sleep(0.2)
        server.kill()
        killed = time.monotonic()
        told = {when: await call for when, call in calls.items()}
        told["seconds"] = time.monotonic() - killed
        # Nobody listens: refused at once.
        refused = await (
            _told(stage, client, "healthy") if driver.is_async else asyncio.to_thread(in_thread, "healthy")
        )
        told["refused"] = refused
        await asyncio.to_thread(server.start)
        told["afterwards"] = await (
            _told(stage, client, "healthy:tokens=2,gap=0")
            if driver.is_async
            else asyncio.to_thread(in_thread, "healthy:tokens=2,gap=0")
        )
    await stage.of(client.close())
    return told


@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_a_killed_server_is_told_as_by_the_bare_sdk(server: _Server, driver: Driver) -> None:
    server.kill()
    server.start()
    bare = asyncio.run(_story(driver, server))
    server.kill()
    server.start()
    with instrumented(**PATIENT) as captured:
        guarded = asyncio.run(_story(driver, server))
        wait_until(lambda: len(captured.spans) == len(MODELS) + 2, captured.spans.__len__)
        outcomes = sorted(str((span.attributes or {})["stallwatch.outcome"]) for span in captured.spans)
    assert guarded.pop("seconds") < 1.0
    bare.pop("seconds")
    assert guarded == bare
    assert guarded["in the answer"][0] == 4
    assert guarded["afterwards"] == (4, [])
    assert outcomes == ["completed", *["failed"] * (len(MODELS) + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_a_call_that_may_try_again_outlives_a_restart(server: _Server, driver: Driver) -> None:
    """Killed before the first token, and back within the pauses between attempts."""
    server.kill()
    server.start()

    async def story() -> tuple[int, list[tuple[type, str]]]:
        stage = Stage(driver)
        client = stage.client(server.base_url, max_retries=6)
        model = "late-headers:seconds=1,tokens=2,gap=0"
        if driver.is_async:
            call: Any = asyncio.ensure_future(_told(stage, client, model))
        else:
            call = asyncio.ensure_future(asyncio.to_thread(lambda: play_now(_told(stage, client, model))))
        await asyncio.to_thread(server.has, 1)
        server.kill()
        await asyncio.to_thread(server.start)
        told: tuple[int, list[tuple[type, str]]] = await call
        await stage.of(client.close())
        return told

    with instrumented(**PATIENT, max_retries=6) as captured:
        assert asyncio.run(story()) == (4, [])
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "completed"
    assert attributes["stallwatch.attempts"] >= 2
