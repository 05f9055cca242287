"""Where spans and metrics go: the loader, its switches, the SDK of this process, the exporters it would get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from opentelemetry import metrics, trace

from stallwatch.cli.doctor.attachment import By, launched_by_opentelemetry
from stallwatch.cli.doctor.report import Finding, Section, note, ok, problem, warning
from stallwatch.cli.doctor.secrets import origin
from stallwatch.cli.doctor.versions import installed

__all__ = ["telemetry"]

_GROUP = "opentelemetry_instrumentor"
_NAME = "stallwatch"
_LOCAL = {"grpc": "http://localhost:4317", "http/protobuf": "http://localhost:4318"}
_EXPORTER_OF = {
    "grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "http/protobuf": "opentelemetry-exporter-otlp-proto-http",
}
_SIGNALS = ("traces", "metrics")


def telemetry(environ: Mapping[str, str], by: By) -> Section:
    """Look at the loader and the exporters."""
    findings = [
        *_loader(),
        *_disabled(environ, by),
        *_switches(environ),
        *_in_this_process(),
        *_exporters(environ),
    ]
    return Section(key="telemetry", title="Where spans and metrics go", findings=tuple(findings))


def _entry_point() -> EntryPoint | None:
    return next(iter(entry_points(group=_GROUP, name=_NAME)), None)


def _loader() -> Iterator[Finding]:
    launched = launched_by_opentelemetry()
    if launched:
        yield ok("loader", "opentelemetry-instrument", "started this process", launched=True)
    else:
        yield note(
            "loader",
            "opentelemetry-instrument",
            "not in this process",
            "to look at a process as it starts it: opentelemetry-instrument stallwatch doctor",
            launched=False,
        )
    found = _entry_point()
    if found is None:
        yield warning(
            "entry-point",
            "entry point",
            "missing",
            "pip install stallwatch, or call OpenAIInstrumentor().instrument() in the program",
            "opentelemetry-instrument does not know of stallwatch",
        )
    else:
        yield ok("entry-point", "entry point", found.name, found.value)


def _disabled(environ: Mapping[str, str], by: By) -> Iterator[Finding]:
    disabled = _listed(environ, "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS")
    if {_NAME, "*"} & set(disabled) and by is not By.PROGRAM:
        named = _NAME if _NAME in disabled else "*"
        yield problem(
            "disabled",
            "switched off",
            f"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS has {named!r}",
            f"take {named!r} out of OTEL_PYTHON_DISABLED_INSTRUMENTATIONS, or call instrument() in the program",
            "opentelemetry-instrument leaves stallwatch out: calls are not guarded",
            names=disabled,
        )
    elif disabled:
        yield note("disabled", "switched off", ", ".join(disabled), names=disabled)


def _listed(environ: Mapping[str, str], variable: str) -> list[str]:
    return [name for part in environ.get(variable, "").split(",") if (name := part.strip())]


def _switches(environ: Mapping[str, str]) -> Iterator[Finding]:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield warning(
            "sdk-disabled",
            "OpenTelemetry SDK",
            "OTEL_SDK_DISABLED=true",
            "unset OTEL_SDK_DISABLED to have spans and metrics",
            "calls are guarded, but nothing is recorded",
        )
    for variable in ("OTEL_CONFIG_FILE", "OTEL_EXPERIMENTAL_CONFIG_FILE"):
        if environ.get(variable, "").strip():
            yield note(
                "config-file",
                variable,
                environ[variable],
                "it decides on providers and exporters, and is not read here; what the variables say may not count",
            )
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip()
    if sampler in ("always_off", "parentbased_always_off"):
        yield warning(
            "sampler",
            "sampler",
            sampler,
            "set OTEL_TRACES_SAMPLER to parentbased_always_on to have the spans of stalled calls",
            "no span is kept; metrics are",
        )
    elif sampler:
        yield note("sampler", "sampler", f"{sampler} {environ.get('OTEL_TRACES_SAMPLER_ARG', '')}".strip())


def _in_this_process() -> Iterator[Finding]:
    for key, title, provider in (
        ("tracer-provider", "spans, here", trace.get_tracer_provider()),
        ("meter-provider", "metrics, here", metrics.get_meter_provider()),
    ):
        kind = f"{type(provider).__module__.partition('.')[0]}.{type(provider).__name__}"
        real = hasattr(provider, "force_flush")
        exporters = _exporters_of(provider)
        data = {"provider": kind, "configured": real, "exporters": exporters}
        if real:
            yield ok(key, title, type(provider).__name__, ", ".join(exporters) or "no exporter seen", **data)
        else:
            yield note(key, title, "no SDK set up", "in this process nothing is recorded", **data)


def _exporters_of(provider: Any) -> list[str]:
    """Return the exporters and readers of a provider and where they send to, as far as that can be seen."""
    names: list[str] = []
    multi = getattr(provider, "_active_span_processor", None)
    for processor in getattr(multi, "_span_processors", ()):
        exporter = getattr(processor, "span_exporter", None)
        names.append(_named(processor if exporter is None else exporter))
    config = getattr(provider, "_sdk_config", None)
    readers: Any = getattr(config, "metric_readers", None) or getattr(provider, "_metric_readers", ())
    for reader in readers:
        exporter = getattr(reader, "_exporter", None)
        names.append(_named(reader if exporter is None else exporter))
    return names


def _named(exporter: Any) -> str:
    endpoint = getattr(exporter, "_endpoint", None)
    where = f" to {origin(endpoint)}" if isinstance(endpoint, str) else ""
    return type(exporter).__name__ + where


def _exporters(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what the environment asks of the exporters, signal by signal."""
    if installed("opentelemetry-sdk") is None:
        yield note(
            "exporter",
            "exporters",
            "none",
            "no SDK is installed; pip install opentelemetry-distro opentelemetry-exporter-otlp brings all of it",
        )
        return
    for signal in _SIGNALS:
        upper = signal.upper()
        asked = _listed(environ, f"OTEL_{upper}_EXPORTER") or (
            ["otlp"] if installed("opentelemetry-distro") is not None else []
        )
        key, title = f"exporter.{signal}", f"{signal} exporter"
        if not asked or asked == ["none"]:
            reason = (
                f"OTEL_{upper}_EXPORTER is {'none' if asked else 'not set, and there is no distro to set it'}"
            )
            yield note(key, title, "none", reason, names=asked)
        elif "otlp" in asked or any(name.startswith("otlp_") for name in asked):
            yield _otlp(environ, signal, key, title, asked)
        else:
            yield ok(key, title, ", ".join(asked), names=asked)


