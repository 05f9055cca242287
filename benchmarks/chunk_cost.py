"""Measures the CPU time of a chunk with and without the guard: ``python -m benchmarks.chunk_cost``.

One process reads many streams at once, as a server does, so that every chunk is a read of its own; the fault gateway
runs in a process of its own and is not counted. Rounds without and with the guard take turns, because machines differ
from minute to minute.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

import openai
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import stallwatch

GATEWAY = """
from stallwatch.testing import FaultGateway
with FaultGateway() as gateway:
    print(gateway.base_url, flush=True)
    input()
"""
GAP = 0.03
"""Seconds between two chunks of a stream."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the medians of the rounds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chunk_cost", description=__doc__)
    parser.add_argument("--streams", type=int, default=100, metavar="N", help="open at once")
    parser.add_argument("--chunks", type=int, default=200, metavar="N", help="of each stream")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    options = parser.parse_args(argv)
    command = [sys.executable, "-c", GATEWAY]
    costs: dict[bool, list[float]] = {False: [], True: []}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        address = gateway.stdout.readline().strip()
        for _ in range(options.rounds):
            for guarded, found in costs.items():
                found.append(_round(address, guarded, options.streams, options.chunks))
        gateway.communicate("\n")
    for guarded, found in costs.items():
        told = ", ".join(f"{1e6 * cost:.0f}" for cost in found)
        print(f"{'guarded' if guarded else 'bare':8} {1e6 * median(found):.0f} us of CPU a chunk ({told})")
    return 0


def _round(address: str, guarded: bool, streams: int, chunks: int) -> float:
    instrumentor = stallwatch.OpenAIInstrumentor()
    if guarded:
        instrumentor.instrument(
            meter_provider=MeterProvider([InMemoryMetricReader()]), tracer_provider=TracerProvider()
        )
    try:
        return asyncio.run(_read(address, streams, chunks))
    finally:
        if guarded:
            instrumentor.uninstrument()


async def _read(address: str, streams: int, chunks: int) -> float:
    async with openai.AsyncOpenAI(base_url=address, api_key="none") as client:
        # The SDK imports its resources on first use.
        await _one(client, 1)
        began = time.process_time()
        read = sum(await asyncio.gather(*(_one(client, chunks) for _ in range(streams))))
        return (time.process_time() - began) / read


async def _one(client: openai.AsyncOpenAI, chunks: int) -> int:
    stream = await client.chat.completions.create(
        model=f"healthy:tokens={chunks},gap={GAP}",
        messages=[{"role": "user", "content": "Tell me a story."}],
        stream=True,
    )
    return len([chunk async for chunk in stream])


if __name__ == "__main__":
    sys.exit(main())
