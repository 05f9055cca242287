"""An OTLP/HTTP receiver on loopback: it takes what an OTel SDK exports and keeps spans and metric points as data.

It stands in for a collector, so that the demo needs none. It speaks protobuf only, plain or gzip, which is what the
SDK sends with ``OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf``.
"""

from __future__ import annotations

import gzip
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["MetricPoint", "Sink", "SpanData", "SpanEvent", "metrics_from", "spans_from"]

Attributes = Mapping[str, Any]
Relay = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """An event on a span; ``at`` is Unix time in seconds."""

    name: str
    at: float
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanData:
    """A finished span; ``start`` and ``end`` are Unix time in seconds."""

    name: str
    scope: str
    kind: str
    status: str
    message: str
    start: float
    end: float
    attributes: Attributes
    resource: Attributes
    events: tuple[SpanEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    """The last state of one series; of a histogram ``value`` is the sum and ``count`` the number of samples."""

    name: str
    scope: str
    unit: str
    attributes: Attributes
    resource: Attributes
    value: float
    count: int | None = None


class Sink:
    """The receiver; a context manager. ``relay`` is given path and uncompressed body of whatever came in."""

    def __init__(self, relay: Relay | None = None) -> None:
        self._lock = threading.Lock()
        self._spans: list[SpanData] = []
        self._points: dict[tuple[Any, ...], MetricPoint] = {}
        self._relay = relay
        self._server = _Server(("127.0.0.1", 0), _handler(self._take))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="otlp-sink", daemon=True
        )

    @property
    def endpoint(self) -> str:
        """The base URL for ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def spans(self) -> tuple[SpanData, ...]:
        """Return the spans received so far."""
        with self._lock:
            return tuple(self._spans)

    def metrics(self) -> tuple[MetricPoint, ...]:
        """Return the newest point of every series received so far."""
        with self._lock:
            return tuple(self._points.values())

    def _take(self, path: str, body: bytes) -> int:
        try:
            match path:
                case "/v1/traces":
                    spans = list(spans_from(body))
                    with self._lock:
                        self._spans += spans
                case "/v1/metrics":
                    points = {_series(point): point for point in metrics_from(body)}
                    with self._lock:
                        self._points |= points
                case _:
                    return 404
        except ValueError:
            return 400
        if self._relay is not None:
            self._relay(path, body)
        return 200

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, TCPServer):
    # Plain TCPServer, because HTTPServer looks its own address up in the DNS before it listens.
    daemon_threads = True
    allow_reuse_address = True


def _handler(take: Callable[[str, bytes], int]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                status = take(self.path.partition("?")[0], body)
            except (OSError, EOFError, zlib.error):
                status = 400
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Keep quiet: the demo's screen is not a server log."""

    return Handler


def spans_from(body: bytes) -> Iterable[SpanData]:
    """Decode an OTLP trace export. Raises ValueError if it is none."""
    for group in _parsed(ExportTraceServiceRequest(), body).resource_spans:
        resource = _attributes(group.resource.attributes)
        for scoped in group.scope_spans:
            for span in scoped.spans:
                yield SpanData(
                    name=span.name,
                    scope=scoped.scope.name,
                    kind=_KINDS.get(span.kind, "unspecified"),
                    status=_STATUSES.get(span.status.code, "unset"),
                    message=span.status.message,
                    start=span.start_time_unix_nano / 1e9,
                    end=span.end_time_unix_nano / 1e9,
                    attributes=_attributes(span.attributes),
                    resource=resource,
                    events=tuple(
                        SpanEvent(
                            name=event.name,
                            at=event.time_unix_nano / 1e9,
                            attributes=_attributes(event.attributes),
                        )
                        for event in span.events
                    ),
                )


def metrics_from(body: bytes) -> Iterable[MetricPoint]:
    """Decode an OTLP metrics export. Raises ValueError if it is none."""
    for group in _parsed(ExportMetricsServiceRequest(), body).resource_metrics:
        resource = _attributes(group.resource.attributes)
        for scoped in group.scope_metrics:
            for metric in scoped.metrics:
                shape = metric.WhichOneof("data")
                for point in getattr(metric, shape).data_points if shape else ():
                    value, count = _number(shape, point)
                    yield MetricPoint(
                        name=metric.name,
                        scope=scoped.scope.name,
                        unit=metric.unit,
                        attributes=_attributes(point.attributes),
                        resource=resource,
                        value=value,
                        count=count,
                    )


_KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}
_STATUSES = {1: "ok", 2: "error"}


def _parsed(message: Any, body: bytes) -> Any:
    try:
        message.ParseFromString(body)
    except Exception as error:
        # The class differs between protobuf's implementations, and none of them is a ValueError.
        raise ValueError(f"not an OTLP {type(message).__name__}: {error}") from error
    return message


def _number(shape: str | None, point: Any) -> tuple[float, int | None]:
    if shape in ("histogram", "exponential_histogram", "summary"):
        return float(point.sum), int(point.count)
    return float(getattr(point, point.WhichOneof("value") or "as_int")), None


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(any_value: Any) -> Any:
    kind = any_value.WhichOneof("value")
    match kind:
        case None:
            return None
        case "array_value":
            return tuple(_value(item) for item in any_value.array_value.values)
        case "kvlist_value":
            return _attributes(any_value.kvlist_value.values)
        case _:
            return getattr(any_value, kind)


def _series(point: MetricPoint) -> tuple[Any, ...]:
    return (point.name, point.scope, _key(point.resource), _key(point.attributes))


def _key(attributes: Attributes) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in attributes.items()))
