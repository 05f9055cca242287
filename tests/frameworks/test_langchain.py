"""LangChain: its own limit between chunks, its fallbacks and its retries beside ours."""

from __future__ import annotations

import asyncio

import openai
import pytest

from frameworks.installed import HERE
from frameworks.surface import MODEL, chain
from stallwatch import StreamTimeoutError
from stallwatch.testing import FaultGateway
from support.bounds import LIMITS
from support.telemetry import Captured, instrumented

if "langchain" not in HERE:
    pytest.skip("langchain-openai is not installed here", allow_module_level=True)

from langchain_openai import ChatOpenAI

SYNC_AND_ASYNC = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def chat(gateway: FaultGateway, model: str = MODEL, **more: object) -> ChatOpenAI:
    return ChatOpenAI(model=model, base_url=gateway.base_url, api_key="test", **{"max_retries": 0, **more})


async def astream(runnable: object) -> str:
    return "".join([chunk.text async for chunk in runnable.astream("hi")])  # type: ignore[attr-defined]


def read(runnable: object, *, is_async: bool) -> str:
    if is_async:
        return asyncio.run(astream(runnable))
    return "".join(chunk.text for chunk in runnable.stream("hi"))  # type: ignore[attr-defined]


def test_without_its_own_limit_a_stall_is_an_api_timeout_in_async_code_too(
    gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script(MODEL, "stall-after:tokens=2")
    with pytest.raises(openai.APITimeoutError) as caught:
        read(chat(gateway, stream_chunk_timeout=None), is_async=True)
    assert isinstance(caught.value.__cause__, StreamTimeoutError)
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


def test_its_own_limit_takes_our_error_for_its_own_and_names_the_wrong_number(
    gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script(MODEL, "silent")
    with pytest.raises(TimeoutError, match=r"No streaming chunk received for 120\.0s") as caught:
        read(chat(gateway), is_async=True)
    assert not isinstance(caught.value, openai.APITimeoutError)
    assert isinstance(caught.value.__cause__, StreamTimeoutError)
    assert captured.attributes()["stallwatch.stall.waited"] < 1


@SYNC_AND_ASYNC
def test_its_own_limit_ends_a_call_that_ours_let_go_on(is_async: bool, gateway: FaultGateway) -> None:
    gateway.script(MODEL, "stall-after:tokens=2")
    with instrumented(**{**LIMITS, "idle": 0.6}) as captured, pytest.raises(Exception) as caught:
        read(chat(gateway, stream_chunk_timeout=0.2), is_async=is_async)
    ours = any(isinstance(error, StreamTimeoutError) for error in chain(caught.value))
    # It is there for asynchronous streams only, and is a cancel of the user's, as far as we can know.
    assert ours is not is_async
    assert captured.attributes()["stallwatch.outcome"] == ("cancelled" if is_async else "stalled")
    gateway.wait_for(lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"))


@SYNC_AND_ASYNC
def test_its_fallbacks_follow_a_stall_before_the_first_chunk_and_none_after(
    is_async: bool, gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script("first", "silent", "stall-after:tokens=2")
    gateway.script("second", "healthy:tokens=2")
    model = chat(gateway, "first").with_fallbacks([chat(gateway, "second")])
    assert read(model, is_async=is_async) == "t0 t1 "
    assert [request.model for request in gateway.ledger().requests] == ["first", "second"]
    assert [span.attributes["stallwatch.outcome"] for span in captured.spans] == ["stalled", "completed"]


@pytest.mark.parametrize("streams", [False, True], ids=["invoke", "stream"])
def test_its_retries_go_round_ours_and_do_nothing_for_streams(streams: bool, gateway: FaultGateway) -> None:
    gateway.script(MODEL, "error-status:code=503,retry_after=0.01")
    again = chat(gateway, max_retries=2).with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    with instrumented(**LIMITS), pytest.raises(openai.InternalServerError):
        read(again, is_async=False) if streams else again.invoke("hi")
    assert len(gateway.ledger().requests) == (3 if streams else 9)
