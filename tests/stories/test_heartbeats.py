"""Bytes that carry nothing: comments and empty chunks hide no dead generation, and are told apart."""

from __future__ import annotations

from typing import Any

from stallwatch.testing import Comments, FaultGateway, Headers, Silence
from support.bounds import LIMITS
from support.drivers import Driver
from support.expect import Histogram, in_time, released, stalled
from support.telemetry import Captured


def test_comments_do_not_hide_a_dead_generation(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    told = driver.tell(gateway.base_url, "keepalive:tokens=2,every=0.08")
    in_time(told.after_last, LIMITS["idle"])
    assert told.text == "t0 t1 "
    stalled(captured, told.error, phase="idle", limit=LIMITS["idle"], wire="keepalive_only", chunks=3)
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
    told = driver.tell(gateway.base_url, "heartbeats:every=0.08")
    in_time(told.seconds, LIMITS["first_token"])
    sent = gateway.ledger().requests[0]
    assert len(told.chunks) == sent.count("role") + sent.count("heartbeat")
    assert len(told.chunks) in (4, 5)
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


def test_bytes_without_progress_extend_the_wait_for_the_first_token(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", [Headers(), Comments(0.12)])
    with guarded(first_token=0.3, keepalive_factor=2) as captured:
        told = driver.tell(gateway.base_url, "m")
        in_time(told.seconds, 0.6)
        stalled(captured, told.error, phase="first_token", limit=0.3, allowed=0.6, wire="keepalive_only")
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
        stalled(captured, told.error, phase="idle", limit=LIMITS["idle"], wire="keepalive_only", chunks=2)
    released(gateway)
