"""An OTLP/HTTP receiver: ``python -m soak.sink PORT FOLDER``.

What has come in is on disk before it is answered for, so that books survive a kill: what the exporter takes for
delivered is there. ``spans.jsonl`` has a line for each span received, the same one twice if it was sent twice;
``metrics.json`` the newest point of every series.
"""

from __future__ import annotations

import gzip
import json
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, BinaryIO

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from soak.telemetry import key
from stallwatch.cli.demo.sink import metrics_from

__all__ = ["Received", "received"]


class Received:
    """What a sink has on disk."""

    def __init__(self, spans: dict[str, str], points: list[dict[str, Any]]) -> None:
        self.spans: Counter[str] = Counter(spans.values())
        self._points = points

    def total(self, name: str, label: str | None = None) -> dict[str, int]:
        """Sum a metric's points (of a histogram their counts) by model, and by the value of a label."""
        found: Counter[str] = Counter()
        for point in self._points:
            if point["name"] == name:
                model = point["attributes"].get("gen_ai.request.model")
                value = point["attributes"].get(label) if label else None
                found[key(model, value) if label else str(model)] += point["number"]
        return {name: number for name, number in found.items() if number}


def received(folder: Path) -> Received:
    """Read a sink's books; a line that was cut off by a kill was never answered for."""
    spans: dict[str, str] = {}
    for line in (folder / "spans.jsonl").read_bytes().splitlines():
        try:
            identity, name = json.loads(line)
        except ValueError:
            continue
        spans[identity] = name
    return Received(spans, json.loads((folder / "metrics.json").read_text(encoding="utf-8")))


class _Disk:
    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._spans: BinaryIO = (folder / "spans.jsonl").open("ab", buffering=0)
        self._spans.write(b"\n")

    def take(self, path: str, body: bytes) -> int:
        if path == "/v1/traces":
            message: Any = ExportTraceServiceRequest.FromString(body)
            lines = [
                json.dumps([(span.trace_id + span.span_id).hex(), _key(span)]).encode() + b"\n"
                for group in message.resource_spans
                for scoped in group.scope_spans
                for span in scoped.spans
            ]
            with self._lock:
                self._spans.write(b"".join(lines))
            return 200
        if path == "/v1/metrics":
            points = [
                {
                    "name": point.name,
                    "attributes": dict(point.attributes),
                    "number": int(point.value) if point.count is None else point.count,
                }
                for point in metrics_from(body)
            ]
            with self._lock:
                new = self._folder / "metrics.new"
                new.write_text(json.dumps(points), encoding="utf-8")
                new.replace(self._folder / "metrics.json")
            return 200
        return 404


def _key(span: Any) -> str:
    attributes = {pair.key: pair.value.string_value for pair in span.attributes}
    return key(attributes.get("gen_ai.request.model"), attributes.get("stallwatch.outcome"))


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    allow_reuse_address = True


def main() -> None:
    """Serve until killed."""
    disk = _Disk(Path(sys.argv[2]))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            self.send_response(disk.take(self.path, body))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    _Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever(0.05)


if __name__ == "__main__":
    main()
