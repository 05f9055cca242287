"""No mix of failures makes more requests than the client allows, and no sum of waits outlives the total."""

from __future__ import annotations

import time
from typing import Any

import openai
import pytest

import stallwatch
from stallwatch.testing import (
    Comment,
    Done,
    ErrorFrame,
    FaultGateway,
    Finish,
    Headers,
    Raw,
    RefuseHeaders,
    Reset,
    Role,
    Silence,
    Status,
    Step,
    Token,
)
from support.bounds import LATE, LIMITS
from support.connects import http
from support.drivers import Driver
from support.expect import in_time, timeout_error
from support.stage import Stage, play
from support.telemetry import Captured, instrumented

GOOD = [Role(), Token("Hel"), Token("lo"), Finish(), Done()]
FAILURES: dict[str, list[Step]] = {
    "silent": [Headers(), Silence()],
    "mute": [RefuseHeaders()],
    "429": [Status(429)],
    "503": [Status(503)],
    "reset": [Headers(), Reset()],
    "reset before headers": [Reset()],
    "error frame": [ErrorFrame(code=502)],
    "empty": [Headers()],
    "comment": [Comment(), Silence()],
    "half": [Raw(b'data: {"id"'), Silence()],
}
ERRORS = (openai.APIError, http.TransportError)
"""Earlier releases of the SDK let the HTTP library's errors through while a stream is read."""

QUICK = {**LIMITS, "first_token": 0.12, "connect": 0.1}


@pytest.fixture(autouse=True)
def quick_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 0.02)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.02)


MIXES = [
    ("silent", "429", "reset", "error frame"),
    ("429", "silent", "503", "reset"),
    ("503", "503", "silent", "silent"),
    ("reset", "reset before headers", "mute", "empty"),
    ("error frame", "error frame", "error frame", "error frame"),
    ("mute", "silent", "mute", "silent"),
    ("empty", "429", "comment", "half"),
    ("comment", "reset before headers", "503", "429"),
    ("half", "error frame", "silent", "503"),
    *((name,) * 4 for name in FAILURES),
]


@pytest.mark.parametrize("retries", [0, 1, 2])
@pytest.mark.parametrize("mix", MIXES, ids="-".join)
def test_never_more_requests_than_the_client_allows(
    gateway: FaultGateway, driver: Driver, mix: tuple[str, ...], retries: int
) -> None:
    gateway.script("m", *(FAILURES[name] for name in mix))
    with instrumented(**QUICK) as captured:
        told = driver.tell(gateway.base_url, "m", options={"max_retries": retries})
    records = gateway.ledger().requests
    seen = len(records)
    # A connection may break before the gateway has read the request.
    lost = sum(name == "reset before headers" for name in mix[: retries + 1])
    assert seen <= retries + 1
    assert captured.attributes()["stallwatch.attempts"] == retries + 1
    assert seen >= retries + 1 - lost
    assert told.chunks == []
    last = mix[retries]
    if last == "empty":
        assert told.error is None
    else:
        assert isinstance(told.error, ERRORS), told.error
    expected = {"empty": "truncated"}.get(last, "failed")
    if last in ("silent", "mute", "comment", "half"):
        assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError), told.error
        expected = "stalled"
    assert captured.attributes()["stallwatch.outcome"] == expected
    decisions = [
        (event.attributes or {})["stallwatch.retry.decision"]
        for event in captured.span.events
        if event.name == "stallwatch.attempt"
    ]
    assert decisions == [*["retry"] * retries, "exhausted" if retries else "retries_off"]


@pytest.mark.parametrize("allowed", [0, 1, 2, 3])
@pytest.mark.parametrize("mix", [("silent", "429", "silent"), ("429", "silent", "503")], ids="-".join)
def test_a_good_answer_comes_as_soon_as_it_is_allowed(
    gateway: FaultGateway, driver: Driver, allowed: int, mix: tuple[str, ...]
) -> None:
    gateway.script("m", *(FAILURES[name] for name in mix), GOOD)
    with instrumented(**QUICK, max_retries=3):
        told = driver.tell(gateway.base_url, "m", options={"max_retries": allowed})
    assert (told.error is None) is (allowed == 3)
    assert told.text == ("Hello" if allowed == 3 else "")
    assert len(gateway.ledger().requests) == min(allowed, 3) + 1


WHERE = ["instrument", "policy", "environment", "client", "call"]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", ["silent", "503", "reset", "error frame"])
def test_no_retries_means_none_wherever_it_is_said(
    gateway: FaultGateway, driver: Driver, monkeypatch: pytest.MonkeyPatch, where: str, kind: str
) -> None:
    gateway.script("m", FAILURES[kind], GOOD)
    settings: dict[str, Any] = dict(QUICK)
    if where == "environment":
        monkeypatch.setenv("STALLWATCH_MAX_RETRIES", "0")
    if where == "instrument":
        settings["max_retries"] = 0
    around = stallwatch.policy(max_retries=0) if where == "policy" else stallwatch.policy()

    async def story(stage: Stage) -> None:
        retries = 0 if where == "client" else 2
        async with stage.inside(stage.client(gateway.base_url, max_retries=retries)) as client:
            asked = client.with_options(max_retries=0) if where == "call" else client
            with pytest.raises(ERRORS), around:
                await stage.all(await stage.chat(asked, "m"))

    with instrumented(**settings) as captured:
        play(driver, story)
    assert len(gateway.ledger().requests) == 1
    assert captured.attributes()["stallwatch.attempts"] == 1
    assert captured.attributes()["stallwatch.retry.decision"] == "retries_off"


