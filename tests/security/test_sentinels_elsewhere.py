"""Nor does a secret come out where more than one answer, a broken address, a proxy or the user ends a call (A30)."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

import stallwatch
from security.net import ANSWER, KEY, PASSWORD, PROMPT, QUERY, USER, Net
from stallwatch.foreign_errors import told_of
from stallwatch.testing import FaultGateway, Headers, Role, Silence, Status, Token, refusing_address
from support.drivers import Driver
from support.leaks import wait_until
from support.stage import Stage, play

MESSAGES: Any = [{"role": "user", "content": PROMPT}]
QUOTES = {"error": {"message": f"{KEY} {PROMPT}", "type": KEY, "code": KEY, "param": PROMPT}}
SECRETIVE: dict[str, Any] = {"api_key": KEY, "default_query": {"api-key": QUERY}}
TIGHT: dict[str, Any] = {"first_token": 0.12, "thinking": 0.12, "idle": 0.12}


def address(gateway: FaultGateway) -> str:
    return gateway.base_url.replace("://", f"://{USER}:{PASSWORD}@")


async def tell(stage: Stage, client: Any, model: str, net: Net) -> None:
    """Stream one answer, and keep the error."""
    try:
        async with stage.inside(await stage.chat(client, model, messages=MESSAGES)) as stream:
            await stage.all(stream)
    except Exception as error:
        net.errors.append(error)


@contextmanager
def nobody_listens() -> Iterator[str]:
    with refusing_address() as found:
        yield f"http://{USER}:{PASSWORD}@{found.host}:{found.port}/v1?api-key={QUERY}"


ADDRESSES = {
    "a name that is not known": f"http://{USER}:{PASSWORD}@no-such-host.invalid/v1?api-key={QUERY}",
    "no port": f"http://{USER}:{PASSWORD}@127.0.0.1:{KEY}/v1",
    "no host": f"http://{USER}:{PASSWORD}@/v1?api-key={QUERY}",
    "another scheme": f"ftp://{USER}:{PASSWORD}@127.0.0.1/v1?api-key={QUERY}",
    "no address at all": f"[{USER}:{PASSWORD}",
}


@pytest.mark.parametrize("url", list(ADDRESSES.values()), ids=list(ADDRESSES))
def test_an_address_that_leads_nowhere_tells_no_secret(url: str, driver: Driver, net: Net) -> None:
    async def story(stage: Stage) -> None:
        try:
            client = stage.client(url, **SECRETIVE)
        except Exception as error:
            net.errors.append(error)
            return
        async with stage.inside(client):
            await tell(stage, client, "m", net)

    with stallwatch.policy(connect=1, total=2):
        play(driver, story)
    assert net.errors
    net.assert_clean()


def test_a_refused_connection_tells_no_secret(driver: Driver, net: Net) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(url, **SECRETIVE, max_retries=1)) as client:
            await tell(stage, client, "m", net)

    with nobody_listens() as url:
        play(driver, story)
    assert net.outcomes() == ["failed"]
    net.assert_clean()


def test_a_proxy_with_credentials_tells_no_secret(driver: Driver, gateway: FaultGateway, net: Net) -> None:
    async def story(stage: Stage) -> None:
        kind: Any = openai.DefaultAsyncHttpxClient if stage.is_async else openai.DefaultHttpxClient
        http = kind(proxy=proxy, trust_env=False)
        async with stage.inside(stage.client(gateway.base_url, http_client=http, **SECRETIVE)) as client:
            await tell(stage, client, "m", net)

    with refusing_address() as found:
        proxy = f"http://{USER}:{PASSWORD}@{found.host}:{found.port}"
        play(driver, story)
    assert net.outcomes() == ["failed"]
    net.assert_clean()


def test_retries_tell_no_secret(driver: Driver, gateway: FaultGateway, net: Net) -> None:
    """Those of the SDK and those that we make, each with its event and its line in the log."""
    gateway.script(
        "m",
        [Status(503, {"x-request-id": KEY}, body=QUOTES, retry_after_ms="1")],
        [Headers(), Silence()],
        "healthy:tokens=1,gap=0",
    )

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(address(gateway), **SECRETIVE, max_retries=2)) as client:
            await tell(stage, client, "m", net)

    with stallwatch.policy(**TIGHT, max_retries=2):
        play(driver, story)
    assert [dict(span.attributes)["stallwatch.attempts"] for span in net.spans] == [3]
    assert any("trying again" in record.getMessage() for record in net.records())
    net.assert_clean()


@pytest.mark.parametrize("hedge", [None, 0.02])
def test_several_routes_tell_no_secret(
    hedge: float | None, driver: Driver, gateway: FaultGateway, net: Net
) -> None:
    """Fallback and hedging, with the errors of earlier routes chained to the last one's."""
    gateway.script("silent", [Role(), Silence()])
    gateway.script("broken", [Status(503, {"x-request-id": KEY}, body=QUOTES)])

    async def story(stage: Stage) -> None:
        clients = [stage.client(address(gateway), **SECRETIVE) for _ in range(2)]
        routes = [
            stallwatch.Route(client=client, model=model)
            for client, model in zip(
                clients, ("broken" if hedge is None else "silent", "silent"), strict=True
            )
        ]
        kind: Any = stallwatch.AsyncRouter if stage.is_async else stallwatch.Router
        router = kind(
            routes, hedge=None if hedge is None else stallwatch.HedgePolicy(delay=hedge, max_share=1)
        )
        async with stage.inside(clients[0]), stage.inside(clients[1]):
            try:
                made = router.chat.completions.create(messages=MESSAGES, stream=True)
                await stage.all(await stage.of(made))
            except Exception as error:
                net.errors.append(error)

    with stallwatch.policy(**TIGHT):
        play(driver, story)
    (error,) = net.errors
    assert isinstance(error, stallwatch.StreamTimeoutError)
    below = error.__cause__
    while below is not None:
        if isinstance(below, stallwatch.StallwatchError):
            net.errors.append(below)
        below = below.__cause__
    assert len(net.errors) >= (2 if hedge is None else 1)
    net.assert_clean()


