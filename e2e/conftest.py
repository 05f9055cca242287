"""The traffic is run once, and most tests look at what came of it. After everything, nothing may be left running."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import pytest

from e2e.application import Application
from e2e.processes import leftovers
from e2e.ran import Ran
from e2e.stack import Stack, stack
from e2e.traffic import CASES, plan
from e2e.waiting import until


@pytest.fixture(scope="session", autouse=True)
def nothing_left_running() -> Generator[None]:
    yield
    left = leftovers()
    assert not left, f"still running: {left}"


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Generator[Ran]:
    folder = tmp_path_factory.mktemp("single")
    with stack(folder) as running:
        program = Application(
            running.processes, base_url=running.gateway.base_url, endpoint=running.collector.endpoint
        )
        began = time.time()
        answered = program.run(plan(folder), seconds=90)
        ended = time.time()
        settle(running, ended)
        assert program.process is not None
        yield Ran(
            stack=running,
            answered=answered,
            ledger=running.gateway.ledger(),
            began=began,
            ended=ended,
            program=program.process.text(),
        )


def settle(running: Stack, ended: float) -> None:
    """Wait until every trace is decided and sent on, and Prometheus has seen the last numbers."""
    until(
        lambda: (
            not running.collector.own("otelcol_processor_tail_sampling_sampling_traces_on_memory")
            and not running.collector.own("otelcol_exporter_queue_size")
        ),
        "the collector has decided on every trace and sent what it kept",
        seconds=30,
    )
    until(
        lambda: running.prometheus.value("min(timestamp(stallwatch_streams_active))") > ended + 1.5,
        "Prometheus has scraped after the program's end",
        seconds=15,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a place for the state of what a test starts."""
    return tmp_path


def pytest_report_header() -> list[str]:
    return [f"traffic: {sum(case.count for case in CASES if case.planned)} calls in {len(CASES)} cases"]
