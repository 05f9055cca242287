"""The pytest fixture ``stall_gateway``.

A module beside the package, not in it: pytest imports every installed plugin in every run, and must not import the
OpenAI SDK because of ours, nor load the package before coverage starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stallwatch.testing.gateway import FaultGateway


@pytest.fixture
def stall_gateway() -> Iterator[FaultGateway]:
    """A started stallwatch.testing.FaultGateway: a local OpenAI-compatible server that misbehaves on purpose.

    Point a client at ``stall_gateway.base_url`` and choose the behaviour by model name, for example "silent",
    "stall-after:tokens=5" or "flaky:times=2"; ``stallwatch gateway --list`` shows all.
    ``stall_gateway.script(...)`` plays steps of your own; ``stall_gateway.ledger()`` and
    ``stall_gateway.wait_for(...)`` tell what happened.
    """
    from stallwatch.testing.gateway import FaultGateway

    with FaultGateway() as gateway:
        yield gateway
