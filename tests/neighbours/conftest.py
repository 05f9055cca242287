"""Tests beside other tools. Each is skipped where its tool is not installed, as in the environment of ``make test``.

``NEIGHBOURS`` names a file of pins: every tool in it must then be there, and there must be one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from neighbours.tools import BELOW, HERE, TOOLS, untouched
from stallwatch.testing import FaultGateway


def pytest_collection_modifyitems() -> None:
    """Fail instead of skipping everything, where a file of pins says who is to be there."""
    pins = os.environ.get("NEIGHBOURS")
    if pins is None:
        return
    pinned = {line.partition("==")[0] for line in Path(pins).read_text().splitlines()}
    wanted = {tool.distribution for tool in TOOLS} & pinned
    missing = wanted - {tool.distribution for tool in HERE}
    if not wanted and BELOW.distribution not in pinned:
        raise pytest.UsageError(f"{pins} pins none of the tools these tests know")
    if missing:
        raise pytest.UsageError(
            f"pinned in {pins}, but not to be imported here: {', '.join(sorted(missing))}"
        )


@pytest.fixture(scope="session")
def gateway() -> Iterator[FaultGateway]:
    """One server for all tests."""
    with FaultGateway() as started:
        yield started


@pytest.fixture(autouse=True)
def clean_sdk() -> Iterator[None]:
    """Every test begins and ends with the SDK as it is without any tool."""
    with untouched():
        yield
