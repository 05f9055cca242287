"""A body that is read as lines or bytes, around the SDK's own reading of it, has the same limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import stallwatch
from stallwatch.testing import Comments, Done, Finish, Role, Silence, Tokens, Wait
from support import expect
from support.connects import quick_client
from support.drivers import DRIVERS, MESSAGES, Driver
from support.places import Place
from support.stage import Stage, play
from support.telemetry import instrumented

Reader = Callable[[Stage, Any], Awaitable[str]]
"""Reads an open response of the HTTP library to its end."""


async def _pieces(stage: Stage, response: Any, name: str) -> list[Any]:
    return await stage.all(getattr(response, f"a{name}" if stage.is_async else name)())


async def _lines(stage: Stage, response: Any) -> str:
    return "\n".join(await _pieces(stage, response, "iter_lines"))


async def _bytes(stage: Stage, response: Any) -> str:
    return b"".join(await _pieces(stage, response, "iter_bytes")).decode()


async def _raw(stage: Stage, response: Any) -> str:
    return b"".join(await _pieces(stage, response, "iter_raw")).decode()


async def _read(stage: Stage, response: Any) -> str:
    whole: bytes = await stage.of(response.aread() if stage.is_async else response.read())
    return whole.decode()


READERS: dict[str, Reader] = {
    "lines": _lines,
    "bytes": _bytes,
    "raw bytes": _raw,
    "read": _read,
}


async def _from_stream(stage: Stage, client: Any, model: str) -> tuple[Any, Any]:
    stream = await stage.chat(client, model)
    return stream, stream.response


async def _from_raw(stage: Stage, client: Any, model: str) -> tuple[Any, Any]:
    raw = await stage.of(
        client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES, stream=True)
    )
    return await stage.of(raw.parse()), raw.http_response


SOURCES = {"stream": _from_stream, "raw, parsed": _from_raw}

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
readers = pytest.mark.parametrize("reader", ["lines", "read"])
ways = pytest.mark.parametrize(
    ("source", "reader"),
    [*(("stream", reader) for reader in READERS), ("raw, parsed", "lines"), ("raw, parsed", "read")],
)


def _client(stage: Stage, place: Place) -> Any:
    return stage.client(place.base_url, http_client=quick_client(is_async=stage.is_async))


def _play(driver: Driver, place: Place, model: str, source: str, reader: str) -> Any:
    """Return the body, or the error in its place."""

    async def story(stage: Stage) -> Any:
        async with stage.inside(_client(stage, place)) as client:
            # Held, so that nobody takes the stream for dropped.
            stream, response = await SOURCES[source](stage, client, model)
            try:
                return await READERS[reader](stage, response)
            except stallwatch.StreamTimeoutError as error:
                return error
            finally:
                await stage.close(stream)

    return play(driver, story)


def _chunks(error: Any) -> int:
    """Several pieces may come as one."""
    assert 1 <= error.chunks_received <= 3
    count: int = error.chunks_received
    return count


@drivers
@ways
def test_a_stall_ends_at_the_idle_limit(plain: Place, driver: Driver, reader: str, source: str) -> None:
    with instrumented(first_token=5, thinking=5, idle=0.12, total=5) as captured:
        error = _play(driver, plain, "stall-after:tokens=2,gap=0", source, reader)
    expect.stalled(captured, error, phase="idle", limit=0.12, chunks=_chunks(error))
    expect.released(plain.gateway)


@drivers
@readers
def test_silence_from_the_start_ends_at_the_first_token_limit(
    plain: Place, driver: Driver, reader: str
) -> None:
    with instrumented(first_token=0.15, thinking=5, idle=5, total=5) as captured:
        error = _play(driver, plain, "silent", "raw, parsed", reader)
    expect.stalled(captured, error, phase="first_token", limit=0.15)


@drivers
@readers
def test_keepalives_are_no_progress(plain: Place, driver: Driver, reader: str) -> None:
    with instrumented(first_token=5, thinking=5, idle=0.2, total=5) as captured:
        error = _play(driver, plain, "keepalive:tokens=1,gap=0,every=0.04", "stream", reader)
    expect.stalled(captured, error, phase="idle", limit=0.2, wire="keepalive_only", chunks=_chunks(error))


@drivers
def test_keepalives_extend_the_wait_for_the_first_token(plain: Place, driver: Driver) -> None:
    plain.gateway.script("queueing", [Comments(0.04)])
    with instrumented(first_token=0.15, thinking=5, idle=5, total=5, keepalive_factor=2) as captured:
        error = _play(driver, plain, "queueing", "stream", "lines")
    expect.stalled(captured, error, phase="first_token", limit=0.15, allowed=0.3, wire="keepalive_only")


@drivers
def test_keepalives_before_the_first_token_do_no_harm(plain: Place, driver: Driver) -> None:
    plain.gateway.script("queued", [Comments(0.04, 0.25), Role(), Tokens(2), Finish(), Done()])
    with instrumented(first_token=0.2, thinking=0.2, idle=0.2, keepalive_factor=2) as captured:
        body = _play(driver, plain, "queued", "stream", "lines")
    assert body.rstrip().endswith("data: [DONE]")
    expect.ended(captured, "completed")


@drivers
@ways
def test_a_whole_body_is_whole(plain: Place, driver: Driver, reader: str, source: str) -> None:
    with instrumented(first_token=0.15, thinking=0.15, idle=0.15) as captured:
        body = _play(driver, plain, "healthy:tokens=6,gap=0.03", source, reader)
    assert [f'"t{number} "' in body.replace("\\u0020", " ") for number in range(6)] == [True] * 6
    assert body.rstrip().endswith("data: [DONE]")
    expect.ended(captured, "completed")


@drivers
def test_a_total_ends_a_body_that_goes_on(plain: Place, driver: Driver) -> None:
    with instrumented(first_token=5, thinking=5, idle=5, total=0.3) as captured:
        error = _play(driver, plain, "endless:gap=0.02", "stream", "lines")
    expect.stalled(captured, error, phase="total", limit=0.3, wire=None, chunks=error.chunks_received)


@drivers
def test_what_was_read_in_one_go_can_be_iterated_as_chunks(plain: Place, driver: Driver) -> None:
    async def story(stage: Stage) -> list[Any]:
        async with stage.inside(_client(stage, plain)) as client:
            stream = await stage.chat(client, "healthy:tokens=3,gap=0.01")
            await _read(stage, stream.response)
            return await stage.all(stream)

    with instrumented(first_token=1, idle=1) as captured:
        assert len(play(driver, story)) == 5
    expect.ended(captured, "completed")


async def _rest(stage: Stage, stream: Any) -> bytes:
    """Read on where the SDK stands: its own iterator of the body is half-way."""
    return b"".join(await stage.all(stream.response.stream))


@drivers
def test_after_some_chunks_the_rest_may_be_read_as_bytes(plain: Place, driver: Driver) -> None:
    script = [Role(), Tokens(1), Wait(0.1), Tokens(2, 0.05), Finish(), Done()]
    plain.gateway.script("halves", script)

    async def story(stage: Stage) -> bytes:
        async with stage.inside(_client(stage, plain)) as client:
            stream = await stage.chat(client, "halves")
            await stage.take(stream, 2)
            return await _rest(stage, stream)

    with instrumented(first_token=1, thinking=1, idle=0.2) as captured:
        assert play(driver, story).endswith(b"data: [DONE]\n\n")
    expect.ended(captured, "completed")


@drivers
def test_after_some_chunks_a_stall_of_the_rest_ends_at_the_limit(plain: Place, driver: Driver) -> None:
    plain.gateway.script("halves", [Role(), Tokens(1), Wait(0.05), Tokens(1), Silence()])

    async def story(stage: Stage) -> Any:
        async with stage.inside(_client(stage, plain)) as client:
            stream = await stage.chat(client, "halves")
            await stage.take(stream, 2)
            with pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught:
                await _rest(stage, stream)
            await stage.close(stream)
            return caught.value

    with instrumented(first_token=5, thinking=5, idle=0.2) as captured:
        error = play(driver, story)
    expect.stalled(captured, error, phase="idle", limit=0.2, chunks=3)


# A hook of the HTTP client that reads the body before the SDK does


def _reading(driver: Driver) -> Any:
    """An HTTP client that reads each body in a hook."""

    async def read_async(response: Any) -> None:
        await response.aread()

    read: Any = read_async if driver.is_async else lambda response: response.read()
    return quick_client(is_async=driver.is_async, event_hooks={"response": [read]})


@drivers
def test_a_hook_that_reads_the_whole_body_does_not_get_it_cut(plain: Place, driver: Driver) -> None:
    with instrumented(first_token=0.2, thinking=0.2, idle=0.2) as captured:
        told = driver.tell(
            plain.base_url, "healthy:tokens=10,gap=0.04", options={"http_client": _reading(driver)}
        )
    assert told.error is None
    assert len(told.chunks) == 12
    assert captured.attributes()["stallwatch.outcome"] == "completed"
    assert captured.total("stallwatch.stalls") == 0


@drivers
def test_a_hook_that_reads_a_body_that_stalls_ends_at_the_limit(plain: Place, driver: Driver) -> None:
    # Of bytes alone nobody can tell whether they are visible output, so it is the limit for thinking.
    with instrumented(first_token=5, thinking=0.2, idle=5, total=3) as captured:
        told = driver.tell(
            plain.base_url, "stall-after:tokens=6,gap=0.05", options={"http_client": _reading(driver)}
        )
    assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError), repr(told.error)
    assert told.error.phase == "thinking"
    expect.in_time(told.error.waited, 0.2)
    assert captured.attributes()["stallwatch.outcome"] == "stalled"
