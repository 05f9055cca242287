"""The end of the interpreter in the middle of streams: prompt, without a word, and every open span is exported once."""

from __future__ import annotations

import pytest

from support.children import spawn
from support.leaks import wait_until
from support.places import Place

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio, sys, threading, time
import openai, stallwatch
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from support.places import MESSAGES
from support.traffic import client_options

base_url, how = sys.argv[1:]
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(
    formatter=lambda span: '"' + str(span.attributes["stallwatch.outcome"]) + '"\\n')))
stallwatch.OpenAIInstrumentor().instrument(tracer_provider=provider, skip_dep_check=True, idle=60, first_token=60)

def request(number, model="stall-after:tokens=2,gap=0"):
    return {"model": f"{model},id={number}", "messages": MESSAGES, "stream": True}

def read(number, reading):
    model = "never-responds:after=0" if how == "before headers" else "stall-after:tokens=2,gap=0"
    client = openai.OpenAI(**client_options(base_url))
    if how == "before headers":
        reading.release()
        client.chat.completions.create(model=f"never-responds:id={number}", messages=MESSAGES, stream=True)
        return
    stream = client.chat.completions.create(**request(number))
    for _ in range(3):
        next(stream)
    reading.release()
    next(stream)

async def read_async(number, reading):
    client = openai.AsyncOpenAI(**client_options(base_url))
    stream = await client.chat.completions.create(**request(number))
    for _ in range(3):
        await anext(stream)
    reading.release()
    await anext(stream)

async def leave_pending():
    reading = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(read_async(number, reading)) for number in range(5)]
    for _ in tasks:
        await reading.acquire()

if how == "pending tasks":
    asyncio.run(leave_pending())
else:
    reading = threading.Semaphore(0)
    for number in range(5):
        threading.Thread(target=read, args=(number, reading), daemon=True).start()
    for _ in range(5):
        reading.acquire()
    if how == "before headers":
        time.sleep(0.3)
print('"ending"', flush=True)
"""


@pytest.mark.parametrize(
    ("how", "outcome"),
    [("blocked threads", "abandoned"), ("before headers", "abandoned"), ("pending tasks", "cancelled")],
)
def test_an_exit_is_prompt_silent_and_exports_every_span_once(plain: Place, how: str, outcome: str) -> None:
    child = spawn(PROGRAM, plain.base_url, how)
    said: list[str] = []
    while "ending" not in said:
        said.append(child.line())
    rest, err = child.finish(within=5)
    assert sorted([*said, *rest]) == [*[outcome] * 5, "ending"]
    assert err == ""
    wait_until(
        lambda: all(request.closed_how for request in plain.gateway.ledger().requests), plain.gateway.ledger
    )
