"""Five deadlines, five numbers: the error and the span name the one that ran out."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

import pytest

from stallwatch.testing import (
    CloseDelimited,
    Comments,
    FaultGateway,
    Role,
    Silence,
    Token,
    mute_server,
    unaccepting_server,
)
from support.drivers import MESSAGES, Driver
from support.expect import Histogram, ended, in_time, released, stalled
from support.stage import Stage, play

DEADLINES: dict[str, Any] = {
    "connect": 0.15,
    "first_token": 0.4,
    "thinking": 0.35,
    "idle": 0.25,
    "total": 0.6,
}


@pytest.mark.parametrize(
    ("phase", "model", "chunks"),
    [
        ("first_token", "silent", 0),
        ("idle", "stall-after:tokens=2,gap=0.02", 3),
        ("total", "endless:gap=0.1", None),
    ],
)
def test_the_phase_that_ran_out_is_named(
    gateway: FaultGateway, driver: Driver, guarded: Any, phase: str, model: str, chunks: int | None
) -> None:
    with guarded(**DEADLINES) as captured:
        told = driver.tell(gateway.base_url, model)
        in_time(told.seconds if phase != "idle" else told.after_last, DEADLINES[phase])
        stalled(
            captured,
            told.error,
            phase=phase,
            limit=DEADLINES[phase],
            chunks=len(told.chunks) if chunks is None else chunks,
        )
    released(gateway)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("place", ["full backlog", "tls handshake"])
def test_a_connection_that_does_not_come_about_ends_at_the_connect_limit(
    driver: Driver, guarded: Any, place: str, stream: bool
) -> None:
    server: AbstractContextManager[Any] = unaccepting_server() if place == "full backlog" else mute_server()
    with server as address, guarded(**DEADLINES) as captured:
        url = address.base_url if place == "full backlog" else address.tls_base_url
        told = driver.tell(url, "m") if stream else _whole(driver, url, "m")
        in_time(told.seconds, DEADLINES["connect"])
        stalled(
            captured,
            told.error,
            phase="connect",
            limit=DEADLINES["connect"],
            stream=stream,
            interrupt=None,
        )


@pytest.mark.parametrize("place", ["full backlog", "tls handshake"])
def test_without_a_connect_limit_the_first_token_bounds_the_connect(
    driver: Driver, guarded: Any, place: str
) -> None:
    server: AbstractContextManager[Any] = unaccepting_server() if place == "full backlog" else mute_server()
    with server as address, guarded(**{**DEADLINES, "connect": None}) as captured:
        told = driver.tell(address.base_url if place == "full backlog" else address.tls_base_url, "m")
        in_time(told.seconds, DEADLINES["first_token"])
        stalled(captured, told.error, phase="first_token", limit=DEADLINES["first_token"], interrupt=None)


def test_headers_that_drip_are_bounded(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    with guarded(**DEADLINES) as captured:
        told = driver.tell(gateway.base_url, "drip-headers:every=0.02")
        in_time(told.seconds, DEADLINES["first_token"])
        stalled(captured, told.error, phase="first_token", limit=DEADLINES["first_token"], interrupt=None)
    released(gateway)


def test_headers_that_drip_fast_enough_are_healthy(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    with guarded(**DEADLINES) as captured:
        told = driver.tell(gateway.base_url, "drip-headers:every=0.001,gap=0")
        assert told.error is None
        assert told.text == "t0 t1 t2 t3 t4 "
        ended(captured, "completed", chunks=7)


@pytest.mark.parametrize(
    "model",
    ["never-responds", "keepalive:tokens=0,every=0.1", "drip-headers:every=0.02", "half a body"],
)
def test_a_call_that_is_not_streamed_is_bounded_by_its_total(
    gateway: FaultGateway, driver: Driver, guarded: Any, model: str
) -> None:
    gateway.script("half a body", [CloseDelimited(), Role(), Token("t"), Comments(0.1, 0.3), Silence()])
    # More than the first token would have: that limit is not for calls that are not streamed.
    total = DEADLINES["first_token"] + 0.1
    with guarded(**{**DEADLINES, "total": total}) as captured:
        told = _whole(driver, gateway.base_url, model)
        in_time(told.seconds, total)
        dripping = model.startswith(("keepalive", "half"))
        stalled(
            captured,
            told.error,
            phase="total",
            limit=total,
            # No seam sees the bytes of a body that is read in one go.
            wire=None if dripping else "dead_wire",
            stream=False,
            interrupt=None,
        )
    released(gateway)


def test_what_is_switched_off_does_not_run(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    with guarded(connect=0, first_token=None, thinking=-1, idle=0, total=None) as captured:
        told = driver.tell(gateway.base_url, "think-silently:seconds=0.5,tokens=2,gap=0.3")
        assert told.error is None
        attributes = ended(captured, "completed", chunks=4)
    assert attributes["stallwatch.time_to_first_token"] == pytest.approx(0.5, abs=0.15)


def test_the_users_own_tighter_timeout_stays(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    """A timeout that is not ours passes untouched, and is a failure, not a stall."""
    with guarded(**DEADLINES) as captured:
        told = driver.tell(gateway.base_url, "silent", timeout=0.2)
        in_time(told.seconds, 0.2)
        attributes = ended(captured, "failed", error_type="APITimeoutError")
    bare = driver.tell(gateway.base_url, "silent", timeout=0.2)
    assert type(told.error) is type(bare.error)
    assert str(told.error) == str(bare.error)
    assert attributes["error.type"] == "APITimeoutError"
    released(gateway, requests=2)


def test_the_readers_pauses_are_not_charged_to_the_total(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    with guarded(total=0.5) as captured:
        told = driver.tell(gateway.base_url, "slow:tokens=4,gap=0.02", pauses=[0.3, 0.3, 0.3])
        assert told.error is None
        assert told.seconds > 0.9
        ended(captured, "completed", chunks=6)
        assert Histogram(captured, "gen_ai.client.operation.duration").max > 0.9


def _whole(driver: Driver, url: str, model: str) -> Any:
    return _Call(driver, url, model)


class _Call:
    """A call that is not streamed, told like a stream."""

    def __init__(self, driver: Driver, url: str, model: str) -> None:
        self.error: BaseException | None = None
        self.seconds = 0.0
        play(driver, lambda stage: self._play(stage, url, model))

    async def _play(self, stage: Stage, url: str, model: str) -> None:
        async with stage.inside(stage.client(url)) as client:
            completions = client.chat.completions
            started = time.monotonic()
            try:
                await stage.of(completions.create(model=model, messages=MESSAGES))
            except Exception as error:
                self.error = error
            self.seconds = time.monotonic() - started
