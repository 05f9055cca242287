"""An answer split, cut, reset or halted at each of its bytes: the bare SDK's outcome, or our timeout in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import stallwatch
from chaos.byte_server import ANSWERS, ByteServer, byte_server
from support.bounds import LATE
from support.drivers import DRIVERS, MESSAGES, Driver, Told
from support.telemetry import instrumented

PATIENT: dict[str, Any] = {"connect": 10, "first_token": 10, "thinking": 10, "idle": 10, "total": 60}
IDLE = 0.6
AT_ONCE, APART = 60, 0.008
PAUSES_MS = (2, 20, 100)
"""Before a reset. What lies unread is lost in it, so that on a busy machine the same fault comes out in two ways; what
differs is played again, slower."""

Shape = tuple[Any, ...]


@pytest.fixture(scope="module")
def server() -> Iterator[ByteServer]:
    with byte_server() as started:
        yield started


def _shape(told: Told) -> Shape:
    """All that a caller can tell of it: every chunk, and the error with all its causes."""
    error, errors = told.error, []
    while error is not None:
        errors.append((type(error), str(error)))
        error = error.__cause__
    return [chunk.model_dump() for chunk in told.chunks], errors


class _Client:
    """One SDK client, whose address changes from call to call."""

    def __init__(self, driver: Driver, server: ByteServer) -> None:
        self._driver, self._server = driver, server
        self._client = driver.client(server.base_url("plain", "split", 0))
        self._runner = asyncio.Runner() if driver.is_async else None

    def tell(self, answer: str, fault: str, at: int, pause_ms: int) -> Shape:
        told = Told()
        client = self._client.with_options(base_url=self._server.base_url(answer, fault, at, pause_ms))
        try:
            if self._runner is not None:
                self._runner.run(_read_async(client, answer, told))
            else:
                _read(client, answer, told)
        except Exception as error:
            told.error = error
        return _shape(told)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.run(self._client.close())
            self._runner.close()
        else:
            self._client.close()


def _read(client: Any, answer: str, told: Told) -> None:
    made = client.chat.completions.create(model="m", messages=MESSAGES, stream=answer == "stream")
    if answer == "plain":
        told.chunks.append(made)
        return
    with made as stream:
        for chunk in stream:
            told.chunks.append(chunk)


async def _read_async(client: Any, answer: str, told: Told) -> None:
    made = await client.chat.completions.create(model="m", messages=MESSAGES, stream=answer == "stream")
    if answer == "plain":
        told.chunks.append(made)
        return
    async with made as stream:
        async for chunk in stream:
            told.chunks.append(chunk)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["split", "truncate", "reset"])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_the_outcome_is_that_of_the_bare_sdk(
    server: ByteServer, driver: Driver, answer: str, fault: str
) -> None:
    # With a split at the last byte, or a cut there, nothing has happened to the answer.
    places = list(range(len(ANSWERS[answer]) + 1))
    client = _Client(driver, server)
    outcomes = set()
    try:
        for pause in PAUSES_MS:
            bare = {at: client.tell(answer, fault, at, pause) for at in places}
            with instrumented(**PATIENT) as captured:
                guarded = {at: client.tell(answer, fault, at, pause) for at in places}
                assert len(captured.spans) == len(places)
                outcomes |= {str((span.attributes or {})["stallwatch.outcome"]) for span in captured.spans}
            places = [at for at in places if guarded[at] != bare[at]]
            if not places or fault != "reset":
                break
    finally:
        client.close()
    assert not places, {at: (bare[at], guarded[at]) for at in places[:3]}
    assert "stalled" not in outcomes
    assert outcomes == ({"completed"} if fault == "split" else {"completed", "failed"})


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_byte_by_byte_is_an_answer_like_any_other(server: ByteServer, driver: Driver, answer: str) -> None:
    client = _Client(driver, server)
    try:
        bare = client.tell(answer, "drip", 1, 1)
        with instrumented(**PATIENT) as captured:
            assert client.tell(answer, "drip", 1, 1) == bare
        assert captured.attributes()["stallwatch.outcome"] == "completed"
    finally:
        client.close()


async def _halted(server: ByteServer, driver: Driver, places: range) -> list[Told]:
    """Many at a time, but one after the other: all at once would be another test, that of a crowd."""
    client = driver.client(server.base_url("stream", "halt", 0))
    tolds = [Told() for _ in places]

    def at(place: int) -> Any:
        return client.with_options(base_url=server.base_url("stream", "halt", place))

    async def tell(place: int) -> None:
        await asyncio.sleep(APART * (place % AT_ONCE))
        told, began = tolds[place], time.monotonic()
        try:
            await _read_async(at(place), "stream", told)
        except Exception as error:
            told.error = error
        told.seconds = time.monotonic() - began

    def tell_sync(place: int) -> None:
        time.sleep(APART * (place % AT_ONCE))
        told, began = tolds[place], time.monotonic()
        try:
            _read(at(place), "stream", told)
        except Exception as error:
            told.error = error
        told.seconds = time.monotonic() - began

    for start in range(0, len(places), AT_ONCE):
        some = places[start : start + AT_ONCE]
        if driver.is_async:
            await asyncio.gather(*map(tell, some))
        else:
            with ThreadPoolExecutor(AT_ONCE) as threads:
                list(threads.map(tell_sync, some))
    await client.close() if driver.is_async else client.close()
    return tolds


@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_silence_after_any_byte_is_our_timeout_in_time(server: ByteServer, driver: Driver) -> None:
    whole = ANSWERS["stream"]
    answered = [whole.index(b"\n\n", whole.index(mark)) + 2 for mark in ("é".encode(), b'"stop"')]
    with instrumented(**{**PATIENT, "first_token": IDLE, "thinking": IDLE, "idle": IDLE}):
        tolds = asyncio.run(_halted(server, driver, range(len(whole) + 1)))
    for at, told in enumerate(tolds):
        assert len(told.chunks) == sum(at >= place for place in answered), (at, told)
        # How exact a deadline is, tests/stories say; here sixty calls share one thread, and none may be forgotten.
        assert told.seconds < 2 * IDLE + 4 * LATE, (at, told)
        if at >= answered[1]:
            # Every choice has its finish reason: the answer is whole, and ends quietly.
            assert told.error is None, (at, told)
        else:
            assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError), (at, told)
            assert isinstance(told.error, openai.APITimeoutError)
            assert told.error.waited < IDLE + 2 * LATE, (at, told)
            assert told.error.phase == ("idle" if told.chunks else "first_token")
