"""A silent stream ends at the deadline of its phase, and its connection is gone."""

from __future__ import annotations

from typing import Any

import pytest

from stallwatch.testing import CloseDelimited, Comments, FaultGateway, Headers, Reasoning, Role, Silence, Tokens, Wait
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
            assert str(caught.value).startswith("no progress in phase idle")

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


def test_comments_do_not_hide_a_dead_generation(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    told = driver.tell(gateway.base_url, "keepalive:tokens=2,every=0.08")
    in_time(told.after_last, LIMITS["idle"])
    assert told.text == "t0 t1 "
    stalled(
        captured, told.error, phase="idle", limit=LIMITS["idle"], wire="keepalive_only", chunks=3
    )
    released(gateway)


def test_comments_before_the_first_token_do_not_either(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", [Headers(), Comments(0.1)])
    told = driver.tell(gateway.base_url, "m")
    in_time(told.seconds, LIMITS["first_token"])
    stalled(captured, told.error, phase="first_token", limit=LIMITS["first_token"], wire="keepalive_only")
    released(gateway)


def test_empty_chunks_are_passed_on_but_are_no_progress(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    told = driver.tell(gateway.base_url, "heartbeats:every=0.1")
    in_time(told.seconds, LIMITS["first_token"])
    sent = gateway.ledger().requests[0]
    assert len(told.chunks) == sent.count("role") + sent.count("heartbeat")
    assert len(told.chunks) in (5, 6)
    kinds = [
        "no choices" if not chunk.choices else chunk.choices[0].delta.content for chunk in told.chunks[1:5]
    ]
    assert kinds == ["no choices", None, "", "no choices"]
    attributes = stalled(
        captured,
        told.error,
        phase="first_token",
        limit=LIMITS["first_token"],
        wire="heartbeat_only",
        chunks=len(told.chunks),
    )
    assert attributes["stallwatch.heartbeats"] == len(told.chunks) - 1
    assert Histogram(captured, "gen_ai.client.operation.time_per_output_chunk").count == 0
    assert Histogram(captured, "stallwatch.time_to_first_token").count == 0
    released(gateway)


def test_empty_chunks_after_a_token_are_no_progress(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    told = driver.tell(gateway.base_url, "heartbeats:tokens=1,every=0.07")
    after_token = told.seconds - captured.attributes()["stallwatch.time_to_first_token"]
    in_time(after_token, LIMITS["idle"])
    stalled(
        captured,
        told.error,
        phase="idle",
        limit=LIMITS["idle"],
        wire="heartbeat_only",
        chunks=len(told.chunks),
    )
    released(gateway)


def test_empty_responses_events_are_no_progress(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    told = driver.tell(gateway.base_url, "heartbeats:every=0.1", api="responses")
    in_time(told.seconds, LIMITS["first_token"])
    stalled(
        captured,
        told.error,
        phase="first_token",
        limit=LIMITS["first_token"],
        wire="heartbeat_only",
        chunks=len(told.chunks),
    )
    released(gateway)


def test_an_unchanged_usage_counter_is_no_progress(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    told = driver.tell(gateway.base_url, "heartbeats:every=0.1,usage=unchanged")
    # The first snapshot is news: the model thinks.
    in_time(told.seconds, 0.1 + LIMITS["thinking"])
    stalled(
        captured,
        told.error,
        phase="thinking",
        limit=LIMITS["thinking"],
        wire="heartbeat_only",
        chunks=len(told.chunks),
    )
    assert Histogram(captured, "stallwatch.time_to_first_token").count == 0
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


def test_bytes_without_progress_extend_the_wait_for_the_first_token(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", [Headers(), Comments(0.12)])
    with guarded(first_token=0.3, keepalive_factor=2) as captured:
        told = driver.tell(gateway.base_url, "m")
        in_time(told.seconds, 0.6)
        stalled(
            captured, told.error, phase="first_token", limit=0.3, allowed=0.6, wire="keepalive_only"
        )
    released(gateway)


def test_a_wire_that_dies_within_the_extension_is_dead(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", [Headers(), Comments(0.1, 0.2), Silence()])
    with guarded(first_token=0.3, keepalive_factor=2) as captured:
        told = driver.tell(gateway.base_url, "m")
        in_time(told.seconds, 0.2 + 0.3)
        stalled(captured, told.error, phase="first_token", limit=0.3, wire="dead_wire")
    released(gateway)


def test_the_idle_limit_is_never_extended(gateway: FaultGateway, driver: Driver, guarded: Any) -> None:
    with guarded(keepalive_factor=4) as captured:
        told = driver.tell(gateway.base_url, "keepalive:tokens=1,every=0.08")
        in_time(told.after_last, LIMITS["idle"])
        stalled(
            captured, told.error, phase="idle", limit=LIMITS["idle"], wire="keepalive_only", chunks=2
        )
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
    (event,) = captured.span.events
    assert event.name == "stallwatch.stall"
    assert event.attributes["stallwatch.stall.action"] == "observe"
    assert captured.total("stallwatch.stalls", stallwatch__stall__action="observe") == 1
    assert captured.total("stallwatch.stalls", stallwatch__stall__action="abort") == 0