def _otlp(environ: Mapping[str, str], signal: str, key: str, title: str, asked: list[str]) -> Finding:
    upper = signal.upper()
    protocol = (
        environ.get(f"OTEL_EXPORTER_OTLP_{upper}_PROTOCOL")
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or _protocol_named(asked)
        or "grpc"
    )
    endpoint = (
        environ.get(f"OTEL_EXPORTER_OTLP_{upper}_ENDPOINT")
        or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        or _LOCAL.get(protocol, "")
    )
    where = origin(endpoint)
    data = {"names": asked, "protocol": protocol, "endpoint": where}
    needed = _EXPORTER_OF.get(protocol)
    if needed is None:
        return warning(
            key,
            title,
            f"otlp over {protocol}",
            f"set OTEL_EXPORTER_OTLP_PROTOCOL to {' or '.join(_EXPORTER_OF)}",
            "the protocol is not known: opentelemetry-instrument would give up and instrument nothing",
            **data,
        )
    if installed(needed) is None:
        return warning(
            key,
            title,
            f"otlp over {protocol}, to {where}",
            f"pip install {needed}, or choose another with OTEL_EXPORTER_OTLP_PROTOCOL or OTEL_{upper}_EXPORTER=none",
            f"{needed} is not installed: opentelemetry-instrument would give up and instrument nothing",
            **data,
        )
    odd = _odd(endpoint, where, protocol)
    if odd:
        advice, detail = odd
        return warning(key, title, f"otlp over {protocol}, to {where}", advice, detail, **data)
    return ok(key, title, f"otlp over {protocol}", where, **data)


def _odd(endpoint: str, where: str, protocol: str) -> tuple[str, str] | None:
    """Return what to do and what is odd about an endpoint for a protocol, if anything is."""
    if protocol == "http/protobuf" and "://" not in endpoint:
        return f"write http://{where}", "an address without a scheme, which the exporter cannot use"
    others = {each: origin(local).rpartition(":")[2] for each, local in _LOCAL.items() if each != protocol}
    for other, port in others.items():
        if where.endswith(f":{port}"):
            own = origin(_LOCAL[protocol]).rpartition(":")[2]
            return (
                f"use port {own}, or set the protocol to {other}",
                f"{port} is the port on which collectors usually listen for {other}",
            )
    return None


def _protocol_named(asked: list[str]) -> str | None:
    names = {"otlp_proto_grpc": "grpc", "otlp_proto_http": "http/protobuf"}
    return next((names[name] for name in asked if name in names), None)
