"""asyncio, uvloop and anyio's asyncio backend, in debug mode too; one loop, several, and one after the other."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import pytest

from support.drivers import ASYNC
from support.places import LOOPS, Place, run_on
from support.stage import Stage
from support.telemetry import instrumented
from support.traffic import LIMITS, STORIES, Said, async_traffic, check, played, tell

pytestmark = pytest.mark.filterwarnings(
    # asyncio's debug mode tells of slow callbacks; the SDK's first request is one.
    "ignore:Executing:ResourceWarning"
)


@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
def test_all_traffic(plain: Place, loop: str, debug: bool) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop], debug=debug) as runner:
        told = runner.run(async_traffic(plain.base_url))
    check(told, plain.gateway.ledger())


@pytest.mark.parametrize("use_uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_all_traffic_through_anyio(plain: Place, use_uvloop: bool) -> None:
    told = anyio.run(
        async_traffic, plain.base_url, backend="asyncio", backend_options={"use_uvloop": use_uvloop}
    )
    check(told, plain.gateway.ledger())


NAMES = [name for name, story in STORIES.items() if story.ends not in ("own", "drop")]


async def _play(place: Place) -> dict[str, Said]:
    async with place.async_client() as client:
        told = await asyncio.gather(*(tell(Stage(ASYNC), client, name) for name in NAMES))
    return dict(zip(NAMES, told, strict=True))


def test_one_client_in_a_loop_and_then_in_the_next(plain: Place, loop: str) -> None:
    client = plain.async_client()

    async def story() -> dict[str, Said]:
        return {name: await tell(Stage(ASYNC), client, name) for name in ("idle", "no token", "cancelled")}

    with instrumented(**LIMITS) as captured:
        # None of these calls leaves a connection in the pool; one that did would belong to the loop that is closed, and
        # the next call would fail on it, with us and without.
        run_on(loop, story())
        told = played(run_on(loop, story()), captured, times=2)
    check(told, times=2)


def test_several_loops_in_several_threads(plain: Place, loop: str) -> None:
    told: list[dict[str, Any]] = []

    with instrumented(**LIMITS) as captured:
        threads = [threading.Thread(target=lambda: told.append(run_on(loop, _play(plain)))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(told) == 3
        last = played(told[-1], captured, times=3)
    for said in told:
        check({**last, "said": said}, times=3)
