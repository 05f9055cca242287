"""A program as users write them: it answers requests, each in a span of its own, with calls to a model.

The tests run it as ``opentelemetry-instrument python program.py PLAN.json [stay]``. The plan lists what to ask and how;
the service comes from OPENAI_BASE_URL and OPENAI_API_KEY. One JSON line on stdout tells of each request: its trace, how
it ended and how long it took. With ``stay`` it then waits, as a service does, until it is told to end: a process that
Prometheus scrapes itself can be asked nothing afterwards.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

import stallwatch

PROMPT = "SENTINEL-PROMPT why do streams go silent?"
MESSAGES: Any = [{"role": "user", "content": PROMPT}]
Call = dict[str, Any]

tracer = trace.get_tracer("e2e.program")


def main() -> None:
    calls: list[Call] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with openai.OpenAI() as client, ThreadPoolExecutor(len(calls)) as pool:
        # The SDK imports its resources on first use, and a loaded machine takes long over that.
        _ = client.chat.completions, client.responses, client.embeddings
        for done in [pool.submit(answer, client, call) for call in calls]:
            done.result()
    if sys.argv[2:] == ["stay"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        signal.pause()


def answer(client: openai.OpenAI, call: Call) -> None:
    time.sleep(call.get("after", 0.0))
    began = time.monotonic()
    # Not an error of the request's own: only what the instrumentation puts on its own spans is to be judged.
    with (
        tracer.start_as_current_span("answer", attributes={"e2e.case": call["case"]}) as span,
        ExitStack() as stack,
    ):
        if policy := call.get("policy"):
            stack.enter_context(stallwatch.policy(**policy))
        try:
            KINDS[call["kind"]](client, call)
            end = "returned"
        except (openai.OpenAIError, stallwatch.StallwatchError) as error:
            end = type(error).__name__
        seconds = time.monotonic() - began
        time.sleep(call.get("linger", 0.0))
        tell(span, case=call["case"], end=end, seconds=seconds)


def chat(client: openai.OpenAI, call: Call, **options: Any) -> Any:
    return client.chat.completions.create(
        model=call["model"], messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **options
    )


def stream(client: openai.OpenAI, call: Call) -> None:
    for _ in chat(client, call):
        pass


def stream_async(_: openai.OpenAI, call: Call) -> None:
    async def read() -> None:
        async with openai.AsyncOpenAI() as client:
            chunks = await client.chat.completions.create(
                model=call["model"], messages=MESSAGES, stream=True, stream_options={"include_usage": True}
            )
            async for _ in chunks:
                pass

    asyncio.run(read())


def plain(client: openai.OpenAI, call: Call) -> None:
    client.chat.completions.create(model=call["model"], messages=MESSAGES)


def embed(client: openai.OpenAI, call: Call) -> None:
    client.embeddings.create(model=call["model"], input=PROMPT)


def respond(client: openai.OpenAI, call: Call) -> None:
    for _ in client.responses.create(model=call["model"], input=PROMPT, stream=True):
        pass


def cancel(client: openai.OpenAI, call: Call) -> None:
    """Give up a run from another thread, as a stop button does."""
    with stallwatch.Run(name="answer") as run:
        timer = threading.Timer(call["cancel_after"], run.cancel, ["user stop"])
        timer.start()
        try:
            stream(client, call)
        finally:
            timer.cancel()


def close_early(client: openai.OpenAI, call: Call) -> None:
    with chat(client, call) as chunks:
        for number, _ in enumerate(chunks):
            if number == 3:
                break


def routed(client: openai.OpenAI, call: Call) -> None:
    hedge = call.get("hedge")
    router = stallwatch.Router(
        [
            stallwatch.Route(client=client, model=call["model"], name="primary"),
            stallwatch.Route(client=client, model=call["backup"], name="backup"),
        ],
        # A share of 1: every call of a test is to be hedged.
        hedge=None if hedge is None else stallwatch.HedgePolicy(delay=hedge, max_share=1.0),
    )
    for _ in router.chat.completions.create(messages=MESSAGES, stream=True):
        pass


def with_secrets_in_the_address(client: openai.OpenAI, call: Call) -> None:
    """Some services want a key in the address; it must not come out anywhere."""
    address = str(client.base_url).replace("://", "://SENTINELUSER:SENTINELPASS@")
    stream(client.with_options(base_url=address, default_query={"api-key": "SENTINELQUERY"}), call)


def beside_a_careless_neighbour(client: openai.OpenAI, call: Call) -> None:
    """Record what other instrumentations are known to record."""
    with tracer.start_as_current_span("neighbour") as span:
        span.set_attributes(
            {
                "e2e.neighbour": True,
                "gen_ai.input.messages": PROMPT,
                "gen_ai.prompt.0.content": PROMPT,
                "gen_ai.prompt.name": "greeting",
                "llm.input_messages.0.message.content": PROMPT,
                "input.value": PROMPT,
                "gen_ai.usage.input_tokens": 7,
                "http.request.header.authorization": "Bearer sk-SENTINELKEY0123456789",
                "url.full": "http://SENTINELUSER:SENTINELPASS@models.example.com/v1/chat?api-key=SENTINELQUERY",
                "url.query": "api-key=SENTINELQUERY",
                "note": "asked with sk-SENTINELKEY0123456789",
            }
        )
        span.add_event("gen_ai.content.prompt", {"gen_ai.prompt": PROMPT, "gen_ai.event.content": PROMPT})
        address = "http://SENTINELUSER:SENTINELPASS@x/?k=SENTINELQUERY"
        span.set_status(Status(StatusCode.ERROR, f"401 at {address} sk-SENTINELKEY0123456789"))


KINDS: dict[str, Callable[[openai.OpenAI, Call], None]] = {
    "stream": stream,
    "stream_async": stream_async,
    "plain": plain,
    "embed": embed,
    "respond": respond,
    "cancel": cancel,
    "close_early": close_early,
    "routed": routed,
    "with_secrets_in_the_address": with_secrets_in_the_address,
    "beside_a_careless_neighbour": beside_a_careless_neighbour,
}

telling = threading.Lock()


def tell(span: Span, **facts: object) -> None:
    line = json.dumps({"trace": format(span.get_span_context().trace_id, "032x"), "at": time.time(), **facts})
    with telling:
        print(line, flush=True)


if __name__ == "__main__":
    main()
