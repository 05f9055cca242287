"""Whether anything listens where spans and metrics would go: one TCP connection, over which nothing is sent."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from stallwatch.cli.doctor.report import Finding, Section, ok, warning

__all__ = ["collector"]

_PATIENCE = 2.0
_FAILURES = {
    "gaierror": "the host is not known",
    "TimeoutError": "no answer",
    "ConnectionRefusedError": "connection refused",
}
_PORTS = {"http": 80, "https": 443}


def collector(telemetry: Section) -> Section | None:
    """Connect to the endpoints that the section on telemetry has found; None when there are none."""
    endpoints: dict[str, list[str]] = {}
    for finding in telemetry.findings:
        endpoint = finding.data.get("endpoint")
        if isinstance(endpoint, str):
            endpoints.setdefault(endpoint, []).append(finding.key.rpartition(".")[2])
    if not endpoints:
        return None
    return Section(
        key="collector",
        title="What listens where spans and metrics go",
        findings=tuple(_findings(endpoints)),
        lead="One TCP connection to each endpoint; nothing is sent over it.",
    )


def _findings(endpoints: dict[str, list[str]]) -> Iterator[Finding]:
    for endpoint, signals in endpoints.items():
        place = _place(endpoint)
        began = time.monotonic()
        failure = "no host and port" if place is None else _failure(place)
        took = f"connected after {(time.monotonic() - began) * 1000:.0f} ms"
        for signal in signals:
            key, title, data = (
                f"listens.{signal}",
                f"for {signal}",
                {"endpoint": endpoint, "failure": failure},
            )
            if failure is None:
                yield ok(key, title, f"yes, at {endpoint}", took, **data)
            else:
                yield warning(
                    key,
                    title,
                    f"no: {failure}",
                    "start the collector, or correct OTEL_EXPORTER_OTLP_ENDPOINT",
                    f"{signal} sent to {endpoint} would be lost; calls are guarded all the same",
                    **data,
                )


def _place(endpoint: str) -> tuple[str, int] | None:
    parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    port = parts.port or _PORTS.get(parts.scheme)
    return None if parts.hostname is None or port is None else (parts.hostname, port)


def _failure(place: tuple[str, int]) -> str | None:
    """Return why no connection can be made, or None when one can."""
    try:
        with socket.create_connection(place, timeout=_PATIENCE):
            return None
    except OSError as error:
        return _FAILURES.get(type(error).__name__, type(error).__name__)
