"""A drill: streams of a model stall until somebody is paged, then are well until that is resolved, then all goes away.

Two programs make the same calls: one sends everything to the collector, of the other Prometheus scrapes the metrics
itself. The shipped rules are run fifteen times as fast as they are meant to be (``hurry`` says what that is), and
Alertmanager waits a second where the shipped file has it wait thirty.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.alerting import Notification
from e2e.application import Application, scraped_at
from e2e.hurry import hurried_rules
from e2e.plans import calls, written
from e2e.processes import free_ports
from e2e.prometheus import Series
from e2e.stack import Stack, stack
from e2e.traffic import HALT
from e2e.waiting import until

__all__ = ["ALERT", "JOBS", "MODEL", "PROGRAMS", "STALLS", "Drill", "drilled"]

ALERT = "LLMStreamIdleTimeoutBurnFast"
MODEL = "wavering"
WELL = "steady"
"""A model that nothing happens to."""
STALLS = 20
"""Twice as many as are needed to be believed."""
HEALTHY = 360
"""Enough for the stalls to be less than 6 % of all: then the slower of the alert's two conditions holds no more."""
JOBS = {"collected": "e2e/e2e-program", "scraped": "applications"}
"""What Prometheus calls the program of each path."""
PROGRAMS = {"collected": "sends", "scraped": "is-scraped"}
"""What the trace store calls it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """What came of it; times are Unix seconds."""

    stack: Stack
    began: float
    fired: float
    resolved: float
    told: list[Notification]
    waiting: list[Series]
    """The alerts that were not told of, when the page was resolved."""
    missed: list[Series]
    """The alerts that waited to be told of, a moment after programs and collector had gone."""

    def about(self, path: str) -> list[Notification]:
        """Return what was told of the alert for one path's program, oldest first."""
        return [
            one for one in self.told if one.labels["alertname"] == ALERT and one.labels["job"] == JOBS[path]
        ]

    @property
    def span(self) -> int:
        """Seconds back from the page in which all stalls lie."""
        return int(self.fired - self.began) + 5


@contextmanager
def drilled(folder: Path) -> Generator[Drill]:
    """Run it; takes a minute and a half."""
    (port,) = free_ports(1)
    with stack(folder, applications=[f"127.0.0.1:{port}"], rules=hurried_rules(folder)) as running:
        programs = _programs(running, port)
        began = time.time()
        running.gateway.script(MODEL, HALT, by_header=True)
        _start(programs, _stalling(folder))
        fired = _told(running, "firing", seconds=90)
        _stop(programs)
        running.gateway.script(MODEL, "healthy:tokens=3", by_header=True)
        _start(programs, _recovering(folder))
        resolved = _told(running, "resolved", seconds=120)
        told = running.webhook.notifications()
        waiting = _alerts(running, "pending")
        _stop(programs)
        running.collector.kill()
        # Two say that something does not answer, and two that a job tells nothing.
        missed = until(
            lambda: found if len(found := _of_no_model(running)) >= 4 else [],
            "alerts wait to say that programs and collector have gone",
            seconds=15,
            telling=lambda: _of_no_model(running),
        )
        yield Drill(
            stack=running,
            began=began,
            fired=fired,
            resolved=resolved,
            told=told,
            waiting=waiting,
            missed=missed,
        )


def _programs(running: Stack, port: int) -> dict[Application, dict[str, str]]:
    environs: dict[str, dict[str, str]] = {"collected": {}, "scraped": scraped_at(port)}
    return {
        Application(
            running.processes,
            base_url=running.gateway.base_url,
            endpoint=running.collector.endpoint,
            name=PROGRAMS[path],
        ): environ
        for path, environ in environs.items()
    }


def _start(programs: dict[Application, dict[str, str]], plan: Path) -> None:
    for program, environ in programs.items():
        program.start(plan, environ, stay=True)


def _stop(programs: dict[Application, dict[str, str]]) -> None:
    for program in programs:
        assert program.process is not None
        assert program.process.running, program.process.told()
        program.process.stop()


def _stalling(folder: Path) -> Path:
    """Plan a first call alone, and a while later the rest: what is in a series' first export has no rate."""
    first, *rest = calls(MODEL, count=STALLS, every=0.4)
    later = [{**call, "after": call["after"] + 3.5} for call in rest]
    return written(folder / "stalling.json", [first, *later, *calls(WELL, count=30, every=0.4)])


def _recovering(folder: Path) -> Path:
    every = 22 / HEALTHY
    healthy = calls(MODEL, count=HEALTHY, every=every)
    return written(folder / "recovering.json", [*healthy, *calls(WELL, count=30, every=0.7)])


def _told(running: Stack, status: str, *, seconds: float) -> float:
    for job in JOBS.values():
        running.webhook.wait_for(ALERT, status=status, seconds=seconds, job=job)
    return time.time()


def _alerts(running: Stack, state: str) -> list[Series]:
    return [series for series, _ in running.prometheus.query(f'ALERTS{{alertstate="{state}"}}')]


def _of_no_model(running: Stack) -> list[Series]:
    return [series for series in _alerts(running, "pending") if "gen_ai_request_model" not in series]
