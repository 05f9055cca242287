"""A program that ends in the middle of everything ends as with the bare SDK: same code, same words, no later.

Each program is run twice, bare and guarded. That every open span is exported is in tests/runtimes/test_exits.py.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from support.children import spawn
from support.places import Place

SOON = 1.0
"""Seconds that the end of a guarded program may take beyond that of the bare one; twice that shows the machine."""

_ASYNCIO = re.compile(
    r"an error occurred during closing of asynchronous generator .*?generator is already running\n", re.DOTALL
)
"""What asyncio says when it ends a loop's generators all at once, in whatever order their places in memory make, and
some wait for each other. So it does with the bare SDK: of one generator or another, or of none, in each process."""

TOO_LATE = "Already shutdown, dropping span.\n"
"""What older releases of the telemetry SDK say of any span that ends after their own hook at exit has run."""

PROGRAM = """
import asyncio, atexit, os, signal, sys, threading, time
import openai
from support.places import MESSAGES

base_url, how, guarded = sys.argv[1:]
# Whoever started the tests may have had interrupts ignored, as shells do in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
options = {"base_url": base_url, "api_key": "sk-test", "max_retries": 0, "timeout": 30}
STALLS = "stall-after:tokens=2,gap=0"

def request(model=STALLS):
    return {"model": model, "messages": MESSAGES, "stream": True}

def ask():
    with openai.OpenAI(**options) as client:
        chunks = list(client.chat.completions.create(**request("healthy:tokens=2,gap=0")))
    print("asked at exit:", len(chunks), flush=True)

if how == "asks in an earlier atexit":
    atexit.register(ask)
if guarded == "guarded":
    import stallwatch
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    class Nowhere(SpanExporter):
        def export(self, spans):
            return SpanExportResult.SUCCESS
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    stallwatch.OpenAIInstrumentor().instrument(tracer_provider=provider, skip_dep_check=True, idle=25, first_token=25)
if how == "asks in a later atexit":
    atexit.register(ask)

def ending():
    print("ending", flush=True)

def opened(read=2):
    stream = openai.OpenAI(**options).chat.completions.create(**request())
    for _ in range(read):
        next(stream)
    return stream

async def opened_async(read=2):
    stream = await openai.AsyncOpenAI(**options).chat.completions.create(**request())
    for _ in range(read):
        await anext(stream)
    return stream

def in_threads(count=5):
    reading = threading.Semaphore(0)
    def read():
        stream = opened(3)
        reading.release()
        next(stream)
    for _ in range(count):
        threading.Thread(target=read, daemon=True).start()
    for _ in range(count):
        reading.acquire()

def soon(number):
    def strike():
        time.sleep(0.2)
        ending()
        os.kill(os.getpid(), number)
    threading.Thread(target=strike, daemon=True).start()

async def leave_async(how):
    stream = await opened_async()
    if how == "exit in a task":
        await anext(stream)
        ending()
        sys.exit(4)
    if how == "error in a task":
        ending()
        raise LookupError("of the user's")
    if how == "a task that reads":
        await anext(stream)
        task = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.1)
        ending()
        return

if how == "exit in a stream":
    for number, _ in enumerate(opened(0)):
        if number == 2:
            ending()
            sys.exit(3)
elif how == "error in a stream":
    for number, _ in enumerate(opened(0)):
        if number == 2:
            ending()
            raise LookupError("of the user's")
elif how == "os._exit":
    kept = opened()
    in_threads()
    ending()
    os._exit(7)
elif how == "exit beside threads":
    in_threads()
    ending()
    sys.exit("enough")
elif how.startswith("asks in"):
    kept = opened()
    ending()
elif how == "closes at exit":
    atexit.register(opened().close)
    ending()
elif how == "interrupted":
    soon(signal.SIGINT)
    for _ in opened(0):
        pass
elif how == "interrupted before headers":
    soon(signal.SIGINT)
    openai.OpenAI(**options).chat.completions.create(**request("never-responds"))
else:
    asyncio.run(leave_async(how))
"""


@dataclass(frozen=True)
class End:
    """How a program ended."""

    code: int
    said: str
    complained: str
    seconds: float


def _run(base_url: str, how: str, kind: str) -> End:
    process = spawn(PROGRAM, base_url, how, kind).process
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    ending = time.monotonic()
    assert line == "ending\n", (line, process.communicate(timeout=10))
    try:
        out, err = process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{kind}: it does not end:\n{out}\n{err}") from None
    seconds = time.monotonic() - ending
    # Two processes have their objects in different places.
    return End(process.returncode, out, re.sub(r"0x[0-9a-f]+", "0x", _ASYNCIO.sub("", err)), seconds)


WAYS = (
    "exit in a stream",
    "error in a stream",
    "os._exit",
    "exit beside threads",
    "asks in an earlier atexit",
    "asks in a later atexit",
    "closes at exit",
    "exit in a task",
    "error in a task",
    "a task that reads",
)


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
def test_a_program_ends_as_with_the_bare_sdk(plain: Place, how: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        bare, guarded = threads.map(lambda kind: _run(plain.base_url, how, kind), ("bare", "guarded"))
    # The bare SDK has been seen to crash the interpreter there (Python 3.13.0); what is ours only has to end.
    assert guarded.code == (0 if bare.code == -signal.SIGSEGV else bare.code)
    assert guarded.said == bare.said
    assert guarded.complained.replace(TOO_LATE, "") == bare.complained
    assert how == "asks in an earlier atexit" or TOO_LATE not in guarded.complained
    assert guarded.seconds < 2 * bare.seconds + SOON


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no signals to speak of")
@pytest.mark.parametrize("how", ["interrupted", "interrupted before headers"])
def test_an_interrupt_ends_a_program_as_with_the_bare_sdk(plain: Place, how: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        bare, guarded = threads.map(lambda kind: _run(plain.base_url, how, kind), ("bare", "guarded"))
    assert guarded.code == bare.code == -signal.SIGINT
    # The traceback shows where it was, which is in our frames; its last line is the interrupt and nothing else.
    assert guarded.complained.splitlines()[-1:] == bare.complained.splitlines()[-1:]
    assert guarded.complained.count("Traceback") == bare.complained.count("Traceback")
    assert guarded.seconds < 2 * bare.seconds + SOON
