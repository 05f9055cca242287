"""Fixtures of the tests that play on real sockets; the conftest of each such folder takes them from here."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from support.places import LOOPS, Place, places

__all__ = ["loop", "nothing_is_logged", "place", "plain"]


@pytest.fixture(params=["plain", "tls"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A gateway, plain and TLS in turn."""
    with places(request.param) as (started,):
        yield started


@pytest.fixture
def plain() -> Iterator[Place]:
    """A gateway without TLS."""
    with places("plain") as (started,):
        yield started


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    """The kinds of event loop in turn."""
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A warning of stallwatch means that it left something unguarded or lost telemetry."""
    yield
    # Read from all phases of the test, because what is dropped is often found late.
    records = [*caplog.get_records("call"), *caplog.get_records("teardown")]
    told = [
        record.getMessage()
        for record in records
        if record.name == "stallwatch" and record.levelno >= logging.WARNING
    ]
    assert not told, told
