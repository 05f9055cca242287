"""What stallwatch has no part in stays as it is: the websocket of the realtime API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stallwatch import governing
from stallwatch.testing import refusing_address
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import instrumented
from surfaces.identity import told_of
from surfaces.observed import told_of_error


def realtimes(client: Any) -> list[Any]:
    found = [getattr(client, "realtime", None), getattr(client.beta, "realtime", None)]
    return [each for each in found if each is not None]


def tried(driver: Driver, base_url: str) -> Any:
    """Return what the realtime objects are, and how connecting fails."""

    async def story(stage: Stage) -> Any:
        told: list[Any] = []
        async with stage.inside(stage.client(base_url)) as client:
            assert realtimes(client)
            for realtime in realtimes(client):
                manager = realtime.connect(model="gpt-realtime")
                told += [told_of(realtime), told_of(realtime.connect), told_of(manager)]
                try:
                    async with stage.inside(manager):
                        told.append("connected")
                except Exception as error:
                    told.append(told_of_error(error))
        return told

    return play(driver, story)


@contextmanager
def nothing() -> Iterator[None]:
    yield


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_realtime_api_is_the_bare_sdks_up_to_the_error_of_connecting(driver: Driver) -> None:
    with refusing_address() as address:
        base_url = f"http://{address.host}:{address.port}/v1"
        tried(driver, base_url)
        bare = tried(driver, base_url)
        with instrumented() as captured:
            ours = tried(driver, base_url)
    assert ours == bare
    assert not [each for each in ours if each == "connected"]
    assert captured.spans == []


def test_nothing_of_it_is_patched() -> None:
    with instrumented():
        owners = {owner.__qualname__ for owner, _ in governing.patched()}
    assert owners == {"BaseClient", "SyncAPIClient", "AsyncAPIClient", "Stream", "AsyncStream"}
