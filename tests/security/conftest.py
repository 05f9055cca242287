from __future__ import annotations

from collections.abc import Iterator

import pytest

from security.net import Net, net_over
from stories.conftest import authority, driver, gateway, leaves_nothing, warm

__all__ = ["authority", "driver", "gateway", "leaves_nothing", "warm"]


@pytest.fixture
def net(caplog: pytest.LogCaptureFixture) -> Iterator[Net]:
    """Everything that comes out of an instrumented SDK, to be searched."""
    with net_over(caplog) as spread:
        yield spread
