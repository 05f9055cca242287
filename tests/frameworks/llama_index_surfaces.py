"""LlamaIndex: OpenAI, OpenAILike and OpenAIResponses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI, OpenAIResponses
from llama_index.llms.openai_like import OpenAILike

from frameworks.surface import MODEL, OUR_TOTAL, QUESTION, Ask, Surface

__all__ = ["SURFACES"]

MESSAGES = [ChatMessage(role="user", content=QUESTION)]


def surfaces(api: str, kind: Any, **more: Any) -> list[Surface]:
    def llm(ask: Ask) -> Any:
        return kind(
            model=MODEL,
            api_base=ask.base_url,
            api_key="test",
            **ask.given("max_retries"),
            **more,
            **ask.extra,
        )

    def complete(ask: Ask) -> Iterator[str]:
        yield llm(ask).complete(QUESTION).text

    def stream_chat(ask: Ask) -> Iterator[str]:
        for piece in llm(ask).stream_chat(MESSAGES):
            if piece.delta:
                yield piece.delta

    async def achat(ask: Ask) -> AsyncIterator[str]:
        yield (await llm(ask).achat(MESSAGES)).message.content or ""

    async def astream_chat(ask: Ask) -> AsyncIterator[str]:
        async for piece in await llm(ask).astream_chat(MESSAGES):
            if piece.delta:
                yield piece.delta

    # Its Responses client passes over the events of failed answers, and gives back what came before.
    told = kind is not OpenAIResponses

    def plain(method: str, play: Any) -> Surface:
        return Surface(
            name=f"llama-index {api} {method}",
            play=play,
            streams=False,
            caught=OUR_TOTAL,
            refused=12,
            spans=3,
            tells_error_frames=told,
        )

    def stream(method: str, play: Any) -> Surface:
        return Surface(name=f"llama-index {api} {method}", play=play, refused=4, tells_error_frames=told)

    return [
        plain("complete", complete),
        stream("stream_chat", stream_chat),
        plain("achat", achat),
        stream("astream_chat", astream_chat),
    ]


SURFACES = [
    *surfaces("OpenAI", OpenAI),
    *surfaces("OpenAILike", OpenAILike, is_chat_model=True),
    *surfaces("OpenAIResponses", OpenAIResponses),
]
