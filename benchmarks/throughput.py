"""Fifty streams of two thousand chunks as fast as they can be read: what the product costs a program at full load.

    python -m benchmarks.throughput [--streams 50] [--chunks 2000] [--rounds 3]

The chunks come out of memory, so that nothing but the SDK and the product is measured. Rounds of the bare SDK and of
each kind of exporter alternate, and each is compared with the bare round beside it: wall time in one event loop and in
sixteen threads, and how late a ticker in the loop is.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from statistics import median, quantiles
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import stallwatch
from benchmarks.feed import Feed

__all__ = ["EXPORTERS", "dead", "in_memory", "in_one_loop", "in_threads", "none"]

THREADS = 16
TICK = 0.001
_MESSAGES: Any = [{"role": "user", "content": "Tell me a story."}]


class _Dead(SpanExporter):
    """Never answers, until it is let go."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        """Wait for ever."""
        self.over.wait()
        return SpanExportResult.FAILURE


@contextmanager
def _instrumented(**providers: Any) -> Iterator[None]:
    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(skip_dep_check=True, **providers)
    try:
        yield
    finally:
        instrumentor.uninstrument()


@contextmanager
def none() -> Iterator[None]:
    """No telemetry SDK: what is recorded goes nowhere."""
    with _instrumented():
        yield


@contextmanager
def in_memory() -> Iterator[None]:
    """Spans and metrics are kept in memory."""
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    with _instrumented(tracer_provider=tracers, meter_provider=meters):
        yield


@contextmanager
def dead() -> Iterator[None]:
    """The exporter of spans never answers."""
    exporter = _Dead()
    # So that it is busy, and stuck, from the first spans on.
    processor = BatchSpanProcessor(exporter, schedule_delay_millis=1, max_export_batch_size=1)
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(processor)
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    with _instrumented(tracer_provider=tracers, meter_provider=meters):
        try:
            yield
        finally:
            exporter.over.set()
            processor.shutdown()


EXPORTERS: dict[str, Callable[[], Any]] = {"no SDK": none, "in memory": in_memory, "never answers": dead}


def in_one_loop(feed: Feed, streams: int) -> tuple[float, list[float]]:
    """Read so many streams at once in one loop; return seconds, and how late each tick was."""
    return asyncio.run(_in_loop(feed, streams))


async def _in_loop(feed: Feed, streams: int) -> tuple[float, list[float]]:
    feed.suspending = True
    late: list[float] = []
    async with feed.async_client() as client:

        async def read() -> None:
            stream = await client.chat.completions.create(model="gpt-4o", messages=_MESSAGES, stream=True)
            async for _ in stream:
                pass

        async def tick() -> None:
            while True:
                due = time.perf_counter() + TICK
                await asyncio.sleep(TICK)
                late.append(time.perf_counter() - due)

        ticker = asyncio.create_task(tick())
        begun = time.perf_counter()
        await asyncio.gather(*(read() for _ in range(streams)))
        taken = time.perf_counter() - begun
        ticker.cancel()
    return taken, late


def in_threads(feed: Feed, streams: int) -> float:
    """Read so many streams in sixteen threads; return seconds."""
    with feed.client() as client, ThreadPoolExecutor(THREADS) as pool:

        def read(_: int) -> None:
            for _chunk in client.chat.completions.create(model="gpt-4o", messages=_MESSAGES, stream=True):
                pass

        begun = time.perf_counter()
        list(pool.map(read, range(streams)))
        return time.perf_counter() - begun


def _round(feed: Feed, streams: int) -> tuple[float, ...]:
    """Return wall and CPU seconds in one loop, the 99th percentile of its ticks' lateness, and both in threads."""
    begun = time.process_time()
    taken, late = in_one_loop(feed, streams)
    between = time.process_time()
    threads = in_threads(feed, streams)
    lateness = quantiles(late, n=100)[98] if len(late) > 1 else 0.0
    return taken, between - begun, lateness, threads, time.process_time() - between


def measure(streams: int, chunks: int, rounds: int) -> dict[str, list[float]]:
    """Return by exporter: wall and CPU over bare in one loop, lateness in ms, wall and CPU over bare in threads."""
    feed = Feed()
    feed.tokens = chunks
    found: dict[str, list[list[float]]] = {"bare": [], **{name: [] for name in EXPORTERS}}
    for number in range(rounds + 1):
        for name, block in {"bare": nullcontext, **EXPORTERS}.items():
            before = _round(feed, streams)
            with block():
                one = _round(feed, streams)
            if number:
                # The first round imports and fills caches.
                over = [mine / bare for mine, bare in zip(one, before, strict=True)]
                found[name].append([*over[:2], one[2] * 1000, *over[3:]])
    return {name: [median(column) for column in zip(*each, strict=True)] for name, each in found.items()}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("streams", 50), ("chunks", 2000), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    print("| exporter | one loop: wall, CPU over bare | lateness, p99 | 16 threads: wall, CPU over bare |")
    print("| --- | --- | --- | --- |")
    found = measure(options.streams, options.chunks, options.rounds)
    for name, (wall, cpu, late, threads_wall, threads_cpu) in found.items():
        print(f"| {name} | {wall:.2f}, {cpu:.2f} | {late:.1f} ms | {threads_wall:.2f}, {threads_cpu:.2f} |")


if __name__ == "__main__":
    main()
