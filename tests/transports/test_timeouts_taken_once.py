"""Transports that take the timeouts of a request once, when they send it, as those on aiohttp do.

What is left for the headers must not bound the gaps of the body there: a stream that pauses for longer than
``first_token``, and not as long as ``idle``, is healthy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stallwatch.testing import FaultGateway
from support import expect
from support.bounds import LATE
from support.connects import http
from support.drivers import DRIVERS, Driver, Told
from support.telemetry import instrumented

PATIENT = {"connect": 1, "first_token": 0.3, "thinking": 0.3, "idle": 1.5, "total": 10, "keepalive_factor": 1}


def _as_of_now(request: Any) -> Any:
    """The same request, whose timeouts nobody can change any more; its transport tells nothing of its progress."""
    timeouts = dict(request.extensions.get("timeout", {}))
    return http.Request(
        request.method,
        request.url,
        headers=request.headers,
        stream=request.stream,
        extensions={"timeout": timeouts},
    )


def _transport() -> Any:
    inner = http.HTTPTransport(verify=False)

    class Once(http.BaseTransport):  # type: ignore[misc, name-defined]
        def handle_request(self, request: Any) -> Any:
            answer = inner.handle_request(_as_of_now(request))
            answer.extensions.pop("network_stream")
            return answer

        def close(self) -> None:
            inner.close()

    return Once()


def _async_transport() -> Any:
    inner = http.AsyncHTTPTransport(verify=False)

    class Once(http.AsyncBaseTransport):  # type: ignore[misc, name-defined]
        async def handle_async_request(self, request: Any) -> Any:
            answer = await inner.handle_async_request(_as_of_now(request))
            answer.extensions.pop("network_stream")
            return answer

        async def aclose(self) -> None:
            await inner.aclose()

    return Once()


@pytest.fixture
def gateway() -> Iterator[FaultGateway]:
    with FaultGateway() as started:
        yield started


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.kind)
def driver(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


def tell(driver: Driver, gateway: FaultGateway, model: str) -> Told:
    client = (
        http.AsyncClient(transport=_async_transport())
        if driver.is_async
        else http.Client(transport=_transport())
    )
    return driver.tell(gateway.base_url, model, options={"http_client": client})


def test_a_gap_longer_than_the_first_wait_may_be_is_not_cut(driver: Driver, gateway: FaultGateway) -> None:
    with instrumented(**PATIENT) as captured:
        told = tell(driver, gateway, "slow:tokens=3,gap=0.6")
    assert (told.text, told.error) == ("t0 t1 t2 ", None)
    expect.ended(captured, "completed")


@pytest.mark.parametrize("model", ["silent", "never-responds"])
def test_a_first_wait_ends_as_well_as_the_transport_allows(
    driver: Driver, gateway: FaultGateway, model: str
) -> None:
    with instrumented(**PATIENT) as captured:
        told = tell(driver, gateway, model)
    assert told.error is not None
    # Synchronously the transport's own read timeout is the only bound, and it must admit the longest gap of a stream.
    assert told.seconds <= (PATIENT["first_token"] if driver.is_async else PATIENT["idle"]) + LATE
    if driver.is_async:
        expect.stalled(captured, told.error, phase="first_token", limit=0.3, interrupt=None)


def test_a_stall_in_mid_answer_ends_in_time(driver: Driver, gateway: FaultGateway) -> None:
    with instrumented(**{**PATIENT, "idle": 0.4}) as captured:
        told = tell(driver, gateway, "stall-after:tokens=2")
    assert told.text == "t0 t1 "
    expect.in_time(told.after_last, 0.4)
    if driver.is_async:
        expect.stalled(captured, told.error, phase="idle", limit=0.4, chunks=3, interrupt=None)
