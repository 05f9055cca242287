"""What ended is freed: at once where the SDK itself leaves no cycle, and by the next collection everywhere."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import openai
import pytest

from stallwatch.core.phases import Tracker
from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.interrupt import BoundedReads
from stallwatch.runtime.patience import PatientReads
from stallwatch.runtime.task_waiter import TaskWaiter
from support.connects import http, quick_client
from support.drivers import DRIVERS, MESSAGES, Driver
from support.places import Place, eventually, eventually_async
from support.stage import Stage, play
from support.telemetry import instrumented

LIMITS: dict[str, Any] = {"first_token": 0.1, "thinking": 0.1, "idle": 0.1}
OURS = (InFlight, Tracker, TaskWaiter, BoundedReads, PatientReads)

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


def _client(stage: Stage, place: Place) -> Any:
    return stage.client(place.base_url, http_client=quick_client(is_async=stage.is_async))


@contextmanager
def _no_collections() -> Iterator[None]:
    """No collection runs by itself; what is alive already is neither collected nor listed, which is quick as well."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _alive(kinds: tuple[Any, ...]) -> list[str]:
    return [type(each).__name__ for each in gc.get_objects() if type(each) in kinds]


async def _eventually_freed(stage: Stage, is_freed: Callable[[], bool]) -> None:
    """Dropped streams are closed by a thread, in a task of the loop, so that one collection may not do."""

    def freed() -> bool:
        gc.collect()
        return is_freed()

    if stage.is_async:
        await eventually_async(freed)
    else:
        eventually(freed)


async def _whole(stage: Stage, client: Any) -> None:
    assert len(await stage.all(await stage.chat(client, "healthy:tokens=2,gap=0"))) == 4


async def _plain(stage: Stage, client: Any) -> None:
    assert await stage.chat(client, "healthy:tokens=2,gap=0", stream=False)


async def _lines(stage: Stage, client: Any) -> None:
    with_response = client.chat.completions.with_streaming_response
    opened = with_response.create(model="healthy:tokens=2,gap=0", messages=MESSAGES, stream=True)
    async with stage.inside(opened) as response:
        assert await stage.all(response.iter_lines())


async def _early(stage: Stage, client: Any) -> None:
    async with stage.inside(await stage.chat(client, "endless:gap=0.01")) as stream:
        await stage.step(stream)


async def _closed(stage: Stage, client: Any) -> None:
    stream = await stage.chat(client, "endless:gap=0.01")
    await stage.step(stream)
    await stage.close(stream)


async def _stalled(stage: Stage, client: Any) -> None:
    with pytest.raises(openai.APITimeoutError):
        await stage.all(await stage.chat(client, "stall-after:tokens=1,gap=0"))


async def _never(stage: Stage, client: Any) -> None:
    with pytest.raises(openai.APITimeoutError):
        await stage.chat(client, "never-responds")


async def _failed(stage: Stage, client: Any) -> None:
    with pytest.raises(openai.APIStatusError):
        await stage.chat(client, "error-status:code=500")


async def _cut(stage: Stage, client: Any) -> None:
    # Some releases take a cut body for a whole one.
    with suppress(Exception):
        await stage.all(await stage.chat(client, "cut"))


async def _dropped(stage: Stage, client: Any) -> None:
    await stage.step(await stage.chat(client, "endless:gap=0.01"))


ENDS = [_whole, _plain, _lines, _early, _closed, _stalled, _never, _failed, _cut, _dropped]


def _left_without_a_collection(place: Place, kind: str, end: Any, kinds: tuple[Any, ...]) -> list[str]:
    left: list[str] = []

    async def story(stage: Stage) -> None:
        async with stage.inside(_client(stage, place)) as client:
            # The first call of each kind fills caches.
            await end(stage, client)
            with _no_collections():
                for _ in range(3):
                    await end(stage, client)
                left.extend(_alive(kinds))

    play(Driver(kind), story)
    return left


@pytest.mark.parametrize(
    ("kind", "end"),
    [("sync", _whole), ("sync", _plain), ("sync", _lines), ("async", _plain)],
)
def test_where_the_sdk_leaves_no_cycle_nor_do_we(plain: Place, kind: str, end: Any) -> None:
    bare = _left_without_a_collection(plain, kind, end, (http.Request,))
    with instrumented():
        left = _left_without_a_collection(plain, kind, end, OURS)
    if bare:
        # This release keeps each call's request in a cycle, and what hangs on it.
        assert left.count("InFlight") <= 3
    else:
        assert left == []


@drivers
@pytest.mark.parametrize("end", ENDS)
def test_a_run_is_freed_by_a_collection(plain: Place, driver: Driver, end: Any) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(_client(stage, plain)) as client:
            await end(stage, client)
            with _no_collections():
                await end(stage, client)
                await _eventually_freed(stage, lambda: not _alive(OURS))

    with instrumented(**LIMITS):
        play(driver, story)


# What copies the context while the request is being executed, and lives on


def _timer(kept: list[Any]) -> None:
    kept.append(asyncio.get_running_loop().call_later(1000, print))


def _task(kept: list[Any]) -> None:
    kept.append(asyncio.get_running_loop().create_task(asyncio.Event().wait()))


def _copy(kept: list[Any]) -> None:
    kept.append(contextvars.copy_context())


@pytest.mark.parametrize(
    ("kind", "copies"), [("async", _timer), ("async", _task), ("async", _copy), ("sync", _copy)]
)
@pytest.mark.parametrize("end", [_whole, _plain, _stalled])
def test_a_copied_context_keeps_no_run(
    plain: Place, kind: str, copies: Callable[[list[Any]], None], end: Any
) -> None:
    kept: list[Any] = []
    runs: list[weakref.ref[Any]] = []

    def hook(request: Any) -> None:
        runs.append(weakref.ref(request.extensions["stallwatch"]))
        copies(kept)

    async def hook_async(request: Any) -> None:
        hook(request)

    async def story(stage: Stage) -> None:
        hooks = {"request": [hook_async if stage.is_async else hook]}
        http_client = quick_client(is_async=stage.is_async, event_hooks=hooks)
        async with stage.inside(stage.client(plain.base_url, http_client=http_client)) as client:
            with _no_collections():
                await end(stage, client)
                await _eventually_freed(stage, lambda: [run() for run in runs] == [None])
            for each in kept:
                if hasattr(each, "cancel"):
                    each.cancel()

    with instrumented(**LIMITS):
        play(Driver(kind), story)
    assert len(kept) == 1
