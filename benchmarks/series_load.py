"""Measures what series cost collector and Prometheus: ``python -m benchmarks.series_load URL --pid PID [--pid PID]``.

Start a collector, and a Prometheus that scrapes it, and give the address of the collector's OTLP receiver over HTTP
and both process ids (on Linux: memory and CPU time are read from ``/proc``). The metrics of one real process, with all
kinds of calls to one model, are sent as those of many, once every ``--every`` seconds.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

from benchmarks import cardinality, spent


def main(argv: Sequence[str] | None = None) -> int:
    """Send the metrics and print what each process spent."""
    options = _parser().parse_args(argv)
    address = urllib.parse.urlsplit(options.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    data = cardinality.measured(cardinality.routed)
    request, each = encode_metrics(data), sum(cardinality.series(data).values())
    before = {pid: (spent.memory(pid), spent.cpu(pid)) for pid in options.pid}
    for _ in range(options.rounds):
        began = time.monotonic()
        for number in range(options.processes):
            _name(request, f"process-{number}")
            body = request.SerializeToString()
            connection.request("POST", "/v1/metrics", body, {"Content-Type": "application/x-protobuf"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                print(f"series_load: refused with {answer.status}", file=sys.stderr)
                return 1
        time.sleep(max(0.0, options.every - (time.monotonic() - began)))
    total = each * options.processes
    print(f"{options.processes} processes of {each} series, {total} in all, {options.rounds} exports of each")
    for pid, (held, used) in before.items():
        more, seconds = spent.memory(pid) - held, spent.cpu(pid) - used
        print(
            f"process {pid}: {more / 2**20:.0f} MiB more, {more / total:.0f} bytes a series; CPU {seconds:.1f} s, "
            f"{1e6 * seconds / (total * options.rounds):.1f} us a series and export"
        )
    return 0


def _name(request: Any, instance: str) -> None:
    """Let the metrics be those of this process, now."""
    resource = request.resource_metrics[0]
    for attribute in resource.resource.attributes:
        if attribute.key == "service.instance.id":
            attribute.value.string_value = instance
            break
    else:
        added = resource.resource.attributes.add()
        added.key, added.value.string_value = "service.instance.id", instance
    now = time.time_ns()
    for point in _points(resource):
        point.time_unix_nano = now


def _points(resource: Any) -> Iterator[Any]:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            yield from getattr(metric, metric.WhichOneof("data")).data_points


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.series_load", description=__doc__)
    parser.add_argument("url", help="address of the OTLP receiver over HTTP, as http://127.0.0.1:4318")
    parser.add_argument("--pid", type=int, action="append", required=True, help="a process to watch")
    parser.add_argument("--processes", type=int, default=200, metavar="N", help="how many to pretend")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="exports of each")
    parser.add_argument("--every", type=float, default=15.0, metavar="SECONDS", help="between two exports")
    return parser


if __name__ == "__main__":
    sys.exit(main())
