"""The server's wait is honoured in every form, within the total; cancelling it sends nothing more."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

from stallwatch.testing import Done, FaultGateway, Finish, Headers, Reset, Role, Silence, Status, Token
from support.bounds import EARLY, LATE
from support.drivers import ASYNC, SYNC, Driver
from support.expect import in_time
from support.stage import Stage, play
from support.telemetry import Captured

GOOD = [Role(), Token("Hel"), Token("lo"), Finish(), Done()]
TOTAL = 5.0
BACK_OFF = 0.05


@pytest.fixture(autouse=True)
def quick_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", BACK_OFF)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", BACK_OFF)


def attempt(captured: Captured, number: int = 0) -> dict[str, Any]:
    events = [event for event in captured.span.events if event.name == "stallwatch.attempt"]
    return dict(events[number].attributes or {})


def gap(gateway: FaultGateway, at: int = 0) -> float:
    """Seconds from the end of an answer to the next request."""
    first, second = gateway.ledger().requests[at : at + 2]
    assert first.completed_at is not None
    return second.received_at - first.completed_at


FORMS = [
    # header, the wait it asks for (None for the ordinary back-off)
    ({"retry_after": "0"}, None),
    ({"retry_after": "-5"}, None),
    ({"retry_after": "1"}, 1.0),
    ({"retry_after": "0.3"}, 0.3),
    ({"retry_after": " 0.3 "}, 0.3),
    ({"retry_after": "soon"}, None),
    ({"retry_after": "Thu, 01 Jan 1970 00:00:00 GMT"}, None),
    ({"retry_after": "Thu, 99 Foo 2030"}, None),
    ({"retry_after_ms": "250"}, 0.25),
    ({"retry_after_ms": "250", "retry_after": "3"}, 0.25),
    ({"retry_after_ms": "x", "retry_after": "0.3"}, 0.3),
    ({"retry_after_ms": "0"}, None),
    ({}, None),
]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("headers", "wait"), FORMS, ids=str)
def test_the_wait_the_server_asks_for_is_kept(
    gateway: FaultGateway, driver: Driver, captured: Captured, status: int, headers: Any, wait: float | None
) -> None:
    if status == 503 and wait == 1.0:
        pytest.skip("slow, and the same as 429")
    gateway.script("m", [Status(status, **headers)], GOOD)
    told = driver.tell(gateway.base_url, "m", options={"max_retries": 1})
    assert told.error is None, told.error
    assert told.text == "Hello"
    one = attempt(captured)
    if wait is None:
        assert gap(gateway) <= BACK_OFF + LATE
        assert "stallwatch.retry.server_wait" not in one
        assert one["stallwatch.retry.delay"] <= BACK_OFF
    else:
        in_time(gap(gateway), wait)
        assert one["stallwatch.retry.server_wait"] == pytest.approx(wait)
        assert one["stallwatch.retry.delay"] == pytest.approx(wait)


def test_an_http_date_is_waited_for(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    gateway.script("m", [Status(429, retry_after="date+2")], GOOD)
    told = driver.tell(gateway.base_url, "m", options={"max_retries": 1})
    assert told.error is None
    # Dates have whole seconds: two ahead is between one and two.
    assert 1.0 - EARLY <= gap(gateway) <= 2.0 + LATE
    assert 1.0 - EARLY <= attempt(captured)["stallwatch.retry.server_wait"] <= 2.0


@pytest.mark.parametrize(
    ("asked", "decision"),
    [
        ("600", "server_wait"),
        ("121", "server_wait"),
        ("1e400", "server_wait"),
        ("60", "deadline"),
        ("5.1", "deadline"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_wait_that_cannot_be_slept_is_the_servers_error_at_once(
    gateway: FaultGateway, driver: Driver, captured: Captured, asked: str, decision: str, stream: bool
) -> None:
    """Never an early retry that ignores the header, and never a sleep past the total."""
    gateway.script("m", [Status(429, retry_after=asked)], GOOD)
    errors: list[Any] = []

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            with pytest.raises(Exception) as caught:
                await stage.chat(client, "m", stream=stream)
            errors.append(caught.value)

    began = time.monotonic()
    play(driver, story)
    assert time.monotonic() - began < 1.0
    assert type(errors[0]).__name__ == "RateLimitError"
    assert len(gateway.ledger().requests) == 1
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "failed"
    assert attributes["stallwatch.retry.decision"] == decision
    assert attempt(captured)["stallwatch.retry.server_wait"] > TOTAL


def test_a_wait_of_just_the_longest_is_not_refused_for_its_length(
    gateway: FaultGateway, driver: Driver, guarded: Any
) -> None:
    gateway.script("m", [Status(429, retry_after="120")])
    with guarded(total=30) as captured:
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 1})
    assert told.error is not None
    assert captured.attributes()["stallwatch.retry.decision"] == "deadline"


def test_the_wait_is_kept_in_the_middle_of_a_splice_as_well(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", [Headers(), Reset()], [Status(429, retry_after="0.4")], GOOD)
    told = driver.tell(gateway.base_url, "m", options={"max_retries": 2})
    assert told.error is None
    in_time(gap(gateway, 1), 0.4)
    assert attempt(captured, 1)["stallwatch.retry.server_wait"] == pytest.approx(0.4)


def test_a_wait_that_cannot_be_slept_ends_a_splice(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", [Headers(), Reset()], [Status(429, retry_after="600")], GOOD)
    told = driver.tell(gateway.base_url, "m", options={"max_retries": 3})
    assert type(told.error).__name__ == "RateLimitError", told.error
    assert told.seconds < 1.0
    assert len(gateway.ledger().requests) == 2
    assert captured.attributes()["stallwatch.retry.decision"] == "server_wait"


def test_what_one_call_was_told_holds_for_the_next_retries_of_the_route(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    """A second call that fails otherwise meanwhile does not come back before the server's wait is over."""
    gateway.script("m", [Status(429, retry_after="0.8")], [Headers(), Silence()], GOOD)
    begins: list[float] = []

    def first() -> None:
        begins.append(time.monotonic())
        SYNC.tell(gateway.base_url, "m", options={"max_retries": 1})

    thread = threading.Thread(target=first)
    thread.start()
    gateway.wait_for(lambda ledger: ledger.requests[0].completed_at)
    told = driver.tell(gateway.base_url, "m", options={"max_retries": 1})
    thread.join()
    assert told.error is None
    requests = gateway.ledger().requests
    asked_at = requests[0].completed_at
    assert asked_at is not None
    assert all(request.received_at - asked_at >= 0.8 - EARLY for request in requests[2:])


