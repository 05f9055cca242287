"""Every request of a call is an attempt that is told of, whoever made it: the SDK's own loop, or we."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from stallwatch.testing import (
    Done,
    FaultGateway,
    Finish,
    Headers,
    RefuseHeaders,
    Reset,
    Role,
    Silence,
    Status,
    Token,
)
from support.bounds import LIMITS
from support.drivers import MESSAGES, Driver
from support.expect import Histogram, in_time
from support.stage import Stage, play
from support.telemetry import Captured

GOOD = [Role(), Token("Hel"), Token("lo"), Finish(), Done()]
SILENT = [Headers(), Silence()]


@pytest.fixture(autouse=True)
def quick_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 0.05)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.05)


def attempts(captured: Captured) -> list[dict[str, Any]]:
    """The attempt events of the one span, without the part of their names that is common."""
    return [
        {name.removeprefix("stallwatch."): value for name, value in (event.attributes or {}).items()}
        for event in captured.span.events
        if event.name == "stallwatch.attempt"
    ]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (429, "rate_limit", "rate_limit"),
        (503, "capacity", "overloaded"),
        (500, "server", "server_error"),
        (408, "client", "request_timeout"),
        (409, "client", "conflict"),
    ],
)
def test_a_retry_of_the_sdks_own_is_told_with_its_verdict(
    gateway: FaultGateway,
    driver: Driver,
    captured: Captured,
    status: int,
    kind: str,
    reason: str,
    stream: bool,
) -> None:
    gateway.script("m", [Status(status)], GOOD)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            answer = await stage.chat(client, "m", stream=stream)
            if stream:
                assert len(await stage.all(answer)) == 4

    play(driver, story)
    one, two = attempts(captured)
    records = gateway.ledger().requests
    assert (one["attempt.number"], two["attempt.number"]) == (1, 2)
    assert (one["attempt.role"], two["attempt.role"]) == ("first", "retry")
    assert (one["outcome"], two["outcome"]) == ("failed", "completed")
    assert (one["retry.kind"], one["retry.diagnosis"], one["retry.reason"]) == (kind, "retryable", reason)
    assert one["retry.decision"] == "retry"
    assert 0.03 <= one["retry.delay"] <= 0.06
    assert "retry.server_wait" not in one
    assert one["retry.paced"] is False
    assert one["http.response.status_code"] == status
    assert two["http.response.status_code"] == 200
    assert [one["request.id"], two["request.id"]] == [record.request_id for record in records]
    assert {one["server.address"], two["server.address"]} == {"127.0.0.1"}
    assert {one["server.port"], two["server.port"]} == {gateway.port}
    assert {one["gen_ai.request.model"], two["gen_ai.request.model"]} == {"m"}
    assert one["attempt.duration"] < LIMITS["first_token"]
    assert [record.retry_count for record in records] == [0, 1]
    labels = {"stallwatch__retry__kind": kind, "stallwatch__retry__decision": "retry"}
    assert captured.total("stallwatch.retries", **labels) == captured.total("stallwatch.retries") == 1
    failed = Histogram(captured, "stallwatch.attempt.duration", stallwatch__outcome="failed")
    assert (failed.count, failed.sum) == (1, pytest.approx(one["attempt.duration"]))
    done = Histogram(captured, "stallwatch.attempt.duration", stallwatch__outcome="completed")
    assert (done.count, done.sum) == (1, pytest.approx(two["attempt.duration"]))
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "completed"
    assert attributes["stallwatch.attempts"] == 2
    assert "error.type" not in attributes
    assert attributes["http.response.status_code"] == 200
    assert attributes["stallwatch.request.id"] == records[1].request_id


def test_the_servers_wait_is_told_beside_the_one_applied(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", [Status(429, retry_after_ms="120")], GOOD)
    told = driver.tell(gateway.base_url, "m", options={"max_retries": 1})
    assert told.error is None
    one, _ = attempts(captured)
    assert one["retry.server_wait"] == pytest.approx(0.12)
    assert one["retry.delay"] >= 0.12
    first, second = gateway.ledger().requests
    in_time(second.received_at - first.received_at, 0.12)


@pytest.mark.parametrize("stream", [True, False])
def test_when_all_attempts_fail_the_last_error_is_the_sdks_and_told_as_exhausted(
    gateway: FaultGateway, driver: Driver, captured: Captured, stream: bool
) -> None:
    gateway.script("m", [Status(503)])
    errors: list[Any] = []

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            with pytest.raises(Exception) as caught:
                await stage.chat(client, "m", stream=stream)
            errors.append(caught.value)

    play(driver, story)
    assert type(errors[0]).__name__ == "InternalServerError"
    assert errors[0].status_code == 503
    told = attempts(captured)
    assert [each["attempt.number"] for each in told] == [1, 2, 3]
    assert [each["retry.decision"] for each in told] == ["retry", "retry", "exhausted"]
    assert [each["http.response.status_code"] for each in told] == [503] * 3
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "failed"
    assert attributes["stallwatch.attempts"] == 3
    assert attributes["error.type"] == "InternalServerError"
    assert attributes["stallwatch.retry.decision"] == "exhausted"
    assert captured.total("stallwatch.retries", stallwatch__retry__decision="retry") == 2
    assert captured.total("stallwatch.retries", stallwatch__retry__decision="exhausted") == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_the_sdk_does_not_retry_is_one_attempt_that_failed_fast(
    gateway: FaultGateway, driver: Driver, captured: Captured, status: int
) -> None:
    gateway.script("m", [Status(status)])
    told = driver.tell(gateway.base_url, "m", options={"max_retries": 2})
    assert told.error is not None
    (only,) = attempts(captured)
    assert only["retry.decision"] == "fail_fast"
    assert only["http.response.status_code"] == status
    assert captured.attributes()["stallwatch.outcome"] == "failed"
    assert len(gateway.ledger().requests) == 1


@pytest.mark.parametrize(
    ("played", "counts"),
    [
        ([SILENT, GOOD], [0, 1]),
        ([SILENT, SILENT, GOOD], [0, 1, 2]),
        ([[Status(503)], SILENT, GOOD], [0, 1, 2]),
        ([SILENT, [Status(429)], GOOD], [0, 1, 2]),
        ([[RefuseHeaders()], SILENT, GOOD], [0, 1, 2]),
        ([[Headers(), Reset()], [RefuseHeaders()], GOOD], [0, 1, 2]),
        ([SILENT, [Status(503)], [Headers(), Reset()], GOOD], [0, 1, 2, 3]),
    ],
)
def test_the_server_and_the_span_see_one_numbering_whoever_retries(
    gateway: FaultGateway, driver: Driver, guarded: Any, played: list[Any], counts: list[int]
) -> None:
    gateway.script("m", *played)
    with guarded(max_retries=3) as captured:
        told = driver.tell(gateway.base_url, "m", options={"max_retries": 3})
    assert told.error is None, told.error
    assert told.text == "Hello"
    assert [record.retry_count for record in gateway.ledger().requests] == counts
    events = attempts(captured)
    assert [each["attempt.number"] for each in events] == [count + 1 for count in counts]
    assert [each["attempt.role"] for each in events] == ["first", *["retry"] * (len(counts) - 1)]
    assert [each.get("retry.decision") for each in events] == [*["retry"] * (len(counts) - 1), None]
    assert captured.attributes()["stallwatch.attempts"] == len(counts)
    assert captured.total("stallwatch.attempt.duration") == len(counts)
    assert captured.total("stallwatch.retries", stallwatch__retry__decision="retry") == len(counts) - 1
    # Together they are not longer than the call.
    whole = Histogram(captured, "gen_ai.client.operation.duration")
    assert sum(each["attempt.duration"] for each in events) <= whole.sum


def test_the_users_headers_and_key_are_those_of_every_attempt(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", SILENT, [Status(503)], GOOD)
    told = driver.tell(
        gateway.base_url,
        "m",
        options={"max_retries": 2},
        extra_headers={"Idempotency-Key": "mine-1", "X-Trace": "abc"},
        extra_query={"v": "1"},
        extra_body={"vendor": True},
    )
    assert told.error is None
    records = gateway.ledger().requests
    assert len(records) == 3
    assert {record.headers["idempotency-key"] for record in records} == {"mine-1"}
    assert {record.headers["x-trace"] for record in records} == {"abc"}
    assert {record.query_names for record in records} == {("v",)}
    assert len({record.body_bytes for record in records}) == 1
    assert len({record.headers["authorization"] for record in records}) == 1


async def _post(stage: Stage, client: Any, model: str, options: dict[str, Any]) -> Any:
    kind = openai.AsyncStream if stage.is_async else openai.Stream
    client._idempotency_header = "Idempotency-Key"
    return await stage.of(
        client.post(
            "/chat/completions",
            cast_to=ChatCompletionChunk,
            body={"model": model, "messages": MESSAGES, "stream": True},
            options=options,
            stream=True,
            stream_cls=kind[ChatCompletionChunk],
        )
    )


@pytest.mark.parametrize("options", [{}, {"idempotency_key": "mine-2"}], ids=["client", "option"])
def test_an_idempotency_key_of_the_sdk_is_the_same_on_each_attempt(
    gateway: FaultGateway, driver: Driver, guarded: Any, options: dict[str, Any]
) -> None:
    """The SDK sends one only where a client names the header; then ours must carry the same as its own."""
    gateway.script("m", SILENT, [Status(503)], GOOD)
    gateway.script("bare", [Status(503)], GOOD)

    async def story(stage: Stage, model: str = "m") -> None:
        async with stage.inside(stage.client(gateway.base_url, max_retries=2)) as client:
            assert len(await stage.all(await _post(stage, client, model, options))) == 4

    play(driver, lambda stage: story(stage, "bare"))
    kept = len({record.headers["idempotency-key"] for record in gateway.ledger().for_model("bare")}) == 1
    if not kept:
        pytest.skip("this release makes a new key for each attempt")
    with guarded():
        play(driver, story)
    keys = [record.headers.get("idempotency-key") for record in gateway.ledger().for_model("m")]
    assert len(keys) == 3
    assert len(set(keys)) == 1, keys
    assert keys[0] == options.get("idempotency_key", keys[0])


def test_azure_is_asked_again_at_the_same_deployment(
    gateway: FaultGateway, driver: Driver, captured: Captured
) -> None:
    gateway.script("m", SILENT, GOOD)

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.azure(gateway, max_retries=1)) as client:
            assert len(await stage.all(await stage.chat(client, "m"))) == 4

    play(driver, story)
    first, second = gateway.ledger().requests
    assert first.path == second.path
    assert first.query_names == second.query_names
    assert "m" in first.path


def test_no_attempt_event_carries_content(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    gateway.script("m", [Status(503, echo="prompt")], [Status(429, echo="key")], GOOD)
    told = driver.tell(gateway.base_url, "m", options={"max_retries": 2, "api_key": "sk-sentinel-1"})
    assert told.error is None
    text = json.dumps([attempts(captured), captured.attributes()], default=str)
    assert "sk-sentinel-1" not in text
    assert MESSAGES[0]["content"] not in text
