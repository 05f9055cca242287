"""The traffic is run once for each path that metrics take, and most tests look at what came of it.

After everything, nothing may be left running.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest

from e2e.application import Application, scraped_at
from e2e.drill import Drill, drilled
from e2e.plans import plan
from e2e.processes import Processes, free_ports, leftovers
from e2e.prometheus import Prometheus
from e2e.ran import Collected, Ran
from e2e.scrape import scrape
from e2e.stack import Stack, gateway, stack
from e2e.traffic import CASES
from e2e.waiting import until


@pytest.fixture(scope="session", autouse=True)
def nothing_left_running() -> Generator[None]:
    yield
    left = leftovers()
    assert not left, f"still running: {left}"


@pytest.fixture(params=["collected", "scraped"])
def ran(request: pytest.FixtureRequest) -> Ran:
    """Return the traffic as seen by one path, and then by the other."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Ran)
    return found


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Generator[Collected]:
    """Run the traffic with everything sent to the collector."""
    folder = tmp_path_factory.mktemp("collected")
    with stack(folder) as running:
        program = Application(
            running.processes, base_url=running.gateway.base_url, endpoint=running.collector.endpoint
        )
        began = time.time()
        answered = program.run(plan(folder), seconds=90)
        ended = time.time()
        decided(running)
        settled = stored(running.prometheus, ended)
        assert program.process is not None
        metrics = f"http://127.0.0.1:{running.collector.ports['metrics']}/metrics"
        yield Collected(
            stack=running,
            prometheus=running.prometheus,
            job="e2e/e2e-program",
            instance="program",
            answered=answered,
            ledger=running.gateway.ledger(),
            began=began,
            ended=ended,
            settled=settled,
            program=program.process.text(),
            exposition=scrape(metrics, openmetrics=True),
            plain=scrape(metrics),
        )


@pytest.fixture(scope="session")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Generator[Ran]:
    """Run the traffic with the Python Prometheus exporter in the program, and no collector at all."""
    folder = tmp_path_factory.mktemp("scraped")
    with gateway() as models, Processes(folder) as processes:
        (port,) = free_ports(1)
        program = Application(processes, base_url=models.base_url, endpoint="")
        prometheus = Prometheus(processes, folder, applications=[f"127.0.0.1:{port}"])
        prometheus.start(until_scraped=False)
        began = time.time()
        environ = scraped_at(port) | {"OTEL_TRACES_EXPORTER": "none"}
        answered = program.serve(plan(folder), seconds=90, environ=environ)
        ended = time.time()
        settled = stored(prometheus, ended)
        assert program.process is not None
        yield Ran(
            prometheus=prometheus,
            job="applications",
            instance=f"127.0.0.1:{port}",
            answered=answered,
            ledger=models.ledger(),
            began=began,
            ended=ended,
            settled=settled,
            program=program.process.text(),
            exposition=scrape(f"http://127.0.0.1:{port}/metrics", openmetrics=True),
            plain=scrape(f"http://127.0.0.1:{port}/metrics"),
        )


@pytest.fixture(scope="session")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Generator[Drill]:
    """Run the drill for the alert and its runbook."""
    with drilled(tmp_path_factory.mktemp("drill")) as done:
        yield done


def decided(running: Stack) -> None:
    """Wait until every trace is decided and sent on."""
    until(
        lambda: (
            not running.collector.own("otelcol_processor_tail_sampling_sampling_traces_on_memory")
            and not running.collector.own("otelcol_exporter_queue_size")
        ),
        "the collector has decided on every trace and sent what it kept",
        seconds=30,
    )


def stored(prometheus: Prometheus, ended: float) -> float:
    """Wait until Prometheus has seen the last numbers, and return when."""
    until(
        lambda: prometheus.value("min(timestamp(stallwatch_streams_active))") > ended + 1.5,
        "Prometheus has scraped after the program's end",
        seconds=15,
    )
    return time.time()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a place for the state of what a test starts."""
    return tmp_path


def pytest_report_header() -> list[str]:
    return [f"traffic: {sum(case.count for case in CASES if case.planned)} calls in {len(CASES)} cases"]
