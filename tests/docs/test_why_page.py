"""What the page on the failures says of the bare SDK and of three remedies is what they do, quicker than there."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import openai
import pytest

from stallwatch.testing import FaultGateway
from support.drivers import DRIVERS, MESSAGES, Driver
from support.markdown import ROOT, prose
from support.stage import Stage, play

PAGE = " ".join(prose(ROOT / "docs" / "why.md").split())
TIMEOUT = 0.4
SDK_3 = int(openai.__version__.partition(".")[0]) >= 3

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


def _bare(gateway: FaultGateway, driver: Driver, model: str, max_retries: int) -> tuple[str, float, int]:
    """The class of the error that a bare stream ends with, after which time, and the requests it took."""

    async def story(stage: Stage) -> str:
        client = stage.client(gateway.base_url, timeout=TIMEOUT, max_retries=max_retries)
        async with stage.inside(client):
            try:
                await stage.all(await stage.chat(client, model))
            except Exception as error:
                return type(error).__name__
        return "none"

    began = time.monotonic()
    name = play(driver, story)
    return name, time.monotonic() - began, len(gateway.ledger().requests)


@drivers
def test_the_timeout_begins_anew_with_each_attempt(driver: Driver) -> None:
    with FaultGateway() as gateway:
        name, took, requests = _bare(gateway, driver, "never-responds", max_retries=2)
    assert (name, requests) == ("APITimeoutError", 3)
    assert took > 3 * TIMEOUT
    assert "three requests: the clock restarts with each attempt" in PAGE


@drivers
def test_retries_end_with_the_headers(driver: Driver) -> None:
    with FaultGateway() as gateway:
        name, took, requests = _bare(gateway, driver, "silent", max_retries=2)
    assert (name, requests) == ("APITimeoutError" if SDK_3 else "ReadTimeout", 1)
    assert took > TIMEOUT - 0.01
    assert "`APITimeoutError` after 1 s (1.x and 2.x: `httpx.ReadTimeout`), one request" in PAGE


@drivers
def test_there_is_no_timeout_for_as_long_as_comments_come(driver: Driver) -> None:
    with FaultGateway() as gateway:
        _, took, requests = _bare(gateway, driver, "keepalive:tokens=0,every=0.05,seconds=1.8", max_retries=2)
    assert requests == 1
    assert took > 4 * TIMEOUT
    assert "no timeout for as long as the comments come" in PAGE


def _remedy(model: str, story: Any) -> None:
    async def played() -> None:
        async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="test", max_retries=0) as client:
            await story(await client.chat.completions.create(model=model, messages=MESSAGES, stream=True))

    with FaultGateway() as gateway:
        asyncio.run(played())


def test_a_stream_that_wait_for_cut_looks_finished() -> None:
    async def story(stream: Any) -> None:
        await anext(stream)
        with pytest.raises(TimeoutError):
            while True:
                await asyncio.wait_for(stream.__anext__(), TIMEOUT)
        assert [chunk async for chunk in stream] == []

    _remedy("stall-after:tokens=2", story)
    assert "every later step ends the loop *as if the answer were complete*" in PAGE


def test_a_timeout_around_a_step_cuts_what_came_while_the_loop_was_blocked() -> None:
    async def story(stream: Any) -> None:
        await anext(stream)
        # Blocked while the reader waits, for longer than the timeout; the next chunk comes meanwhile.
        asyncio.get_running_loop().call_later(0.02, time.sleep, 3 * TIMEOUT)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(TIMEOUT):
                await anext(stream)

    _remedy("healthy:first=0.15,tokens=2", story)
    assert "cuts streams whose chunks have arrived meanwhile" in PAGE
