"""The program under ``opentelemetry-instrument``, as a user starts it, and what it says."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.needs import launcher
from e2e.processes import Process, Processes, clean_environ
from e2e.traffic import KEY, SETTINGS
from e2e.waiting import until

__all__ = ["SERVICE", "Answered", "Application", "scraped_at"]

SERVICE = "e2e-program"
"""The name under which the traffic program's telemetry comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One request that the program answered: its trace, how it ended, how long that took, and when (Unix seconds)."""

    case: str
    trace: str
    end: str
    seconds: float
    at: float


class Application:
    """Runs the program with a plan; everything that it is told comes from the environment."""

    def __init__(self, processes: Processes, *, base_url: str, endpoint: str, name: str = "program") -> None:
        self._processes = processes
        self._name = name
        self.env = clean_environ() | {
            "OPENAI_BASE_URL": base_url,
            "OPENAI_API_KEY": KEY,
            **SETTINGS,
            "OTEL_SERVICE_NAME": SERVICE,
            "OTEL_RESOURCE_ATTRIBUTES": f"service.namespace=e2e,service.instance.id={name}",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            # Often, so that Prometheus sees streams while they are open; not as often as it scrapes, because the
            # collector keeps the exemplars of the last export only.
            "OTEL_METRIC_EXPORT_INTERVAL": "2500",
            "OTEL_BSP_SCHEDULE_DELAY": "300",
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self.process: Process | None = None

    def start(self, plan: Path, environ: Mapping[str, str] | None = None, *, stay: bool = False) -> Process:
        """Start it; with ``stay`` it goes on living when it has answered everything."""
        program = str(Path(__file__).with_name("program.py"))
        command = [launcher(), sys.executable, program, str(plan), *(["stay"] if stay else [])]
        self.process = self._processes.start(self._name, command, self.env | dict(environ or {}))
        return self.process

    def run(self, plan: Path, *, seconds: float, environ: Mapping[str, str] | None = None) -> list[Answered]:
        """Run it to its end and return what it answered."""
        process = self.start(plan, environ)
        assert process.wait(seconds) == 0, process.told()
        return self.answered()

    def serve(
        self, plan: Path, *, seconds: float, environ: Mapping[str, str] | None = None
    ) -> list[Answered]:
        """Have it answer everything and stay, and return what it answered."""
        process = self.start(plan, environ, stay=True)
        wanted = len(json.loads(plan.read_text(encoding="utf-8")))
        until(
            lambda: not process.running or len(self.answered()) >= wanted,
            f"{wanted} calls are answered",
            seconds=seconds,
            telling=process.told,
        )
        assert process.running, process.told()
        return self.answered()

    def answered(self) -> list[Answered]:
        """Return what it has answered so far."""
        assert self.process is not None
        lines = [line for line in self.process.text().splitlines() if line.startswith('{"trace"')]
        return [Answered(**json.loads(line)) for line in lines]


def scraped_at(port: int) -> dict[str, str]:
    """Return what makes the program offer its metrics to Prometheus itself, and send them nowhere."""
    return {
        "OTEL_METRICS_EXPORTER": "prometheus",
        "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(port),
    }
