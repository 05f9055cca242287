"""LangChain's ChatOpenAI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_openai import ChatOpenAI

from frameworks.surface import MODEL, QUESTION, Ask, Caught, Surface

__all__ = ["SURFACES"]


def chat(ask: Ask, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL, base_url=ask.base_url, api_key="test", **ask.given("max_retries"), **more, **ask.extra
    )


def surfaces(api: str, **more: Any) -> list[Surface]:
    def invoke(ask: Ask) -> Iterator[str]:
        yield chat(ask, **more).invoke(QUESTION).text

    def stream(ask: Ask) -> Iterator[str]:
        for chunk in chat(ask, **more).stream(QUESTION):
            if chunk.text:
                yield chunk.text

    async def ainvoke(ask: Ask) -> AsyncIterator[str]:
        yield (await chat(ask, **more).ainvoke(QUESTION)).text

    async def astream(ask: Ask) -> AsyncIterator[str]:
        async for chunk in chat(ask, **more).astream(QUESTION):
            if chunk.text:
                yield chunk.text

    async def astream_events(ask: Ask) -> AsyncIterator[str]:
        async for event in chat(ask, **more).astream_events(QUESTION, version="v2"):
            if event["event"] == "on_chat_model_stream" and event["data"]["chunk"].text:
                yield event["data"]["chunk"].text

    synchronous = Caught(name="OpenAITimeoutError", openai_timeout=True, builtin_timeout=False)
    # Its own limit, ``stream_chunk_timeout``, catches any TimeoutError and takes it for its own.
    asynchronous = Caught(name="StreamChunkTimeoutError", openai_timeout=False, builtin_timeout=True)
    return [
        Surface(name=f"langchain {api} invoke", play=invoke, streams=False, caught=synchronous),
        Surface(name=f"langchain {api} stream", play=stream, caught=synchronous),
        Surface(name=f"langchain {api} ainvoke", play=ainvoke, streams=False, caught=synchronous),
        Surface(name=f"langchain {api} astream", play=astream, caught=asynchronous),
        Surface(name=f"langchain {api} astream_events", play=astream_events, caught=asynchronous),
    ]


SURFACES = [*surfaces("chat"), *surfaces("responses", use_responses_api=True)]
