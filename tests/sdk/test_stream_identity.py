"""What users hold is the SDK's own, and behaves so."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import openai
import pytest

import stallwatch
from support.places import MESSAGES, Place, run_on
from support.telemetry import instrumented

HEALTHY = "healthy:tokens=3,gap=0"
STALLS = "stall-after:tokens=2,gap=0"


def _create(client: Any, model: str) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def test_a_stream_is_exactly_the_sdks(place: Place) -> None:
    with place.client() as bare, _create(bare, HEALTHY) as plain_stream:
        expected = type(plain_stream), type(plain_stream.response), set(vars(plain_stream))
    with instrumented(), place.client() as client, _create(client, HEALTHY) as stream:
        assert isinstance(stream, openai.Stream)
        assert type(stream) is openai.Stream
        assert (type(stream), type(stream.response), set(vars(stream))) == expected
        assert stream.response.status_code == 200
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert not stream.response.is_closed
        list(stream)
        assert stream.response.is_closed
        with pytest.raises(StopIteration):
            next(stream)


def test_an_async_stream_is_exactly_the_sdks(place: Place, loop: str) -> None:
    async def story() -> None:
        async with place.async_client() as client, await _create(client, HEALTHY) as stream:
            assert type(stream) is openai.AsyncStream
            assert stream.response.status_code == 200
            assert len([chunk async for chunk in stream]) == 5
            assert stream.response.is_closed
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    with instrumented():
        run_on(loop, story())


def test_others_may_wrap_the_iterator(plain: Place) -> None:
    with instrumented(idle=0.2) as captured, plain.client() as client:
        stream = _create(client, STALLS)
        inner, seen = stream._iterator, []

        def noting() -> Any:
            for chunk in inner:
                seen.append(chunk)
                yield chunk

        stream._iterator = noting()
        with pytest.raises(stallwatch.StreamInactivityTimeoutError):
            list(stream)
        assert len(seen) == 3
        assert captured.attributes()["stallwatch.outcome"] == "stalled"


def test_others_may_wrap_the_async_iterator(plain: Place, loop: str) -> None:
    seen = []

    async def story() -> None:
        async with plain.async_client() as client:
            stream = await _create(client, STALLS)
            inner = stream._iterator

            async def noting() -> Any:
                async for chunk in inner:
                    seen.append(chunk)
                    yield chunk

            stream._iterator = noting()
            with pytest.raises(stallwatch.StreamInactivityTimeoutError):
                async for _ in stream:
                    pass

    with instrumented(idle=0.2):
        run_on(loop, story())
    assert len(seen) == 3


def test_others_may_close_the_iterator(plain: Place) -> None:
    with instrumented() as captured, plain.client() as client:
        stream = _create(client, "endless:gap=0.01")
        next(stream)
        stream._iterator.close()
        plain.gateway.wait_for(lambda ledger: ledger.requests[0].closed_how)
        with pytest.raises(StopIteration):
            next(stream)
        assert captured.attributes()["stallwatch.outcome"] == "closed_early"


def test_others_may_close_the_async_iterator(plain: Place, loop: str) -> None:
    async def story() -> None:
        async with plain.async_client() as client:
            stream = await _create(client, "endless:gap=0.01")
            await anext(stream)
            await stream._iterator.aclose()
            await plain.gateway.wait_for_async(lambda ledger: ledger.requests[0].closed_how)

    with instrumented() as captured:
        run_on(loop, story())
    assert captured.attributes()["stallwatch.outcome"] == "closed_early"


def _fail_in_a_process(base_url: str) -> None:
    with instrumented(idle=0.2), openai.OpenAI(base_url=base_url, api_key="sk-test", max_retries=0) as client:
        list(_create(client, STALLS))


@pytest.mark.slow
def test_an_error_comes_back_whole_from_a_process_pool(plain: Place) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
        error = pool.submit(_fail_in_a_process, plain.base_url).exception(30)
    assert isinstance(error, stallwatch.StreamInactivityTimeoutError)
    assert isinstance(error, openai.APITimeoutError)
    assert (error.phase, error.limit, error.chunks_received, error.code) == ("idle", 0.2, 3, "ETIMEDOUT")
    assert error.waited >= 0.2


def test_a_raised_error_survives_copy_and_pickle(plain: Place) -> None:
    with (
        instrumented(idle=0.2),
        plain.client() as client,
        pytest.raises(stallwatch.StreamInactivityTimeoutError) as caught,
    ):
        list(_create(client, STALLS))
    error = caught.value
    assert error.request.url.path == "/v1/chat/completions"
    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert {
            name: getattr(twin, name) for name in ("phase", "limit", "waited", "wire", "attempt", "errno")
        } == {name: getattr(error, name) for name in ("phase", "limit", "waited", "wire", "attempt", "errno")}
