"""LiteLLM: its functions and its Router, on the OpenAI provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import litellm

from frameworks.surface import MODEL, QUESTION, Ask, Caught, Surface

__all__ = ["SURFACES"]

MESSAGES = [{"role": "user", "content": QUESTION}]

TIMEOUT = Caught(name="Timeout", openai_timeout=True, builtin_timeout=False)


def request(ask: Ask) -> dict[str, Any]:
    return {
        "model": f"openai/{MODEL}",
        "messages": MESSAGES,
        "api_base": ask.base_url,
        "api_key": "test",
        **ask.given("max_retries"),
        **ask.extra,
    }


def completion(ask: Ask) -> Iterator[str]:
    yield litellm.completion(**request(ask)).choices[0].message.content


def completion_stream(ask: Ask) -> Iterator[str]:
    for chunk in litellm.completion(**request(ask), stream=True):
        if chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


async def acompletion(ask: Ask) -> AsyncIterator[str]:
    yield (await litellm.acompletion(**request(ask))).choices[0].message.content


async def acompletion_stream(ask: Ask) -> AsyncIterator[str]:
    async for chunk in await litellm.acompletion(**request(ask), stream=True):
        if chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


def router(ask: Ask) -> litellm.Router:
    entry = {
        "model_name": MODEL,
        "litellm_params": {
            "model": f"openai/{MODEL}",
            "api_base": ask.base_url,
            "api_key": "test",
            **ask.given("max_retries"),
        },
    }
    return litellm.Router(model_list=[entry], **ask.given("num_retries"), **ask.extra)


def router_stream(ask: Ask) -> Iterator[str]:
    for chunk in router(ask).completion(model=MODEL, messages=MESSAGES, stream=True):
        if chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


async def router_astream(ask: Ask) -> AsyncIterator[str]:
    async for chunk in await router(ask).acompletion(model=MODEL, messages=MESSAGES, stream=True):
        if chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


SURFACES = [
    Surface(name="litellm completion", play=completion, streams=False, caught=TIMEOUT),
    Surface(name="litellm completion stream", play=completion_stream, caught=TIMEOUT),
    Surface(name="litellm acompletion", play=acompletion, streams=False, caught=TIMEOUT),
    Surface(name="litellm acompletion stream", play=acompletion_stream, caught=TIMEOUT),
    Surface(name="litellm Router stream", play=router_stream, caught=TIMEOUT, spans=3, slow=True),
    Surface(name="litellm Router astream", play=router_astream, caught=TIMEOUT, spans=3, slow=True),
]
