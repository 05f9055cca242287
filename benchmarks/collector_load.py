"""Measures what undecided traces and spans cost a collector: ``python -m benchmarks.collector_load URL --pid PID``.

Start a collector with the configuration to be measured, and give the address of its OTLP receiver over HTTP and its
process id (on Linux: memory and CPU time are read from ``/proc``). Copies of one real span are sent with ids of their
own, ``--spans`` to a trace. Without ``--roots`` every span has a parent that never comes, so that the sampler holds all
of them; with it the first span of each trace is its root, and traces are decided while others come.

The spans must fit into the collector's ``num_traces`` and memory. The sender is one Python process on the same
machine: how many spans a second go through is its limit, not the collector's, so CPU time is what is told.
"""

from __future__ import annotations

import argparse
import http.client
import random
import sys
import time
import urllib.parse
from collections.abc import Iterator, Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from benchmarks import spent
from benchmarks.span_sizes import measured

BATCH = 512
"""Spans of a request; the Python SDK's own default."""
SETTLED = 8.0
"""Seconds after which decisions on traces with roots have been made."""


def main(argv: Sequence[str] | None = None) -> int:
    """Send the spans and print what they cost."""
    options = _parser().parse_args(argv)
    held, used = spent.memory(options.pid), spent.cpu(options.pid)
    began = time.monotonic()
    sent = size = 0
    address = urllib.parse.urlsplit(options.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    for body in _requests(options.traces, options.spans, options.roots):
        connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            print(f"collector_load: refused with {answer.status} after {sent} spans", file=sys.stderr)
            return 1
        sent, size = sent + BATCH, size + len(body)
    seconds = time.monotonic() - began
    time.sleep(SETTLED)
    memory, cpu = spent.memory(options.pid) - held, spent.cpu(options.pid) - used
    print(f"{sent} spans of {size / sent:.0f} bytes in {seconds:.1f} s")
    print(f"CPU: {cpu:.1f} s, {1e6 * cpu / sent:.0f} us a span, {sent / cpu:.0f} spans a second and core")
    traces = sent // options.spans
    print(
        f"memory: {memory / 2**20:.0f} MiB more, {memory / traces:.0f} bytes a trace of {options.spans} spans"
    )
    return 0


def _requests(traces: int, spans: int, roots: bool) -> Iterator[bytes]:
    """Yield the bodies of requests, each of whole traces."""
    request = encode_spans([measured()["healthy"]])
    batch = request.resource_spans[0].scope_spans[0].spans
    for _ in range(BATCH - 1):
        batch.add().CopyFrom(batch[0])
    dice = random.Random(1)
    trace = root = b""
    for _ in range(-(-traces * spans // BATCH)):
        now = time.time_ns()
        for number, span in enumerate(batch):
            if number % spans == 0:
                trace, root = dice.randbytes(16), dice.randbytes(8)
            first = roots and number % spans == 0
            span.trace_id, span.span_id = trace, root if first else dice.randbytes(8)
            span.parent_span_id = b"" if first else root
            span.start_time_unix_nano, span.end_time_unix_nano = now - 2_000_000_000, now
        yield request.SerializeToString()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collector_load", description=__doc__)
    parser.add_argument("url", help="address of the OTLP receiver over HTTP, as http://127.0.0.1:4318")
    parser.add_argument("--pid", type=int, required=True, help="the collector's process id")
    parser.add_argument("--traces", type=int, default=50_000, metavar="N")
    parser.add_argument("--spans", type=int, default=1, choices=(1, 2, 4, 8), help="spans of a trace")
    parser.add_argument("--roots", action="store_true", help="send the root of each trace")
    return parser


if __name__ == "__main__":
    sys.exit(main())
