"""pydantic-ai: an Agent over its OpenAI models, alone and in a FallbackModel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import openai
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from frameworks.surface import MODEL, QUESTION, Ask, Caught, Surface

__all__ = ["SURFACES"]

CAUGHT = Caught(name="ModelTimeoutError", openai_timeout=False, builtin_timeout=False)


def provider(ask: Ask) -> OpenAIProvider:
    client = openai.AsyncOpenAI(base_url=ask.base_url, api_key="test", **ask.given("max_retries"))
    return OpenAIProvider(openai_client=client)


def surfaces(api: str, model: Callable[[Ask], Any]) -> list[Surface]:
    def run_sync(ask: Ask) -> Iterator[str]:
        yield Agent(model(ask)).run_sync(QUESTION).output

    async def run(ask: Ask) -> AsyncIterator[str]:
        yield (await Agent(model(ask)).run(QUESTION)).output

    async def run_stream(ask: Ask) -> AsyncIterator[str]:
        async with Agent(model(ask)).run_stream(QUESTION) as answer:
            async for piece in answer.stream_text(delta=True, debounce_by=None):
                yield piece

    return [
        Surface(name=f"pydantic-ai {api} run_sync", play=run_sync, streams=False, caught=CAUGHT),
        Surface(name=f"pydantic-ai {api} run", play=run, streams=False, caught=CAUGHT),
        Surface(name=f"pydantic-ai {api} run_stream", play=run_stream, caught=CAUGHT),
    ]


SURFACES = [
    *surfaces("chat", lambda ask: OpenAIChatModel(MODEL, provider=provider(ask))),
    *surfaces("responses", lambda ask: OpenAIResponsesModel(MODEL, provider=provider(ask))),
]
