"""A transport that overcomes a timeout by itself: the call is a stall at its deadline, or whole, and never both."""

from __future__ import annotations

from typing import Any

import pytest

import stallwatch
from support import expect
from support.bounds import LATE
from support.connects import DEAD, http, http_client
from support.drivers import ASYNC, DRIVERS, SYNC, Driver, Told
from support.places import Place
from support.telemetry import Captured, instrumented

WHOLE = 5
"""Chunks of ``healthy:tokens=3``: the role and the finish reason come with them."""


def _first_is_dead(number: int) -> float:
    return 0.0 if number else DEAD


class SendsAgain(http.BaseTransport):  # type: ignore[misc, name-defined]
    """Sends a request again that timed out."""

    def __init__(self) -> None:
        self._inner = http.HTTPTransport(verify=False)

    def handle_request(self, request: Any) -> Any:
        try:
            return self._inner.handle_request(request)
        except http.TimeoutException:
            return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


class PoolSendsAgain(http.HTTPTransport):  # type: ignore[misc, name-defined]
    """Does the same with its pool where it always is, so that reads on it are bounded."""

    def handle_request(self, request: Any) -> Any:
        try:
            return super().handle_request(request)
        except http.TimeoutException:
            return super().handle_request(request)


class SendsAgainAsync(http.AsyncBaseTransport):  # type: ignore[misc, name-defined]
    """Sends a request again that timed out."""

    def __init__(self) -> None:
        self._inner = http.AsyncHTTPTransport(verify=False)

    async def handle_async_request(self, request: Any) -> Any:
        try:
            return await self._inner.handle_async_request(request)
        except http.TimeoutException:
            return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class PoolSendsAgainAsync(http.AsyncHTTPTransport):  # type: ignore[misc, name-defined]
    """Does the same with its pool where it always is."""

    async def handle_async_request(self, request: Any) -> Any:
        try:
            return await super().handle_async_request(request)
        except http.TimeoutException:
            return await super().handle_async_request(request)


KINDS: dict[str, Any] = {
    "sync, own": lambda: http.Client(transport=SendsAgain()),
    "sync, pool": lambda: http.Client(transport=PoolSendsAgain(verify=False)),
    "async, own": lambda: http.AsyncClient(transport=SendsAgainAsync()),
    "async, pool": lambda: http.AsyncClient(transport=PoolSendsAgainAsync(verify=False)),
}


def _driver(kind: str) -> Driver:
    return SYNC if kind.startswith("sync") else ASYNC


def _is_whole_or_stalled(captured: Captured, told: Told, limits: dict[str, float]) -> None:
    """The call is whole and completed, or a stall before its first chunk, at one of these limits."""
    attributes = captured.attributes()
    if told.error is None:
        assert len(told.chunks) == WHOLE
        assert attributes["stallwatch.outcome"] == "completed"
        assert captured.total("stallwatch.streams", stallwatch__outcome="completed") == 1
        return
    assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError), repr(told.error)
    assert told.chunks == []
    assert told.error.phase in limits
    expect.in_time(told.error.waited, limits[told.error.phase])
    assert told.seconds <= limits[told.error.phase] + LATE
    assert attributes["stallwatch.outcome"] == "stalled"


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_a_connect_that_the_transport_tries_again(plain: Place, driver: Driver) -> None:
    client = http_client(driver, _first_is_dead, retries=1)
    with instrumented(connect=0.2, first_token=2, thinking=2, idle=2) as captured:
        told = driver.tell(plain.base_url, "healthy:tokens=3", options={"http_client": client})
    _is_whole_or_stalled(captured, told, {"connect": 0.2})


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
@pytest.mark.parametrize(
    ("model", "limits"),
    [
        ("silent", {"connect": 0.15, "first_token": 0.3}),
        ("never-responds", {"connect": 0.15, "first_token": 0.3}),
        ("keepalive:tokens=0,every=0.05", {"connect": 0.15, "first_token": 0.6}),
    ],
)
def test_limits_hold_after_a_connect_that_was_tried_again(
    plain: Place, driver: Driver, model: str, limits: dict[str, float]
) -> None:
    client = http_client(driver, _first_is_dead, retries=1)
    with instrumented(connect=0.15, first_token=0.3, thinking=0.3, idle=0.3, total=3) as captured:
        told = driver.tell(plain.base_url, model, options={"http_client": client})
    assert told.error is not None
    # The role of a keepalive stream, which is no progress, may have come.
    told.chunks = [chunk for chunk in told.chunks if chunk.choices[0].delta.content]
    _is_whole_or_stalled(captured, told, limits)


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_the_transport_sends_again_at_our_deadline(plain: Place, kind: str) -> None:
    with instrumented(connect=5, first_token=0.3, thinking=2, idle=2) as captured:
        told = _driver(kind).tell(
            plain.base_url, "never-responds>healthy:tokens=3", options={"http_client": KINDS[kind]()}
        )
    _is_whole_or_stalled(captured, told, {"first_token": 0.3})


@pytest.mark.parametrize("kind", KINDS)
def test_limits_hold_after_a_request_that_was_sent_again(plain: Place, kind: str) -> None:
    with instrumented(connect=5, first_token=0.3, thinking=0.3, idle=0.3, total=3) as captured:
        told = _driver(kind).tell(
            plain.base_url, "never-responds>stall-after:tokens=0", options={"http_client": KINDS[kind]()}
        )
    assert told.error is not None
    if told.chunks:
        # It got through in the instant of the deadline: the silence after the role has a limit all the same.
        assert told.seconds <= 0.6 + LATE
        assert captured.attributes()["stallwatch.outcome"] == "stalled"
        return
    _is_whole_or_stalled(captured, told, {"first_token": 0.3})


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_sent_again_at_the_users_own_timeout_is_whole(plain: Place, kind: str) -> None:
    with instrumented(connect=5, first_token=2, thinking=2, idle=2) as captured:
        told = _driver(kind).tell(
            plain.base_url,
            "never-responds>healthy:tokens=3",
            options={"http_client": KINDS[kind](), "timeout": 0.15},
        )
    assert told.error is None
    assert len(told.chunks) == WHOLE
    expect.ended(captured, "completed", chunks=WHOLE)
    assert len(plain.gateway.ledger().requests) == 2
