"""``--probe``: real calls show that it works, show it when it does not, and leave nothing behind."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import openai
import openai._base_client as base
import openai._streaming as streaming
import pytest

from stallwatch.cli.doctor import probe as probing
from stallwatch.cli.doctor.attachment import By, instrumented_to_look
from stallwatch.cli.doctor.collector import collector
from stallwatch.cli.doctor.endpoint import _Clock, endpoint
from stallwatch.cli.doctor.limits import Asked
from stallwatch.cli.doctor.probe import STORIES, probe
from stallwatch.cli.doctor.report import Finding, Level
from stallwatch.cli.doctor.telemetry import telemetry
from stallwatch.cli.main import main
from stallwatch.governing import patched
from stallwatch.testing import FaultGateway
from support.findings import by_key
from support.telemetry import instrumented

KEY = "sentinel-of-the-key"


@pytest.fixture
def gateway() -> Iterator[FaultGateway]:
    with FaultGateway(default="healthy:tokens=3,gap=0") as running:
        yield running


def _probe() -> dict[str, Finding]:
    with instrumented_to_look():
        return by_key(probe())


def test_each_call_ends_as_it_must_and_the_server_sees_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither a proxy that leads nowhere nor a mode that does nothing bends it.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("STALLWATCH_MODE", "off")
    found = _probe()
    assert {key: finding.detail for key, finding in found.items() if finding.level is Level.PROBLEM} == {}
    assert found.keys() == {f"probe.{story.key}.{kind}" for story in STORIES for kind in ("sync", "async")}
    for key, finding in found.items():
        stalls = "healthy" not in key
        assert finding.data["outcome"] == ("stalled" if stalls else "completed")
        assert finding.data["interrupt"] == "proven"
        assert finding.data["error"] == ("StreamInactivityTimeoutError" if stalls else None)
        assert finding.data["server_saw_close_after"] >= (probing.LIMIT if stalls else 0)
    assert patched() == []


BROKEN: dict[str, tuple[type, str, set[str]]] = {
    "sync chunks": (streaming.Stream, "__init__", {"healthy.sync"}),
    "sync calls": (base.SyncAPIClient, "request", {"healthy.sync", "silent.sync", "stall.sync"}),
    "async calls": (base.AsyncAPIClient, "request", {"healthy.async", "silent.async", "stall.async"}),
    "async chunks": (streaming.AsyncStream, "__init__", {"healthy.async"}),
}


@pytest.mark.parametrize(("owner", "name", "wrong"), BROKEN.values(), ids=BROKEN.keys())
def test_a_seam_that_is_lost_is_found_out(
    owner: type, name: str, wrong: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = owner.__dict__[name]
    # Copied, because what is attached may be inside of the function.
    original = FunctionType(
        theirs.__code__, theirs.__globals__, name, theirs.__defaults__, theirs.__closure__
    )
    original.__kwdefaults__ = theirs.__kwdefaults__
    monkeypatch.setattr(probing, "_PATIENCE", 2.0)
    # Without the watch keepalives are read to their end, and then until the client's own timeout.
    monkeypatch.setattr(probing, "STORIES", [story for story in STORIES if story.key != "keepalive"])
    with instrumented_to_look():
        monkeypatch.setattr(owner, name, original)
        found = by_key(probe())
    problems = {key for key, finding in found.items() if finding.level is Level.PROBLEM}
    assert {f"probe.{story}" for story in wrong} <= problems
    sides = {story.rpartition(".")[2] for story in wrong}
    assert {key.rpartition(".")[2] for key in problems} == sides


def test_without_patches_no_call_is_made_and_that_is_a_problem() -> None:
    (finding,) = probe().findings
    assert (finding.level, finding.value) == (Level.PROBLEM, "not made")


def test_nothing_of_the_probe_reaches_the_telemetry_of_the_process(gateway: FaultGateway) -> None:
    with instrumented() as captured:
        probe()
        assert captured.spans == []
        assert not captured.metrics().get("stallwatch.streams")
        # And afterwards the process records as before.
        with openai.OpenAI(base_url=gateway.base_url, api_key=KEY) as client:
            list(client.chat.completions.create(model="m", messages=[], stream=True))
        assert len(captured.spans) == 1


# The collector


def _listening(endpoint: str) -> dict[str, Finding]:
    environ = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_METRICS_EXPORTER": "otlp",
    }
    found = collector(telemetry(environ, By.NOBODY))
    assert found is not None
    return by_key(found)


def test_a_collector_that_listens_is_told_and_sent_nothing(gateway: FaultGateway) -> None:
    found = _listening(f"{gateway.origin}/sentinel?sentinel")
    assert found.keys() == {"listens.traces", "listens.metrics"}
    assert {finding.level for finding in found.values()} == {Level.OK}
    gateway.wait_for(lambda ledger: ledger.connections and not ledger.open_connections)
    # One for both signals.
    assert [connection.requests for connection in gateway.ledger().connections] == [()]
    assert "sentinel" not in str(found)


def test_an_endpoint_on_which_nobody_listens_is_a_warning(gateway: FaultGateway) -> None:
    gateway.stop()
    found = _listening(gateway.origin)
    assert {finding.level for finding in found.values()} == {Level.WARNING}
    assert found["listens.traces"].data["failure"] == "connection refused"
    assert found["listens.metrics"].detail.startswith(f"metrics sent to {gateway.origin} would be lost")


def test_without_an_endpoint_nothing_is_connected_to() -> None:
    environ = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}
    assert collector(telemetry(environ, By.NOBODY)) is None


# The user's own endpoint


def _endpoint(gateway: FaultGateway, model: str, environ: dict[str, str] | None = None) -> dict[str, Finding]:
    asked = Asked(model=model, base_url=gateway.base_url)
    with instrumented_to_look():
        return by_key(endpoint({"OPENAI_API_KEY": KEY} if environ is None else environ, asked))


def test_the_phases_of_a_call_to_an_endpoint_are_timed(gateway: FaultGateway) -> None:
    gateway.script("theirs", "slow:tokens=3,gap=0.1")
    found = _endpoint(gateway, "theirs")
    assert found.keys() == {"connect", "first-byte", "first-chunk", "first-token", "longest-gap", "call"}
    assert {finding.level for finding in found.values()} == {Level.OK}
    seconds = {key: finding.data["seconds"] for key, finding in found.items()}
    assert 0 < seconds["connect"] < seconds["first-byte"] < seconds["first-chunk"]
    assert seconds["first-chunk"] <= seconds["first-token"] <= seconds["call"]
    assert 0.09 < seconds["longest-gap"] < seconds["call"]
    assert found["call"].data["interrupt"] == "proven"
    (request,) = gateway.ledger().requests
    assert (request.model, request.stream, request.retry_count) == ("theirs", True, 0)


def test_making_the_client_is_no_part_of_the_phases(
    gateway: FaultGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = openai.DefaultHttpxClient

    def slowly(**options: Any) -> Any:
        time.sleep(0.4)
        return made(**options)

    monkeypatch.setattr(openai, "DefaultHttpxClient", slowly)
    gateway.script("theirs", "late-headers:seconds=0.2,tokens=3,gap=0")
    seconds = {key: finding.data.get("seconds") for key, finding in _endpoint(gateway, "theirs").items()}
    assert seconds["first-byte"] < seconds["first-chunk"] <= seconds["first-token"]
    assert seconds["connect"] < 0.4


REFUSED = {
    "a key that is refused": ("error-status:code=401", 401, "OPENAI_API_KEY"),
    "an unknown model": ("error-status:code=404", 404, "--model"),
    "a server in trouble": ("error-status:code=503", 503, "whoever runs it"),
}


@pytest.mark.parametrize(("scenario", "status", "advice"), REFUSED.values(), ids=REFUSED.keys())
def test_an_endpoint_that_refuses_is_a_problem_with_advice(
    gateway: FaultGateway, scenario: str, status: int, advice: str
) -> None:
    gateway.script("theirs", scenario)
    found = _endpoint(gateway, "theirs")["call"]
    assert (found.level, found.data["status"]) == (Level.PROBLEM, status)
    assert advice in found.advice
    assert len(gateway.ledger().requests) == 1


def test_an_endpoint_that_stalls_ends_by_the_deadlines_in_force(
    gateway: FaultGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLWATCH_IDLE_TIMEOUT", "0.3")
    gateway.script("theirs", "stall-after:tokens=2,gap=0")
    found = _endpoint(gateway, "theirs")
    assert found["call"].level is Level.PROBLEM
    assert "phase idle" in found["call"].detail
    assert found["call"].data["outcome"] == "stalled"
    assert found["first-token"].level is Level.OK


def test_the_answer_of_a_proxy_is_not_the_endpoints() -> None:
    clock, told = _Clock(), list[str]()
    request = SimpleNamespace(extensions={"trace": lambda name, info: told.append(name)})
    clock.follow(request)
    events = [
        "connection.connect_tcp.complete",
        "http11.receive_response_headers.complete",
        "proxy.start_tls.complete",
        "http11.receive_response_headers.complete",
    ]
    for name in events:
        request.extensions["trace"](name, {})
    assert told == events
    assert clock.at["headers"] >= clock.at["connect"]
    clock = _Clock()
    clock.follow(request)
    for name in events[:3]:
        request.extensions["trace"](name, {})
    assert clock.at.keys() == {"connect"}


def test_an_endpoint_nobody_listens_on_is_a_problem(gateway: FaultGateway) -> None:
    gateway.stop()
    found = _endpoint(gateway, "theirs")
    assert found["call"].data["error"] == "APIConnectionError"
    assert found["connect"].level is Level.NOTE


def test_without_a_key_no_call_is_made(gateway: FaultGateway) -> None:
    found = _endpoint(gateway, "theirs", {})
    assert found.keys() == {"key"}
    assert found["key"].level is Level.PROBLEM
    assert gateway.ledger().requests == ()


@pytest.mark.parametrize("form", [["--json"], []], ids=["json", "text"])
def test_the_key_and_the_address_are_used_and_never_shown(
    form: list[str],
    gateway: FaultGateway,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(probing, "STORIES", ())
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    url = gateway.base_url.replace("://", "://user:sentinel-pass@")
    assert main(["doctor", "--probe", "--base-url", url, "--model", "theirs", *form]) in (0, 1)
    told = capsys.readouterr()
    assert "sentinel" not in told.out + told.err + caplog.text
    assert gateway.origin in told.out
    assert len(gateway.ledger().for_model("theirs")) == 1
    if form:
        call = json.loads(told.out)["sections"]["endpoint"]["findings"][-1]
        assert (call["key"], call["level"]) == ("call", "ok")
