"""No prompt, answer, key, credential or query value is ever recorded, and none is in an error's text of ours."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from stallwatch.testing import FaultGateway, Reasoning, Role, Silence, Token
from support.bounds import LIMITS
from support.drivers import Driver
from support.expect import ended, stalled
from support.stage import Stage, play
from support.telemetry import Captured

PROMPT = "sentinel-prompt-7f3a"
KEY = "sk-sentinel-key-91bc"
USER = "sentinel-user-52"
PASSWORD = "sentinel-password-18"
QUERY = "sentinel-query-44"
ANSWER = "sentinel-answer-d0"
HEADER = "sentinel-header-3e"
SENTINELS = (PROMPT, KEY, USER, PASSWORD, QUERY, ANSWER, HEADER, "api-key=")


def _everything(captured: Captured) -> str:
    spans = [
        (
            span.name,
            dict(span.attributes or {}),
            span.status.description,
            [(event.name, dict(event.attributes or {})) for event in span.events],
            [dict(link.attributes or {}) for link in span.links],
            span.to_json(),
        )
        for span in captured.spans
    ]
    points = [
        (name, dict(point.attributes), [dict(each.filtered_attributes) for each in point.exemplars])
        for name, found in captured.metrics().items()
        for point in found
    ]
    return repr((spans, points))


async def _call(stage: Stage, url: str, model: str, api: str, errors: list[Any]) -> None:
    options: dict[str, Any] = {
        "api_key": KEY,
        "default_query": {"api-key": QUERY},
        "default_headers": {"x-secret": HEADER},
    }
    async with stage.inside(stage.client(url, **options)) as client:
        try:
            if api == "chat":
                messages = [{"role": "user", "content": PROMPT}]
                stream = await stage.chat(client, model, messages=messages, user=PROMPT, stop=[PROMPT])
            else:
                made = client.responses.create(model=model, input=PROMPT, instructions=PROMPT, stream=True)
                stream = await stage.of(made)
            await stage.all(stream)
        except Exception as error:
            errors.append(error)


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    ("model", "outcome"),
    [
        ("error-status:code=401,echo=key", "failed"),
        ("error-status:code=400,echo=prompt", "failed"),
        ("error-frame:code=502", "failed"),
        ("speaks then stalls", "stalled"),
        ("never-responds", "stalled"),
        ("cut:tokens=1", "failed"),
        ("healthy:gap=0", "completed"),
    ],
)
def test_nothing_of_the_content_is_recorded(
    gateway: FaultGateway,
    driver: Driver,
    captured: Captured,
    caplog: pytest.LogCaptureFixture,
    model: str,
    outcome: str,
    api: str,
) -> None:
    gateway.script("speaks then stalls", [Role(), Reasoning(ANSWER), Token(ANSWER), Silence()])
    url = f"http://{USER}:{PASSWORD}@127.0.0.1:{gateway.port}/v1"
    _assert_clean(gateway, driver, captured, caplog, url, model, outcome, api)


def test_a_query_in_the_base_url_is_not_recorded(
    gateway: FaultGateway, driver: Driver, captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    # The SDK itself makes a bad address of such a base URL.
    url = f"http://{USER}:{PASSWORD}@127.0.0.1:{gateway.port}/v1?api-key={QUERY}"
    _assert_clean(gateway, driver, captured, caplog, url, "healthy:gap=0", "failed", "chat")


def _assert_clean(
    gateway: FaultGateway,
    driver: Driver,
    captured: Captured,
    caplog: pytest.LogCaptureFixture,
    url: str,
    model: str,
    outcome: str,
    api: str,
) -> None:
    caplog.set_level(logging.DEBUG, "stallwatch")
    errors: list[Any] = []
    play(driver, lambda stage: _call(stage, url, model, api, errors))
    assert captured.attributes()["stallwatch.outcome"] == outcome
    told = _everything(captured)
    logged = "\n".join(
        record.getMessage() + str(record.exc_text) for record in caplog.records if record.name == "stallwatch"
    )
    for sentinel in SENTINELS:
        assert sentinel not in told
        assert sentinel not in logged
        if outcome == "stalled":
            assert sentinel not in str(errors[0]) + repr(errors[0])
    attributes = captured.attributes()
    assert attributes["server.address"] == "127.0.0.1"
    assert attributes["server.port"] == gateway.port


@pytest.mark.parametrize(
    ("model", "kind", "status"),
    [
        ("error-status:code=401,echo=key", "AuthenticationError", 401),
        ("error-status:code=400,echo=prompt", "BadRequestError", 400),
        ("error-status:code=429", "RateLimitError", 429),
        ("error-status:code=503", "InternalServerError", 503),
    ],
)
def test_a_status_error_is_told_by_class_and_status(
    gateway: FaultGateway, driver: Driver, captured: Captured, model: str, kind: str, status: int
) -> None:
    told = driver.tell(gateway.base_url, model)
    assert type(told.error).__name__ == kind
    attributes = ended(captured, "failed", error_type=kind)
    assert attributes["http.response.status_code"] == status
    assert captured.span.status.description == f"{kind} (HTTP {status})"


def test_a_stalls_error_holds_no_content(gateway: FaultGateway, driver: Driver, captured: Captured) -> None:
    gateway.script("m", [Role(), Token(ANSWER), Silence()])
    told = driver.tell(gateway.base_url, "m", options={"api_key": KEY})
    stalled(captured, told.error, phase="idle", limit=LIMITS["idle"], chunks=2)
    assert told.error is not None
    # The request is there for the SDK's own handlers; what is printed and pickled is not.
    assert KEY not in repr(told.error) + str(told.error) + repr(told.error.__reduce__())
