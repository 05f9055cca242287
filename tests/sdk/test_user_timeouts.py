"""The user's own timeouts and retries: a tighter one passes through untouched, and ours only ever tighten."""

from __future__ import annotations

import time
from typing import Any

import openai
import openai._base_client as base
import pytest

import stallwatch
from support.drivers import DRIVERS, Driver, Told
from support.places import Place
from support.telemetry import instrumented

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
ANSWERS_NOTHING = "never-responds"

Timeout: Any = openai.Timeout


def _same(told: Told, bare: Told) -> None:
    assert type(told.error) is type(bare.error)
    assert str(told.error) == str(bare.error)
    assert not isinstance(told.error, stallwatch.StallwatchError)


@drivers
@pytest.mark.parametrize(
    ("timeout", "model"),
    [
        (0.3, ANSWERS_NOTHING),
        (Timeout(10, read=0.3), ANSWERS_NOTHING),
        (0.3, "silent"),
        (Timeout(10, read=0.3), "stall-after:tokens=2,gap=0"),
    ],
)
def test_a_tighter_timeout_of_the_user_is_the_bare_sdks_error(
    plain: Place, driver: Driver, timeout: Any, model: str
) -> None:
    bare = driver.tell(plain.base_url, model, options={"timeout": timeout})
    with instrumented(first_token=1, thinking=1, idle=1) as captured:
        told = driver.tell(plain.base_url, model, options={"timeout": timeout})
    _same(told, bare)
    assert "Timeout" in type(told.error).__name__
    assert 0.25 < told.seconds < 0.8
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "failed"
    assert attributes["stallwatch.stalled"] is False
    assert attributes["error.type"] == "APITimeoutError"
    assert not captured.events()


@drivers
def test_a_timeout_given_with_the_call_passes_through(plain: Place, driver: Driver) -> None:
    bare = driver.tell(plain.base_url, ANSWERS_NOTHING, timeout=0.3)
    with instrumented(first_token=1):
        told = driver.tell(plain.base_url, ANSWERS_NOTHING, timeout=0.3)
    _same(told, bare)


@drivers
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_looser_timeout_of_the_user_is_tightened(plain: Place, driver: Driver, timeout: Any) -> None:
    with instrumented(first_token=0.3) as captured:
        told = driver.tell(plain.base_url, ANSWERS_NOTHING, options={"timeout": timeout})
    assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError)
    assert told.error.phase == "first_token"
    assert told.seconds < 0.8
    assert captured.attributes()["stallwatch.outcome"] == "stalled"


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's own pause between attempts, but short."""
    monkeypatch.setattr(base.BaseClient, "_calculate_retry_timeout", lambda *_, **__: 0.05)


@drivers
@pytest.mark.usefixtures("quick_retries")
def test_the_sdks_own_retries_go_on(plain: Place, driver: Driver) -> None:
    with instrumented(first_token=0.2) as captured:
        told = driver.tell(plain.base_url, ANSWERS_NOTHING, options={"max_retries": 2})
    assert isinstance(told.error, stallwatch.StreamInactivityTimeoutError)
    assert told.error.attempt == 3
    requests = plain.gateway.ledger().requests
    assert [request.retry_count for request in requests] == [0, 1, 2]
    assert captured.attributes()["stallwatch.attempts"] == 3
    assert captured.total("stallwatch.stalls") == 3
    assert len(captured.spans) == 1


@drivers
@pytest.mark.usefixtures("quick_retries")
def test_a_retry_after_silence_may_succeed(plain: Place, driver: Driver) -> None:
    with instrumented(first_token=0.2) as captured:
        told = driver.tell(
            plain.base_url, f"{ANSWERS_NOTHING}>healthy:tokens=2,gap=0", options={"max_retries": 2}
        )
    assert (told.error, told.text) == (None, "t0 t1 ")
    attributes = captured.attributes()
    assert (attributes["stallwatch.outcome"], attributes["stallwatch.attempts"]) == ("completed", 2)


@drivers
@pytest.mark.usefixtures("quick_retries")
def test_the_total_bounds_all_attempts_together(plain: Place, driver: Driver) -> None:
    with instrumented(first_token=0.3, total=0.5) as captured:
        told = driver.tell(plain.base_url, ANSWERS_NOTHING, options={"max_retries": 5})
    assert isinstance(told.error, stallwatch.TotalTimeoutError)
    assert 0.45 < told.seconds < 0.9
    assert told.error.attempt == 2
    assert len(plain.gateway.ledger().requests) == 2
    assert captured.attributes()["stallwatch.stall.phase"] == "total"


@drivers
def test_the_total_cuts_a_back_off_short(plain: Place, driver: Driver) -> None:
    """Without an answer there is no error of the server's to be raised now."""
    with instrumented(total=0.4, first_token=0.2) as captured:
        began = time.monotonic()
        told = driver.tell(plain.base_url, ANSWERS_NOTHING, options={"max_retries": 2})
    assert isinstance(told.error, stallwatch.TotalTimeoutError)
    assert told.error.decision == "deadline"
    assert 0.35 < time.monotonic() - began < 0.9
    assert captured.attributes()["stallwatch.retry.decision"] == "deadline"


@drivers
def test_a_back_off_beyond_the_total_is_not_begun(plain: Place, driver: Driver) -> None:
    with instrumented(total=0.2) as captured:
        told = driver.tell(plain.base_url, "error-status:code=503", options={"max_retries": 2})
    assert type(told.error) is openai.InternalServerError
    assert told.seconds < 0.3
    assert captured.attributes()["stallwatch.retry.decision"] == "deadline"


@drivers
def test_a_wait_the_server_asks_for_beyond_the_total_is_not_begun(plain: Place, driver: Driver) -> None:
    with instrumented(total=0.5) as captured:
        told = driver.tell(plain.base_url, "error-status:code=503,retry_after=5", options={"max_retries": 2})
    assert type(told.error) is openai.InternalServerError
    assert told.seconds < 0.4
    assert captured.attributes()["stallwatch.retry.decision"] == "deadline"


@drivers
@pytest.mark.parametrize(("own", "policy", "expected"), [(2, 0, 1), (2, 1, 2), (0, 2, 1)])
@pytest.mark.usefixtures("quick_retries")
def test_the_policy_caps_retries_and_never_raises_them(
    plain: Place, driver: Driver, own: int, policy: int, expected: int
) -> None:
    with instrumented(max_retries=policy) as captured:
        told = driver.tell(plain.base_url, "error-status:code=503", options={"max_retries": own})
    assert type(told.error) is openai.InternalServerError
    assert len(plain.gateway.ledger().requests) == expected
    assert captured.attributes()["stallwatch.attempts"] == expected
