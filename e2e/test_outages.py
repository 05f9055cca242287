"""Nothing is lost when the trace store is away for a while, and nothing when the collector is restarted meanwhile.

The outage lasts ten seconds (E2E_OUTAGE sets another number), which is long beside every interval involved; how long
one may last depends on the disk only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.application import Application
from e2e.collectors import Collector, Store
from e2e.plans import drip
from e2e.processes import Processes
from e2e.stack import gateway
from e2e.waiting import until

OUTAGE = float(os.environ.get("E2E_OUTAGE", "10"))
EVERY = 0.5
CALLS = int((OUTAGE + 8) / EVERY)
"""Some before, most during, and some after the outage."""
ON_MEMORY = "otelcol_processor_tail_sampling_sampling_traces_on_memory"
WAITING = "otelcol_exporter_queue_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A program, a collector and a store."""

    folder: Path
    program: Application
    collector: Collector
    store: Store

    def arrived(self, traces: set[str], seconds: float = 45) -> None:
        """Wait until the store has these traces, whole."""

        def missing() -> set[str]:
            held = self.store.traces()
            return {trace for trace in traces if len(held.get(trace, ())) != 2}

        until(
            lambda: not missing(),
            f"all {len(traces)} traces are in the store",
            seconds=seconds,
            telling=missing,
        )


@pytest.fixture
def line(folder: Path) -> Generator[Line]:
    with gateway() as models, Processes(folder) as processes:
        store = Store(processes, folder)
        collector = Collector(processes, folder, settings={"COLLECTOR_TRACES_ENDPOINT": store.address})
        program = Application(processes, base_url=models.base_url, endpoint=collector.endpoint)
        store.start()
        collector.start()
        yield Line(folder=folder, program=program, collector=collector, store=store)


def test_nothing_is_lost_while_the_store_is_away(line: Line) -> None:
    process = line.program.start(drip(line.folder, "halts", count=CALLS, every=EVERY))
    until(lambda: len(line.store.traces()) >= 4, "the first traces are in the store", seconds=30)
    line.store.stop()
    time.sleep(OUTAGE)
    assert line.collector.own(WAITING) > 0, "nothing was sent while the store was away"
    line.store.start()
    assert process.wait(60) == 0, process.told()
    answered = {one.trace for one in line.program.answered()}
    assert len(answered) == CALLS
    line.arrived(answered)


def test_what_waits_for_the_store_survives_a_crash_of_the_collector(line: Line) -> None:
    line.store.stop()
    answered = line.program.run(drip(line.folder, "halts", count=8), seconds=60)
    until(
        lambda: not line.collector.own(ON_MEMORY) and line.collector.own(WAITING) > 0,
        "everything is decided and waits for the store",
        seconds=20,
    )
    line.collector.kill()
    line.collector.start()
    line.store.start()
    line.arrived({one.trace for one in answered})


def test_a_collector_that_is_told_to_end_decides_first(line: Line) -> None:
    line.store.stop()
    answered = line.program.run(drip(line.folder, "halts", count=8), seconds=60)
    # That number is renewed once a second, and the decision comes after two.
    until(lambda: line.collector.own(ON_MEMORY) > 0, "the collector holds undecided traces", seconds=2)
    line.collector.stop()
    line.collector.start()
    line.store.start()
    line.arrived({one.trace for one in answered})
