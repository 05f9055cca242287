"""A close from elsewhere ends what is live, also while one attempt is over and the next not there yet."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runs.standstills import GOOD
from stallwatch.testing import (
    FaultGateway,
    Headers,
    RefuseHeaders,
    Reset,
    Role,
    Silence,
    Status,
    Token,
)
from support.bounds import CLOSE_SEEN, LATE
from support.drivers import Driver
from support.stage import Stage, play

SILENT = [Headers(), Silence()]
LONG = 3.0
"""A back-off much longer than a close may take."""


@pytest.fixture(autouse=True)
def quick_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 0.05)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.05)


@asynccontextmanager
async def reader(stage: Stage, stream: Any) -> Any:
    """Somebody who reads ``stream`` in another thread or task; gives a list of what ended the read."""
    ends: list[Any] = []
    if stage.is_async:

        async def read() -> None:
            try:
                async for _ in stream:
                    pass
                ends.append(None)
            except Exception as error:
                ends.append(error)

        task = asyncio.create_task(read())
        yield ends
        await asyncio.wait_for(task, 5)
        return

    def read_sync() -> None:
        try:
            for _ in stream:
                pass
            ends.append(None)
        except Exception as error:
            ends.append(error)

    thread = threading.Thread(target=read_sync)
    thread.start()
    yield ends
    thread.join(5)
    assert not thread.is_alive()


async def _until(stage: Stage, gateway: FaultGateway, condition: Any) -> None:
    if stage.is_async:
        await gateway.wait_for_async(condition)
    else:
        gateway.wait_for(condition)


BROKEN = [Headers(), Reset()]

STANDING = [
    ("in our back-off", [BROKEN, GOOD], lambda ledger: ledger.requests[0].closed_how, 1, False),
    ("before the headers", [BROKEN, [RefuseHeaders()], GOOD], lambda ledger: ledger.requests[1], 2, True),
    (
        "in the SDK's back-off",
        [BROKEN, [Status(503, retry_after="3")], GOOD],
        lambda ledger: ledger.requests[1].completed_at,
        2,
        False,
    ),
    (
        "before the first token",
        [BROKEN, SILENT, GOOD],
        lambda ledger: ledger.requests[1].headers_sent_at,
        2,
        True,
    ),
    (
        "in mid-answer",
        [BROKEN, [Role(), Token("a"), Silence()], GOOD],
        lambda ledger: ledger.requests[1].count("token"),
        2,
        True,
    ),
]


@pytest.mark.parametrize(
    ("attempts_", "there", "requests", "live"),
    [row[1:] for row in STANDING],
    ids=[row[0] for row in STANDING],
)
def test_a_close_from_elsewhere_ends_what_is_live(
    gateway: FaultGateway,
    driver: Driver,
    guarded: Any,
    monkeypatch: pytest.MonkeyPatch,
    attempts_: list[Any],
    there: Any,
    requests: int,
    live: bool,
) -> None:
    if requests == 1:
        monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", LONG)
        monkeypatch.setattr("stallwatch.core.budget.LONGEST_BACK_OFF", LONG)
    gateway.script("m", *attempts_)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            stream = await stage.chat(client, "m")
            async with reader(stage, stream) as ends:
                await _until(stage, gateway, there)
                await stage.sleep(0.03)
                began = time.monotonic()
                await stage.close(stream)
                while not ends and time.monotonic() < began + LONG / 2:
                    await stage.sleep(0.005)
                assert ends, "the reader was not woken"
                assert time.monotonic() - began <= LATE
                if live:
                    await stage.closed(gateway, CLOSE_SEEN, request=requests - 1)
            assert stream.response.is_closed

    with guarded(total=60, first_token=60, idle=60) as captured:
        play(driver, story)
    assert len(gateway.ledger().requests) == requests
    assert captured.attributes()["stallwatch.outcome"] == "closed_early"
    assert captured.attributes()["stallwatch.attempts"] == requests
