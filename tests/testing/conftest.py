from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stallwatch.testing import FaultGateway


@pytest.fixture
def gateway() -> Iterator[FaultGateway]:
    """A started gateway; fails the test if its thread outlives it."""
    with FaultGateway() as started:
        yield started
    names = [thread.name for thread in threading.enumerate()]
    assert "stallwatch-fault-gateway" not in names, names
