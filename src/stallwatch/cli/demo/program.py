"""A plain OpenAI program: ask a question, read the answer as it streams, tell on stdout what happened and when.

Nothing in here knows of a guard. ``stallwatch demo`` runs this file as ``python program.py ...`` and as
``opentelemetry-instrument python program.py ...``; the service comes from OPENAI_BASE_URL and OPENAI_API_KEY.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import openai

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Why do streams go silent?"}]


def main() -> None:
    options = command_line().parse_args()
    if options.api == "async":
        asyncio.run(with_async_client(options))
    else:
        with_client(options)


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Stream one answer and print one JSON line per chunk.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--api", choices=("sync", "async"), default="sync")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to think about what was read")
    parser.add_argument(
        "--pause-after", type=int, nargs="*", default=[], help="after which chunks to do that"
    )
    return parser


def with_client(options: argparse.Namespace) -> None:
    with openai.OpenAI() as client:
        # The SDK imports its resources on first use, and that is no wait for the server.
        ask(client.chat.completions, options)


async def with_async_client(options: argparse.Namespace) -> None:
    async with openai.AsyncOpenAI() as client:
        await ask_async(client.chat.completions, options)


def ask(completions: Any, options: argparse.Namespace) -> None:
    tell("request")
    try:
        stream = completions.create(model=options.model, messages=QUESTION, stream=True)
        for number, chunk in enumerate(stream, start=1):
            tell_chunk(chunk)
            if number in options.pause_after:
                tell("pause", seconds=options.pause)
                time.sleep(options.pause)
        tell("completed")
    except openai.APITimeoutError as error:
        tell_error("timeout", error)
    except openai.OpenAIError as error:
        tell_error("error", error)


async def ask_async(completions: Any, options: argparse.Namespace) -> None:
    tell("request")
    try:
        stream = await completions.create(model=options.model, messages=QUESTION, stream=True)
        number = 0
        async for chunk in stream:
            number += 1
            tell_chunk(chunk)
            if number in options.pause_after:
                tell("pause", seconds=options.pause)
                await asyncio.sleep(options.pause)
        tell("completed")
    except openai.APITimeoutError as error:
        tell_error("timeout", error)
    except openai.OpenAIError as error:
        tell_error("error", error)


def tell_chunk(chunk: ChatCompletionChunk) -> None:
    text = "".join(choice.delta.content or "" for choice in chunk.choices)
    finish = next((choice.finish_reason for choice in chunk.choices if choice.finish_reason), None)
    tell("chunk", text=text, finish=finish)


def tell_error(event: str, error: Exception) -> None:
    kind = type(error)
    tell(
        event,
        type=f"{kind.__module__}.{kind.__qualname__}",
        message=str(error),
        code=getattr(error, "code", None),
    )


def tell(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "at": time.time(), **facts}), flush=True)


if __name__ == "__main__":
    main()
