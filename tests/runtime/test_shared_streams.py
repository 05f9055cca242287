"""One stream, several readers: what the SDK does stays, and the first reader's wait stays guarded."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stallwatch
from support.places import MESSAGES, Place, run_on
from support.telemetry import Captured, instrumented


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def _outcomes(captured: Captured) -> list[Any]:
    return [span.attributes["stallwatch.outcome"] for span in captured.spans]


def test_a_second_task_gets_the_sdks_error_and_the_first_stays_guarded(plain: Place, loop: str) -> None:
    async def story() -> None:
        async with plain.async_client() as client:
            stream = await _create(client, "stall-after:tokens=1,gap=0")
            await anext(stream)
            await anext(stream)
            reading = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0.05)
            with pytest.raises(RuntimeError, match="already running"):
                await stream.__anext__()
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                await reading

    with instrumented(idle=0.3, first_token=1) as captured:
        run_on(loop, story())
    assert _outcomes(captured) == ["stalled"]


def test_a_second_thread_gets_the_sdks_error_and_the_first_stays_guarded(place: Place) -> None:
    with instrumented(idle=0.3, first_token=1) as captured, place.client() as client:
        stream = _create(client, "stall-after:tokens=1,gap=0")
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(list, stream)
            place.gateway.wait_for(lambda ledger: ledger.requests[0].count("token"))
            with pytest.raises(ValueError, match="already executing"):
                # The first may hold a chunk in hand just now; then this step waits like the first, and once more.
                while True:
                    next(stream)
            assert isinstance(first.exception(), stallwatch.StreamInactivityTimeoutError)
    assert _outcomes(captured) == ["stalled"]


def test_a_stream_may_be_read_in_another_thread_each_time(place: Place) -> None:
    with instrumented(idle=0.3) as captured, place.client() as client:
        stream = _create(client, "stall-after:tokens=4,gap=0.01")
        for _ in range(5):
            with ThreadPoolExecutor(1) as threads:
                assert threads.submit(next, stream).result()
        with ThreadPoolExecutor(1) as threads:
            assert isinstance(
                threads.submit(next, stream).exception(), stallwatch.StreamInactivityTimeoutError
            )
    assert _outcomes(captured) == ["stalled"]


def test_a_stream_may_be_read_in_another_task_each_time(place: Place, loop: str) -> None:
    async def step(stream: Any) -> Any:
        return await stream.__anext__()

    async def story() -> None:
        async with place.async_client() as client:
            stream = await _create(client, "stall-after:tokens=4,gap=0.01")
            for _ in range(5):
                assert await asyncio.create_task(step(stream))
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                await asyncio.create_task(step(stream))

    with instrumented(idle=0.3) as captured:
        run_on(loop, story())
    assert _outcomes(captured) == ["stalled"]


@pytest.mark.slow
def test_closes_from_other_threads_hurt_no_foreign_descriptor(place: Place, tmp_path: Path) -> None:
    # A close that frees the number under a blocked reader lets it read what others open next.
    stop = threading.Event()
    bad: list[str] = []

    def files() -> None:
        path, number = tmp_path / "victim", 0
        while not stop.is_set():
            number += 1
            text = f"{number} " * 50
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                os.write(handle, text.encode())
                stop.wait(0.0005)
                if os.pread(handle, 4096, 0).decode() != text:
                    bad.append("file")
            except OSError as error:
                bad.append(repr(error))
            finally:
                os.close(handle)

    def innocents(client: Any) -> None:
        while not stop.is_set():
            if len(list(_create(client, "healthy:tokens=3,gap=0.002"))) != 5:
                bad.append("innocent")

    def victims(client: Any) -> None:
        for _ in range(10):
            stream = _create(client, "stall-after:tokens=1,gap=0")
            next(stream)
            next(stream)
            # At about the deadline, before and after it.
            closing = threading.Timer(0.05, stream.close)
            closing.start()
            with pytest.raises(Exception):  # noqa: B017 - ours, or that of a closed connection, but promptly
                next(stream)
            closing.join()

    with (
        instrumented(idle=0.05, first_token=5) as captured,
        place.client() as client,
        place.client() as other,
        ThreadPoolExecutor(8) as threads,
    ):
        background = [threads.submit(files), threads.submit(innocents, other)]
        readers = [threads.submit(victims, client) for _ in range(4)]
        failures = [reader.exception(20) for reader in readers]
        stop.set()
        failures += [each.exception(10) for each in background]
    assert failures == [None] * 6
    assert bad == []
    assert set(_outcomes(captured)) <= {"stalled", "closed_early", "completed"}
