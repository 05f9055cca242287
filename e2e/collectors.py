"""Collectors under test, run from the project's own configuration files as they stand, and the trace store.

Only what the files leave to the environment is set here: addresses, the folder of the queue, and times made short
enough to wait for.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.needs import ROOT, collector
from e2e.processes import Process, Processes, clean_environ, free_ports
from e2e.scrape import samples, scrape
from e2e.waiting import until

__all__ = ["SHORT", "SINGLE", "Collector", "Span", "Store", "validate"]

SINGLE = ROOT / "collector-config.yaml"

SHORT = {
    "COLLECTOR_DECISION_WAIT": "60s",
    "COLLECTOR_DECISION_WAIT_AFTER_ROOT": "2s",
    "COLLECTOR_SLOW_MS": "3000",
    "COLLECTOR_BASELINE_PERCENT": "20",
    "GOMEMLIMIT": "400MiB",
}
"""Minutes become seconds, and the share kept of ordinary traces is one that can be seen in a hundred."""


class Collector:
    """One collector with a configuration of this project; can be killed and started again on the same ports."""

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        *,
        name: str = "collector",
        config: Path = SINGLE,
        settings: Mapping[str, str],
    ) -> None:
        self.name = name
        self.ports = dict(zip(("grpc", "http", "metrics", "self", "health"), free_ports(5), strict=True))
        self._processes = processes
        self._config = config
        self._env = {
            **clean_environ(),
            **SHORT,
            "COLLECTOR_QUEUE_DIRECTORY": str(folder / f"{name}-queue"),
            "COLLECTOR_OTLP_GRPC_ENDPOINT": f"127.0.0.1:{self.ports['grpc']}",
            "COLLECTOR_OTLP_HTTP_ENDPOINT": f"127.0.0.1:{self.ports['http']}",
            "COLLECTOR_PROMETHEUS_ENDPOINT": f"127.0.0.1:{self.ports['metrics']}",
            "COLLECTOR_HEALTH_ENDPOINT": f"127.0.0.1:{self.ports['health']}",
            "COLLECTOR_SELF_METRICS_PORT": str(self.ports["self"]),
            **settings,
        }
        self.process: Process | None = None

    def start(self) -> None:
        """Start it and wait until its health check answers."""
        process = self._processes.start(self.name, [collector(), "--config", str(self._config)], self._env)
        self.process = process
        until(
            lambda: not process.running or scrape(f"http://127.0.0.1:{self.ports['health']}/"),
            f"the health check of {self.name} answers",
            seconds=30,
            telling=process.told,
        )
        assert process.running, process.told()

    def kill(self) -> None:
        """End it as a crash would."""
        assert self.process is not None
        self.process.kill()

    def stop(self) -> None:
        """Ask it to end; it decides on what it holds, and keeps what it cannot send."""
        assert self.process is not None
        self.process.stop()

    def own(self, metric: str) -> float:
        """Return the sum over all series of one of its own metrics; 0 if there is none yet."""
        text = scrape(f"http://127.0.0.1:{self.ports['self']}/metrics")
        return sum(sample.value for sample in samples(text) if sample.name in {metric, f"{metric}_total"})

    @property
    def endpoint(self) -> str:
        """What programs send OTLP over HTTP to."""
        return f"http://127.0.0.1:{self.ports['http']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span as the store received it; times in Unix seconds."""

    trace: str
    id: str
    parent: str
    name: str
    status: str
    message: str
    start: float
    end: float
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())


class Store:
    """The trace store: a collector too, so that it is a real peer, that writes what it receives into a file."""

    def __init__(self, processes: Processes, folder: Path, *, name: str = "store") -> None:
        self._processes = processes
        self._name = name
        self.file = folder / f"{name}.jsonl"
        self.port = free_ports(1)[0]
        self._process: Process | None = None

    @property
    def address(self) -> str:
        """Host and port for OTLP over gRPC."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        environ = clean_environ() | {
            "COLLECTOR_OTLP_GRPC_ENDPOINT": self.address,
            "STORE_FILE": str(self.file),
        }
        command = [collector(), "--config", str(Path(__file__).with_name("store.yaml"))]
        process = self._process = self._processes.start(self._name, command, environ)
        until(
            lambda: not process.running or _listens(self.port),
            f"{self._name} listens",
            seconds=30,
            telling=process.told,
        )
        assert process.running, process.told()

    def stop(self) -> None:
        """Take it away."""
        assert self._process is not None
        self._process.stop()

    def text(self) -> str:
        """Return everything it received, as text."""
        return self.file.read_text(encoding="utf-8") if self.file.exists() else ""

    def spans(self) -> list[Span]:
        """Return the spans it received so far, each once however often it came."""
        found = {span.id: span for span in _spans(self.text())}
        return list(found.values())

    def traces(self) -> dict[str, list[Span]]:
        """Return the spans by trace."""
        found: dict[str, list[Span]] = {}
        for span in self.spans():
            found.setdefault(span.trace, []).append(span)
        return found


def validate(config: Path, settings: Mapping[str, str] | None = None) -> None:
    """Have the collector check a configuration; raises AssertionError with what it says."""
    done = subprocess.run(
        [collector(), "validate", "--config", str(config)],
        env=clean_environ() | (dict(settings) if settings else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{config}:\n{done.stdout}"


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def _spans(text: str) -> Iterator[Span]:
    # The last line may still be under way.
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        for group in json.loads(line).get("resourceSpans", ()):
            resource = _attributes(group.get("resource", {}))
            for scoped in group.get("scopeSpans", ()):
                for span in scoped.get("spans", ()):
                    yield _span(span, resource)


def _span(span: Mapping[str, Any], resource: Mapping[str, Any]) -> Span:
    status = span.get("status", {})
    return Span(
        trace=span["traceId"],
        id=span["spanId"],
        parent=span.get("parentSpanId", ""),
        name=span["name"],
        status={1: "ok", 2: "error"}.get(status.get("code", 0), "unset"),
        message=status.get("message", ""),
        start=int(span["startTimeUnixNano"]) / 1e9,
        end=int(span["endTimeUnixNano"]) / 1e9,
        attributes=_attributes(span),
        resource=resource,
        events=tuple((event["name"], _attributes(event)) for event in span.get("events", ())),
    )


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in holder.get("attributes", ())}


def _value(value: Mapping[str, Any]) -> Any:
    for kind, held in value.items():
        match kind:
            case "intValue":
                return int(held)
            case "arrayValue":
                return tuple(_value(item) for item in held.get("values", ()))
            case _:
                return held
    return None
