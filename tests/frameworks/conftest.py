from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frameworks.installed import HERE
from stallwatch.testing import FaultGateway
from support.bounds import LIMITS
from support.telemetry import Captured, instrumented

_LOCAL = ("127.0.0.1", "localhost", "::1", b"127.0.0.1", b"localhost", None, "")
_abroad: list[Any] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo" and arguments[0] not in _LOCAL:
        _abroad.append(arguments[0])
    elif event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] not in _LOCAL:
        _abroad.append(arguments[1])


def pytest_configure(config: pytest.Config) -> None:
    pins = Path(os.environ.get("NEIGHBOURS", "")).stem
    wanted = pins.removeprefix("framework-").replace("-", "_")
    if pins.startswith("framework-") and wanted not in HERE:
        # All tests would be skipped, and nobody would know.
        raise pytest.UsageError(f"{pins}: {wanted} cannot be imported here; found: {HERE}")
    if HERE:
        # From before their imports on: some frameworks ask for news there.
        sys.addaudithook(_watch)
        # Frameworks leave clients and event loops to the collector, and warn of themselves and of one another.
        config.addinivalue_line("filterwarnings", "ignore")


@pytest.fixture(scope="session", autouse=True)
def what_frameworks_leave_open() -> Iterator[None]:
    """Is collected where its warnings are heard by nobody."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            gc.collect()


@pytest.fixture(autouse=True)
def nothing_reaches_the_internet() -> Iterator[None]:
    """Neither the frameworks' own telemetry nor anything else leaves this machine."""
    yield
    assert not _abroad


@pytest.fixture
def gateway() -> Iterator[FaultGateway]:
    with FaultGateway() as started:
        yield started


@pytest.fixture
def captured() -> Iterator[Captured]:
    with instrumented(**LIMITS) as telemetry:
        yield telemetry
