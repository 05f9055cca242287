"""A silent stream ends at the deadline of its phase, and its connection is gone."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trustme

from stallwatch.testing import (
    CloseDelimited,
    FaultGateway,
    Reasoning,
    Role,
    Silence,
    Tokens,
    Wait,
)
from support.bounds import CLOSE_SEEN, LIMITS
from support.drivers import Driver
from support.expect import Histogram, bare_shape, in_time, released, stalled, timeout_error
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

APIS = ("chat", "completions", "responses")
PREAMBLE = {"chat": 1, "completions": 0, "responses": 2}
"""Chunks of a Role step in each form."""


@pytest.mark.parametrize(
    ("model", "api"), [*(("silent:after=0.05", api) for api in APIS), ("never-responds", "chat")]
)
def test_no_chunk_at_all_is_a_stall_of_the_first_token(
    gateway: FaultGateway, driver: Driver, captured: Captured, model: str, api: str
) -> None:
    told = driver.tell(gateway.base_url, model, api=api)
    assert told.chunks == []
    in_time(told.seconds, LIMITS["first_token"])
    # Before the headers the asynchronous abort is the transport's own timeout.
    proven = None if model == "never-responds" else "proven"
    attributes = stalled(
        captured, told.error, phase="first_token", limit=LIMITS["first_token"], interrupt=proven
    )
    assert "stallwatch.time_to_first_token" not in attributes
    assert "gen_ai.response.time_to_first_chunk" not in attributes
    assert Histogram(captured, "stallwatch.time_to_first_token").count == 0
    released(gateway)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_preamble_does_not_end_the_wait_for_the_first_token(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    gateway.script("m", [Role(), Silence()])
    told = driver.tell(gateway.base_url, "m", api=api)
    in_time(told.seconds, LIMITS["first_token"])
    attributes = stalled(
        captured,
        told.error,
        phase="first_token",
        limit=LIMITS["first_token"],
        wire="heartbeat_only",
        chunks=PREAMBLE[api],
    )
    assert "stallwatch.time_to_first_token" not in attributes
    assert Histogram(captured, "stallwatch.time_to_first_token").count == 0
    released(gateway)


@pytest.mark.parametrize("api", APIS)
def test_silence_in_mid_answer_ends_at_the_idle_limit(
    gateway: FaultGateway, driver: Driver, captured: Captured, api: str
) -> None:
    told = driver.tell(gateway.base_url, "stall-after:tokens=5,gap=0.05", api=api)
    assert told.text == "t0 t1 t2 t3 t4 "
    in_time(told.after_last, LIMITS["idle"])
    attributes = stalled(
        captured,
        told.error,
        phase="idle",
        limit=LIMITS["idle"],
        chunks=len(told.chunks),
    )
    assert attributes["stallwatch.time_to_first_token"] < 0.2
    assert Histogram(captured, "stallwatch.time_to_first_token").count == 1
    assert Histogram(captured, "gen_ai.client.operation.time_per_output_chunk").count == 4
    released(gateway)


def test_the_chunks_before_a_stall_are_those_of_the_bare_sdk(gateway: FaultGateway, driver: Driver) -> None:
    model = "stall-after:tokens=3,gap=0"
    bare = driver.tell(gateway.base_url, model, timeout=0.2)
    with instrumented(**LIMITS):
        guarded = driver.tell(gateway.base_url, model)
    assert bare_shape(guarded.chunks) == bare_shape(bare.chunks)
    assert [type(chunk) for chunk in guarded.chunks] == [type(chunk) for chunk in bare.chunks]


def test_a_stall_closes_the_connection_though_nobody_closes_the_stream(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            stream = await stage.chat(client, "stall-after:tokens=2,gap=0")
            await stage.take(stream, 3)
            with pytest.raises(TimeoutError) as caught:
                await stage.step(stream)
            await stage.closed(gateway, CLOSE_SEEN)
            # The one connection the next call needs is free.
            answer = await stage.chat(client, "healthy:gap=0", stream=False)
            assert answer.choices[0].message.content == "t0 t1 t2 t3 t4 "
            assert str(caught.value).startswith("Request timed out: no progress in phase idle")

    play(driver, story)
    assert [span.attributes["stallwatch.outcome"] for span in captured.spans] == ["stalled", "completed"]
    assert len(gateway.ledger().requests) == 2


def test_a_stalled_stream_never_looks_finished(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    errors: list[Any] = []

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url)) as client:
            stream = await stage.chat(client, "stall-after:tokens=1,gap=0")
            await stage.take(stream, 2)
            for _ in range(3):
                with pytest.raises(TimeoutError) as caught:
                    await stage.step(stream)
                errors.append(caught.value)
            await stage.close(stream)
            with pytest.raises(TimeoutError) as caught:
                await stage.all(stream)
            errors.append(caught.value)

    play(driver, story)
    for error in errors:
        timeout_error(error, phase="idle", limit=LIMITS["idle"], chunks=2)
    assert len({id(error) for error in errors}) == len(errors)
    assert {str(error) for error in errors} == {str(errors[0])}
    stalled(captured, errors[0], phase="idle", limit=LIMITS["idle"], chunks=2)
    released(gateway)


def test_silence_while_thinking_ends_at_the_thinking_limit(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", [Role(), Reasoning("hm "), Silence()])
    told = driver.tell(gateway.base_url, "m")
    in_time(told.after_last, LIMITS["thinking"])
    attributes = stalled(captured, told.error, phase="thinking", limit=LIMITS["thinking"], chunks=2)
    assert "stallwatch.time_to_first_token" in attributes
    assert "stallwatch.time_to_visible_output" not in attributes
    released(gateway)


def test_a_stall_of_a_close_delimited_body_is_no_clean_end(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", [CloseDelimited(), Role(), Tokens(2), Silence()])
    told = driver.tell(gateway.base_url, "m")
    in_time(told.after_last, LIMITS["idle"])
    stalled(captured, told.error, phase="idle", limit=LIMITS["idle"], chunks=3)
    released(gateway)


@pytest.mark.parametrize(
    ("model", "phase", "wire", "chunks"),
    [
        ("silent", "first_token", "dead_wire", 0),
        ("stall-after:tokens=2,gap=0", "idle", "dead_wire", 3),
        ("keepalive:tokens=2,gap=0,every=0.08", "idle", "keepalive_only", 3),
    ],
)
def test_over_tls_it_is_the_same(
    authority: trustme.CA,
    driver: Driver,
    captured: Captured,
    model: str,
    phase: str,
    wire: str,
    chunks: int,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with FaultGateway(ssl_context=context) as gateway:
        told = driver.tell(gateway.base_url, model)
        in_time(told.after_last, LIMITS[phase])
        stalled(captured, told.error, phase=phase, limit=LIMITS[phase], wire=wire, chunks=chunks)
        released(gateway)


def test_observing_reports_the_stall_and_touches_nothing(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", [Role(), Tokens(1), Wait(0.4), Tokens(2)])
    with guarded(mode="observe") as captured:
        told = driver.tell(gateway.base_url, "m")
    assert told.error is None
    assert told.text == "t0 t0 t1 "
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "truncated"
    assert attributes["stallwatch.stalled"] is False
    assert attributes["stallwatch.stall.phase"] == "idle"
    (event,) = captured.events()
    assert event.name == "stallwatch.stall"
    assert event.attributes["stallwatch.stall.action"] == "observe"
    assert captured.total("stallwatch.stalls", stallwatch__stall__action="observe") == 1
    assert captured.total("stallwatch.stalls", stallwatch__stall__action="abort") == 0
