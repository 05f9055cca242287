"""OpenTelemetry's loader, switches, providers and exporters, as the doctor understands them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stallwatch.cli.doctor import telemetry
from stallwatch.cli.doctor.attachment import By
from stallwatch.cli.doctor.report import Level
from support.findings import by_key

OTEL: dict[str, tuple[dict[str, str], str, Level, str]] = {
    "switched off by name": (
        {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "requests, stallwatch"},
        "disabled",
        Level.PROBLEM,
        "'stallwatch'",
    ),
    "all switched off": ({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"}, "disabled", Level.PROBLEM, "'*'"),
    "others switched off": (
        {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "requests"},
        "disabled",
        Level.NOTE,
        "requests",
    ),
    "the SDK switched off": (
        {"OTEL_SDK_DISABLED": "True"},
        "sdk-disabled",
        Level.WARNING,
        "OTEL_SDK_DISABLED",
    ),
    "otlp over http": (
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        "exporter.traces",
        Level.OK,
        "http://localhost:4318",
    ),
    "an endpoint with everything": (
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://u:p@otel.example:4318/x?y=z",
        },
        "exporter.metrics",
        Level.OK,
        "https://otel.example:4318",
    ),
    "one signal elsewhere": (
        {
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:1/",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:2/",
        },
        "exporter.traces",
        Level.OK,
        "http://traces:1",
    ),
    "the port of the other protocol": (
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317",
        },
        "exporter.traces",
        Level.WARNING,
        "use port 4318",
    ),
    "an endpoint without a scheme": (
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
        "exporter.traces",
        Level.WARNING,
        "write http://collector:4318",
    ),
    "a file that decides": ({"OTEL_CONFIG_FILE": "otel.yaml"}, "config-file", Level.NOTE, "otel.yaml"),
    "a sampler that keeps nothing": (
        {"OTEL_TRACES_SAMPLER": "always_off"},
        "sampler",
        Level.WARNING,
        "no span",
    ),
    "a sampler": (
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
        "sampler",
        Level.NOTE,
        "traceidratio 0.1",
    ),
    "none": ({"OTEL_METRICS_EXPORTER": "none"}, "exporter.metrics", Level.NOTE, "OTEL_METRICS_EXPORTER"),
    "console": ({"OTEL_TRACES_EXPORTER": "console"}, "exporter.traces", Level.OK, "console"),
    "a protocol nobody speaks": (
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
        "exporter.traces",
        Level.WARNING,
        "smoke",
    ),
    "a protocol without its exporter": (
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        "exporter.traces",
        Level.WARNING,
        "pip install opentelemetry-exporter-otlp-proto-grpc",
    ),
}


@pytest.mark.parametrize(("environ", "key", "level", "told"), OTEL.values(), ids=OTEL.keys())
def test_otels_variables_are_understood(
    environ: Mapping[str, str], key: str, level: Level, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"opentelemetry-sdk", "opentelemetry-distro", "opentelemetry-exporter-otlp-proto-http"}
    monkeypatch.setattr(telemetry, "installed", lambda name: "1" if name in there else None)
    found = by_key(telemetry.telemetry(environ, By.DOCTOR))[key]
    assert found.level is level
    assert told in f"{found.value} {found.detail} {found.advice}"


def test_switched_off_for_the_loader_does_not_matter_to_a_program_that_instruments_itself() -> None:
    environ = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "stallwatch"}
    assert by_key(telemetry.telemetry(environ, By.PROGRAM))["disabled"].level is Level.NOTE


def test_the_providers_of_the_process_are_told_with_their_exporters(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    tracers = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter("http://u:sentinel@collector:4318/v1/traces")
    tracers.add_span_processor(BatchSpanProcessor(exporter))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    monkeypatch.setattr(telemetry.trace, "get_tracer_provider", lambda: tracers)
    monkeypatch.setattr(telemetry.metrics, "get_meter_provider", lambda: meters)
    try:
        found = by_key(telemetry.telemetry({}, By.PROGRAM))
    finally:
        tracers.shutdown()
        meters.shutdown()
    assert found["tracer-provider"].data["exporters"] == ["OTLPSpanExporter to http://collector:4318"]
    assert found["meter-provider"].data["exporters"] == ["InMemoryMetricReader"]
