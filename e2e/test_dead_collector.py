"""The program neither fails nor waits when the collector is not there, or takes everything and never answers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from e2e.application import Application
from e2e.collectors import Collector, Store
from e2e.plans import drip
from e2e.processes import Processes, free_ports
from e2e.stack import gateway
from stallwatch.testing import mute_server

CALLS = 30
Endpoint = Callable[[Path], AbstractContextManager[str]]
"""Something at whose address there is no collector, or one."""
PATIENCE = {"OTEL_EXPORTER_OTLP_TIMEOUT": "2", "OTEL_BSP_EXPORT_TIMEOUT": "2000"}
"""How long the exporter tries; it bounds how much longer the program takes to end, and nothing else."""


@contextmanager
def running(folder: Path) -> Generator[str]:
    with Processes(folder) as processes:
        store = Store(processes, folder)
        collector = Collector(processes, folder, settings={"COLLECTOR_TRACES_ENDPOINT": store.address})
        store.start()
        collector.start()
        yield collector.endpoint


@contextmanager
def refusing(_: Path) -> Generator[str]:
    yield f"http://127.0.0.1:{free_ports(1)[0]}"


@contextmanager
def hanging(_: Path) -> Generator[str]:
    with mute_server() as address:
        yield f"http://{address.host}:{address.port}"


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, float]:
    """Median and longest time of a call with a collector that works."""
    times, _ = measured(running, tmp_path_factory.mktemp("usual"))
    return statistics.median(times), max(times)


def measured(collector: Endpoint, folder: Path) -> tuple[list[float], float]:
    """Return the seconds of each call, and those from the last answer to the program's end."""
    with ExitStack() as entered:
        models = entered.enter_context(gateway())
        endpoint = entered.enter_context(collector(folder))
        processes = entered.enter_context(Processes(folder))
        program = Application(processes, base_url=models.base_url, endpoint=endpoint)
        plan = drip(folder, "steady", count=CALLS, every=0.1)
        answered = program.run(plan, seconds=60, environ=PATIENCE)
        ended = time.time()
    assert [one.end for one in answered] == ["returned"] * CALLS
    return [one.seconds for one in answered], ended - max(one.at for one in answered)


@pytest.mark.parametrize("collector", [refusing, hanging], ids=["refusing", "hanging"])
def test_calls_take_as_long_as_ever(usual: tuple[float, float], collector: Endpoint, folder: Path) -> None:
    times, ending = measured(collector, folder)
    median, longest = usual
    print(f"median {statistics.median(times):.3f} s, with a collector {median:.3f} s")
    print(
        f"longest {max(times):.3f} s, with a collector {longest:.3f} s; end of the program after {ending:.1f} s"
    )
    assert statistics.median(times) < median + 0.05
    # A single call may be hit by whatever else the machine does.
    assert max(times) < longest + 1.0
    # Spans and metrics are given up one after the other, each with a last try.
    assert ending < 15