# Cancelled while the server's wait is slept, without any Run


def test_a_task_cancelled_in_the_wait_sends_nothing_more(gateway: FaultGateway, captured: Captured) -> None:
    gateway.script("m", [Status(503, retry_after="3")], GOOD)

    async def story(stage: Stage) -> None:
        async with stage.client(gateway.base_url, max_retries=2) as client:
            task = asyncio.ensure_future(stage.chat(client, "m"))
            await gateway.wait_for_async(lambda ledger: ledger.requests[0].completed_at)
            await asyncio.sleep(0.2)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - began <= LATE

    play(ASYNC, story)
    _cancelled(captured, gateway)


def test_ctrl_c_in_the_wait_sends_nothing_more(gateway: FaultGateway, captured: Captured) -> None:
    gateway.script("m", [Status(503, retry_after="3")], GOOD)
    main = threading.get_ident()
    struck: list[float] = []

    def strike() -> None:
        gateway.wait_for(lambda ledger: ledger.requests[0].completed_at)
        time.sleep(0.2)
        struck.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=strike)
    try:
        with SYNC.client(gateway.base_url, max_retries=2) as client:
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                client.chat.completions.create(model="m", messages=[], stream=True)
            assert time.monotonic() - struck[0] <= LATE
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    _cancelled(captured, gateway)


def _cancelled(captured: Captured, gateway: FaultGateway) -> None:
    assert len(gateway.ledger().requests) == 1
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "cancelled"
    assert attributes["stallwatch.retry.kind"] == "cancel"
    assert attributes["stallwatch.retry.diagnosis"] != "retryable"
    assert attributes["stallwatch.retry.decision"] == "cancelled"
    assert "error.type" not in attributes
