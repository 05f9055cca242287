"""LlamaIndex: how its own rounds, its clients and a client of the user's multiply."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from frameworks.installed import HERE
from frameworks.surface import MODEL
from stallwatch.testing import FaultGateway
from support.telemetry import Captured

if "llama_index" not in HERE:
    pytest.skip("llama-index-llms-openai-like is not installed here", allow_module_level=True)

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI, OpenAIResponses
from llama_index.llms.openai_like import OpenAILike

KINDS = {"OpenAI": (OpenAI, {}), "OpenAILike": (OpenAILike, {"is_chat_model": True})}
KINDS["OpenAIResponses"] = (OpenAIResponses, {})

MESSAGES = [ChatMessage(role="user", content="hi")]


def complete(llm: Any) -> None:
    llm.complete("hi")


def stream_chat(llm: Any) -> None:
    for _ in llm.stream_chat(MESSAGES):
        pass


def achat(llm: Any) -> None:
    asyncio.run(llm.achat(MESSAGES))


def astream_chat(llm: Any) -> None:
    async def read() -> None:
        async for _ in await llm.astream_chat(MESSAGES):
            pass

    asyncio.run(read())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ask", [complete, stream_chat, achat, astream_chat])
def test_with_a_client_of_the_user_s_it_makes_no_rounds_of_its_own(
    kind: str, ask: Any, gateway: FaultGateway, captured: Captured
) -> None:
    gateway.script(MODEL, "error-status:code=503,retry_after=0.01")
    made, more = KINDS[kind]
    options = {"base_url": gateway.base_url, "api_key": "test"}
    llm = made(
        model=MODEL,
        max_retries=0,
        openai_client=openai.OpenAI(**options),
        async_openai_client=openai.AsyncOpenAI(**options),
        **more,
    )
    with pytest.raises(openai.InternalServerError):
        ask(llm)
    assert [request.retry_count for request in gateway.ledger().requests] == [0, 1, 2]
    assert captured.attributes()["stallwatch.attempts"] == 3