def test_a_cancel_tells_its_reason_and_no_secret(driver: Driver, gateway: FaultGateway, net: Net) -> None:
    gateway.script("m", [Role(), Token(ANSWER), Silence()])

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(address(gateway), **SECRETIVE)) as client:
            with stallwatch.Run(name="a run") as run:
                timer = threading.Timer(0.1, run.cancel, ["the user went away"])
                timer.start()
                await tell(stage, client, "m", net)
                timer.join()

    play(driver, story)
    (error,) = net.errors
    assert isinstance(error, stallwatch.RunCancelledError)
    (span,) = net.spans
    assert dict(span.attributes)["stallwatch.cancel.reason"] == "the user went away"
    net.assert_clean()


class _Quoting(SpanProcessor):
    """A span processor that fails and says what it knows."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        secret = f"{KEY} {PROMPT}"
        raise ValueError(secret)


def test_what_others_raise_is_logged_by_class_and_place_only(
    driver: Driver, gateway: FaultGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """No traceback goes along: collectors of errors read the local variables of its frames."""
    caplog.set_level(logging.DEBUG, "stallwatch")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(_Quoting())
    instrumentor = stallwatch.OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=provider, skip_dep_check=True)
    try:
        assert driver.tell(gateway.base_url, "healthy:tokens=1,gap=0").error is None
    finally:
        instrumentor.uninstrument()
    (record,) = [record for record in caplog.records if record.name == "stallwatch"]
    assert "ValueError at security/test_sentinels_elsewhere.py" in record.getMessage().replace("tests/", "")
    assert record.exc_info is None
    assert KEY not in repr(record.__dict__)


def test_where_an_error_was_raised_is_told_without_what_it_says() -> None:
    class Unreadable(Exception):
        @property
        def __cause__(self) -> Any:
            raise RuntimeError(KEY)

    try:
        try:
            raise KeyError(KEY)
        except KeyError as below:
            raise ValueError(PROMPT) from below
    except ValueError as error:
        told = told_of(error)
    assert told.startswith("ValueError from KeyError at ")
    assert told.endswith("test_where_an_error_was_raised_is_told_without_what_it_says")
    assert KEY not in told
    assert PROMPT not in told
    assert told_of(OSError(KEY)) == "OSError"
    assert KEY not in told_of(Unreadable(KEY))


def test_an_error_gives_no_request_away_when_it_travels(
    driver: Driver, gateway: FaultGateway, net: Net
) -> None:
    """Workers of task queues pickle what was raised, and store it."""
    gateway.script("m", [Role(), Token(ANSWER), Silence()])

    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(address(gateway), **SECRETIVE)) as client:
            await tell(stage, client, "m", net)

    with stallwatch.policy(**TIGHT):
        play(driver, story)
    (error,) = net.errors
    assert isinstance(error, stallwatch.StreamTimeoutError)
    stored = pickle.dumps(error)
    for secret in (KEY, PROMPT, ANSWER, USER, PASSWORD, QUERY):
        assert secret.encode() not in stored
    wait_until(lambda: gateway.open_connections == 0, lambda: gateway.open_connections)
