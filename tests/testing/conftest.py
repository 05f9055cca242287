from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stallwatch.testing import FaultGateway


@pytest.fixture
def gateway() -> Iterator[FaultGateway]:
    """A started gateway; fails the test if its thread outlives it."""
    before = set(threading.enumerate())
    with FaultGateway() as started:
        yield started
    names = [thread.name for thread in set(threading.enumerate()) - before]
    assert "stallwatch-fault-gateway" not in names, names
