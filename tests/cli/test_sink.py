"""The sink takes what an OTel SDK exports, and the forwarder passes it on."""

from __future__ import annotations

import base64
import gzip
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from socketserver import StreamRequestHandler, TCPServer

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from stallwatch.cli.demo.forward import Collector, Forwarder, collector_from
from stallwatch.cli.demo.sink import Sink

RESOURCE = Resource({"service.name": "test", "stallwatch.demo.scene": "healthy"})


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


def _export_span(endpoint: str, compression: Compression = Compression.NoCompression) -> None:
    exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", compression=compression)
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("stallwatch")
    attributes = {"text": "a", "whole": 3, "real": 1.5, "switch": True, "list": ["stop", "length"]}
    with tracer.start_as_current_span("chat m", kind=trace.SpanKind.CLIENT, attributes=attributes) as span:
        span.add_event("stallwatch.stall", {"stallwatch.stall.phase": "idle"})
        span.set_status(trace.StatusCode.ERROR, "no progress")
    provider.shutdown()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_a_span_arrives_with_everything_on_it(sink: Sink, compression: Compression) -> None:
    _export_span(sink.endpoint, compression)
    (span,) = sink.spans()
    assert (span.name, span.scope, span.kind, span.status) == ("chat m", "stallwatch", "client", "error")
    assert span.message == "no progress"
    assert span.attributes == {
        "text": "a",
        "whole": 3,
        "real": 1.5,
        "switch": True,
        "list": ("stop", "length"),
    }
    assert span.resource["stallwatch.demo.scene"] == "healthy"
    assert [(event.name, event.attributes) for event in span.events] == [
        ("stallwatch.stall", {"stallwatch.stall.phase": "idle"})
    ]
    assert span.start <= span.events[0].at <= span.end


def test_of_each_series_the_newest_point_is_kept(sink: Sink) -> None:
    exporter = OTLPMetricExporter(f"{sink.endpoint}/v1/metrics")
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader], resource=RESOURCE, shutdown_on_exit=False)
    meter = provider.get_meter("stallwatch")
    counter = meter.create_counter("stallwatch.stalls", unit="{stall}")
    histogram = meter.create_histogram("stallwatch.stall.wait", unit="s")
    counter.add(1, {"stallwatch.stall.phase": "idle"})
    histogram.record(1.5)
    provider.force_flush()
    counter.add(2, {"stallwatch.stall.phase": "idle"})
    counter.add(1, {"stallwatch.stall.phase": "connect"})
    histogram.record(0.5)
    provider.shutdown()
    found = {(point.name, *point.attributes.values()): (point.value, point.count) for point in sink.metrics()}
    assert found == {
        ("stallwatch.stalls", "idle"): (3.0, None),
        ("stallwatch.stalls", "connect"): (1.0, None),
        ("stallwatch.stall.wait",): (2.0, 2),
    }


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/v1/traces", b"\xff\xff\xff not protobuf", {}, 400),
        ("/v1/traces", b"not gzip", {"content-encoding": "gzip"}, 400),
        ("/v1/traces", gzip.compress(b"some bytes")[:-9], {"content-encoding": "gzip"}, 400),
        ("/v1/logs", b"", {}, 404),
    ],
)
def test_what_is_not_telemetry_is_refused(
    sink: Sink, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    request = urllib.request.Request(sink.endpoint + path, body, headers)
    with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(request, timeout=5):
        pass
    with refused.value:
        assert refused.value.code == status
    assert sink.spans() == ()


def test_what_the_sink_got_goes_on_to_the_collector_unchanged() -> None:
    with Sink() as collector:
        there = collector_from({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint + "/"})
        assert there is not None
        with Forwarder(there) as forwarder, Sink(forwarder.relay) as sink:
            _export_span(sink.endpoint, Compression.Gzip)
        assert collector.spans() == sink.spans()
        assert (forwarder.sent, forwarder.failures) == (1, [])


def test_an_absent_collector_costs_one_message() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://user:secret@127.0.0.1:{nobody.getsockname()[1]}/v1/traces?key=secret"
        there = Collector(urls={"/v1/traces": url}, headers={"/v1/traces": {}})
        with Forwarder(there) as forwarder, Sink(forwarder.relay) as sink:
            _export_span(sink.endpoint)
            _export_span(sink.endpoint)
            assert len(sink.spans()) == 2
    (failure,) = forwarder.failures
    assert "refused" in failure
    assert "secret" not in failure + str(there)


def test_user_information_in_the_address_becomes_a_header() -> None:
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers["authorization"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with TCPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://me:pass%40word@127.0.0.1:{server.server_address[1]}"
        there = collector_from({"OTEL_EXPORTER_OTLP_ENDPOINT": url})
        assert there is not None
        with Forwarder(there) as forwarder:
            forwarder.relay("/v1/traces", b"")
            server.handle_request()
    assert seen == ["Basic " + base64.b64encode(b"me:pass@word").decode()]
    assert (forwarder.sent, forwarder.failures) == (1, [])


def test_a_collector_that_does_not_speak_http_costs_one_message() -> None:
    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"\x00\x00\x12\x04 not http\r\n\r\n")

    with TCPServer(("127.0.0.1", 0), Handler) as server:
        there = collector_from(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}"}
        )
        assert there is not None
        with Forwarder(there) as forwarder:
            forwarder.relay("/v1/traces", b"")
            server.handle_request()
    assert (forwarder.sent, len(forwarder.failures)) == (0, 1)


@pytest.mark.parametrize(
    ("environ", "urls"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "  "}, None),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"},
            {"/v1/traces": "http://c:4318/v1/traces", "/v1/metrics": "http://c:4318/v1/metrics"},
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x"}, {"/v1/traces": "http://t/x"}),
    ],
)
def test_the_collector_is_named_by_the_standard_variables(
    environ: dict[str, str], urls: dict[str, str] | None
) -> None:
    there = collector_from(environ)
    assert (None if there is None else there.urls) == urls


def test_headers_are_those_of_the_signal_over_the_common_ones() -> None:
    there = collector_from(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20abc,x-a=1",
            "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "x-a=2",
        }
    )
    assert there is not None
    assert there.headers["/v1/traces"] == {"authorization": "Basic abc", "x-a": "1"}
    assert there.headers["/v1/metrics"] == {"authorization": "Basic abc", "x-a": "2"}
