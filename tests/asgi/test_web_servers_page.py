"""The apps of the page about web servers, served for real to clients that leave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from asgi.served import Browser, served
from stallwatch import OpenAIInstrumentor
from support.markdown import ROOT, blocks
from support.places import Place, eventually
from support.telemetry import Captured

CLOSE_SEEN = 1.0

ASGI, _, WSGI = blocks(ROOT / "docs" / "web-servers.md")


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Captured]:
    """Where the telemetry of an app goes that instruments by itself."""
    made = Captured()
    instrument = OpenAIInstrumentor.instrument

    def captured_instrument(self: OpenAIInstrumentor, **settings: Any) -> None:
        providers = {"tracer_provider": made.tracer_provider, "meter_provider": made.meter_provider}
        instrument(self, **{"skip_dep_check": True, **providers, **settings})

    monkeypatch.setattr(OpenAIInstrumentor, "instrument", captured_instrument)
    yield made
    OpenAIInstrumentor().uninstrument()


@pytest.fixture
def page(plain: Place, captured: Captured, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a block of the page against a gateway whose model never stops."""
    monkeypatch.setenv("OPENAI_BASE_URL", plain.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    plain.gateway.script("gpt-4o", "endless:gap=0.05")

    def run(block: Any) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(block.code, str(block), "exec", dont_inherit=True), names)
        return names

    return run


def gone(place: Place, request: int = 0) -> None:
    place.gateway.wait_for(lambda ledger: ledger.requests[request].closed_how in ("fin", "rst"), CLOSE_SEEN)


def test_the_asgi_app_stops_the_model_when_the_browser_leaves(
    plain: Place, captured: Captured, page: Any
) -> None:
    with served(page(ASGI)["app"]) as port:
        with Browser(port, "/answer", "X-Request-Deadline: 1m") as browser:
            browser.reads(count=3)
        gone(plain)
    eventually(lambda: captured.spans)
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"


class Silent(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, *args: Any) -> None:
        pass


def test_the_wsgi_app_stops_the_model_when_the_browser_leaves(
    plain: Place, captured: Captured, page: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    names = page(WSGI)
    with names["client"], make_server("127.0.0.1", 0, names["app"], handler_class=Silent) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with Browser(server.server_port, "/") as browser:
            browser.reads(count=3)
        gone(plain)
        thread.join(10)
        assert not thread.is_alive()
    eventually(lambda: captured.spans)
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"
    assert capfd.readouterr().err == ""


def test_the_wsgi_app_stops_the_model_when_its_iterable_is_closed(
    plain: Place, captured: Captured, page: Any
) -> None:
    """As PEP 3333 has it; the next request gets the connection."""
    names = page(WSGI)
    with names["client"] as client:
        names["client"] = client.with_options(http_client=plain.client(connections=1)._client)
        with names["client"]:
            for request in range(2):
                answer = names["app"]({}, lambda *_: None)
                assert [next(answer) for _ in range(3)]
                answer.close()
                gone(plain, request)
    eventually(lambda: len(captured.spans) == 2)
    assert {span.attributes["stallwatch.outcome"] for span in captured.spans} == {"cancelled"}
