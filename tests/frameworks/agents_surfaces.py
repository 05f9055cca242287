"""The OpenAI Agents SDK: a Runner over its chat-completions and its Responses model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled

from frameworks.surface import MODEL, OUR_TOTAL, QUESTION, Ask, Surface

__all__ = ["SURFACES"]

# Its traces go to OpenAI's servers otherwise.
set_tracing_disabled(True)


def surfaces(api: str, kind: type[OpenAIChatCompletionsModel | OpenAIResponsesModel]) -> list[Surface]:
    def agent(ask: Ask) -> Agent:
        client = openai.AsyncOpenAI(base_url=ask.base_url, api_key="test", **ask.given("max_retries"))
        return Agent(name="Teller", model=kind(model=MODEL, openai_client=client), **ask.extra)

    def run_sync(ask: Ask) -> Iterator[str]:
        yield Runner.run_sync(agent(ask), QUESTION).final_output

    async def run(ask: Ask) -> AsyncIterator[str]:
        yield (await Runner.run(agent(ask), QUESTION)).final_output

    async def run_streamed(ask: Ask) -> AsyncIterator[str]:
        result = Runner.run_streamed(agent(ask), QUESTION)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                yield event.data.delta

    return [
        Surface(name=f"agents {api} run_sync", play=run_sync, streams=False, caught=OUR_TOTAL),
        Surface(name=f"agents {api} run", play=run, streams=False, caught=OUR_TOTAL),
        Surface(name=f"agents {api} run_streamed", play=run_streamed),
    ]


SURFACES = [*surfaces("chat", OpenAIChatCompletionsModel), *surfaces("responses", OpenAIResponsesModel)]
