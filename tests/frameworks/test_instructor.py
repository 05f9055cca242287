"""instructor: structured answers, whole and piece by piece, on the SDK's own clients."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from frameworks.installed import HERE
from frameworks.surface import MODEL, chain
from stallwatch import StreamTimeoutError
from stallwatch.testing import FaultGateway, Role, Silence, Token
from support.bounds import LIMITS
from support.telemetry import Captured, instrumented

if "instructor" not in HERE:
    pytest.skip("instructor is not installed here", allow_module_level=True)

import instructor
from instructor.core import InstructorRetryException
from pydantic import BaseModel

SYNC_AND_ASYNC = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])

STALLS: dict[str, Any] = {
    "first_token": "silent",
    "idle": [Role(), Token('{"answer":"t0 '), Token("t1 "), Silence()],
    "total": "never-responds",
}


class Answer(BaseModel):
    answer: str
    count: int


def ask(gateway: FaultGateway, *, is_async: bool, partial: bool, **client: Any) -> list[Any]:
    """Ask for an answer; return its states, the last of them whole."""
    kind = openai.AsyncOpenAI if is_async else openai.OpenAI
    sdk = kind(base_url=gateway.base_url, api_key="test", **{"max_retries": 0, **client})
    asking = instructor.from_openai(sdk, mode=instructor.Mode.JSON)
    question: Any = {
        "response_model": Answer,
        "messages": [{"role": "user", "content": "hi"}],
        "model": MODEL,
    }
    if not is_async:
        return list(asking.create_partial(**question)) if partial else [asking.create(**question)]

    async def read() -> list[Any]:
        if not partial:
            return [await asking.create(**question)]
        return [state async for state in asking.create_partial(**question)]

    return asyncio.run(read())


@SYNC_AND_ASYNC
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
def test_a_whole_answer_is_the_same(is_async: bool, partial: bool, gateway: FaultGateway) -> None:
    gateway.script(MODEL, "structured")
    without = ask(gateway, is_async=is_async, partial=partial)
    with instrumented(**LIMITS) as captured:
        states = ask(gateway, is_async=is_async, partial=partial)
    assert [state.model_dump() for state in states] == [state.model_dump() for state in without]
    assert (states[-1].answer, states[-1].count) == ("t0 t1 t2 t3 t4 ", 5)
    assert captured.attributes()["stallwatch.outcome"] == "completed"


@SYNC_AND_ASYNC
@pytest.mark.parametrize("phase", STALLS)
def test_a_stall_ends_in_time_with_ours_in_the_chain(
    is_async: bool, phase: str, gateway: FaultGateway
) -> None:
    gateway.script(MODEL, STALLS[phase])
    limits = {**LIMITS, "total": 0.4} if phase == "total" else LIMITS
    with instrumented(**limits) as captured, pytest.raises(Exception) as caught:
        ask(gateway, is_async=is_async, partial=phase != "total")
    (ours,) = [error for error in chain(caught.value) if isinstance(error, StreamTimeoutError)]
    assert ours.phase == phase
    # Its own error hides that it was a timeout, but for asynchronous pieces, where ours comes out.
    bare = is_async and phase != "total"
    assert type(caught.value).__name__ == (type(ours).__name__ if bare else "InstructorRetryException")
    assert isinstance(caught.value, openai.APITimeoutError) is bare
    ledger = gateway.wait_for(lambda ledger: ledger.requests[0].closed_how in ("fin", "rst"))
    assert len(ledger.requests) == 1
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


@SYNC_AND_ASYNC
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
def test_it_adds_no_rounds_to_the_client_s_retries(
    is_async: bool, partial: bool, gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script(MODEL, "error-status:code=503,retry_after=0.01")
    with pytest.raises(InstructorRetryException):
        ask(gateway, is_async=is_async, partial=partial, max_retries=2)
    assert [request.retry_count for request in gateway.ledger().requests] == [0, 1, 2]
    assert captured.attributes()["stallwatch.attempts"] == 3