@pytest.mark.parametrize(
    ("client", "policy", "requests"), [(0, 5, 1), (1, 5, 2), (5, 1, 2), (2, 2, 3), (1, None, 2), (4, None, 3)]
)
def test_the_smaller_of_the_two_numbers_counts(
    gateway: FaultGateway, driver: Driver, client: int, policy: int | None, requests: int
) -> None:
    gateway.script("m", FAILURES["silent"])
    more = {} if policy is None else {"max_retries": policy}
    with instrumented(**QUICK, **more):
        told = driver.tell(gateway.base_url, "m", options={"max_retries": client})
    assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError)
    assert len(gateway.ledger().requests) == requests


@pytest.mark.parametrize("policy", [None, 0, 1, 3])
def test_the_sdks_own_number_is_kept_where_no_policy_sets_one(
    gateway: FaultGateway, driver: Driver, policy: int | None
) -> None:
    gateway.script("m", FAILURES["503"])
    more = {} if policy is None else {"max_retries": policy}
    with instrumented(**QUICK, **more):
        driver.tell(gateway.base_url, "m", options={"max_retries": 4})
    assert len(gateway.ledger().requests) == 1 + min(4, 4 if policy is None else policy)


def test_the_environment_sets_a_number(
    gateway: FaultGateway, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLWATCH_MAX_RETRIES", "1")
    gateway.script("m", FAILURES["silent"])
    with instrumented(**QUICK):
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 4})
    assert told.error is not None
    assert len(gateway.ledger().requests) == 2


@pytest.mark.parametrize("played", ["mute", "silent"])
@pytest.mark.parametrize("set_by", ["policy", "run"])
def test_all_attempts_share_one_total(
    gateway: FaultGateway, driver: Driver, played: str, set_by: str
) -> None:
    """Two retries of a limit each would take longer than the total, which ends them wherever they stand."""
    total = 1.1
    gateway.script("m", FAILURES[played])
    settings = {**LIMITS, "first_token": 0.4, "total": total if set_by == "policy" else 60}
    with instrumented(**settings) as captured:
        run = stallwatch.Run(total=total) if set_by == "run" else stallwatch.Run()
        with run:
            told = driver.tell(gateway.base_url, "m", options={"max_retries": 5})
    in_time(told.seconds, total)
    if set_by == "policy":
        timeout_error(told.error, phase="total", limit=total, wire=None, attempt=3)
    assert isinstance(told.error, stallwatch.TotalTimeoutError), told.error
    assert len(gateway.ledger().requests) == captured.attributes()["stallwatch.attempts"] == 3
    assert captured.attributes()["stallwatch.stall.phase"] == "total"
    assert captured.attributes()["stallwatch.retry.decision"] == "deadline"


def test_no_back_off_is_begun_that_would_outlive_the_total(
    gateway: FaultGateway, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 4.0)
    gateway.script("m", FAILURES["silent"], GOOD)
    with instrumented(**{**QUICK, "total": 1.0}) as captured:
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 2})
    in_time(told.seconds, QUICK["first_token"])
    timeout_error(told.error, phase="first_token", limit=QUICK["first_token"])
    assert captured.attributes()["stallwatch.retry.decision"] == "deadline"
    assert len(gateway.ledger().requests) == 1


def test_a_route_that_fails_for_all_runs_out_of_retries(
    gateway: FaultGateway, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallwatch.core.budget.PER_MINUTE", 2.0)
    monkeypatch.setattr("stallwatch.core.pacing.SPACING", 0.01)
    gateway.script("spent", FAILURES["reset"])
    decisions: list[Any] = []
    for _ in range(6):
        with instrumented(**QUICK) as captured:
            told = driver.tell(gateway.base_url, "spent", options={"max_retries": 1})
        assert told.error is not None
        decisions.append(captured.attributes()["stallwatch.retry.decision"])
    assert decisions[0] == "exhausted"
    assert decisions[-1] == "budget_exhausted"
    assert len(gateway.ledger().requests) < 12


@pytest.mark.parametrize("kind", ["silent", "reset", "error frame", "empty"])
def test_observing_makes_no_attempt_of_its_own(gateway: FaultGateway, driver: Driver, kind: str) -> None:
    gateway.script("m", FAILURES[kind], GOOD)
    options = {"max_retries": 2, "timeout": 0.5}
    bare = driver.tell(gateway.base_url, "m", options=options)
    gateway.reset_ledger()
    with instrumented(**{**QUICK, "mode": "observe"}) as captured:
        told = driver.tell(gateway.base_url, "m", options=options)
    assert type(told.error) is type(bare.error), (told.error, bare.error)
    assert told.chunks == bare.chunks == []
    assert len(gateway.ledger().requests) == 1
    assert captured.attributes()["stallwatch.attempts"] == 1
    assert captured.attributes()["stallwatch.policy.mode"] == "observe"


def test_observing_leaves_the_sdks_retries_as_they_are(gateway: FaultGateway, driver: Driver) -> None:
    gateway.script("m", [Status(503, retry_after="0.3")], GOOD)
    with instrumented(**{**QUICK, "mode": "observe", "max_retries": 0}) as captured:
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 1})
    assert told.error is None
    assert told.text == "Hello"
    assert captured.attributes()["stallwatch.attempts"] == 2
    in_time(told.seconds, 0.3)


def test_the_policy_in_force_when_the_call_was_made_counts_for_its_retries(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", FAILURES["silent"], GOOD)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            stream = await stage.chat(client, "m")
            with stallwatch.policy(max_retries=0, mode="off"):
                began = time.monotonic()
                assert len(await stage.all(stream)) == 4
                assert time.monotonic() - began <= LIMITS["first_token"] + 0.1 + LATE

    play(driver, story)
    assert captured.attributes()["stallwatch.attempts"] == 2
