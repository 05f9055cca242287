"""Content, keys, passwords and query strings come out nowhere, not even those that other instrumentations record.

The sentinels are in the prompt, the answers, the key, the address and the bodies of errors. ``test_the_net_holds``
shows that the search would find them.
"""

from __future__ import annotations

import re

import pytest

from e2e.ran import Collected, Ran
from e2e.traffic import SENTINELS

FOUND = re.compile("|".join(re.escape(sentinel) for sentinel in SENTINELS))


def test_the_net_holds(collected: Collected) -> None:
    """The gateway was sent what must not be told; it masks it in its own ledger, but not its length."""
    asked = [request for request in collected.ledger.requests if request.model == "secretive"]
    assert [request.query_names for request in asked] == [("api-key",)] * 2
    assert all(request.body_bytes > len("SENTINEL-PROMPT") for request in asked)
    assert FOUND.search('{"stringValue":"SENTINEL-PROMPT"}')


def test_no_trace_holds_a_secret(collected: Collected) -> None:
    assert not FOUND.findall(collected.stack.store.text())


def test_no_metric_holds_a_secret(ran: Ran) -> None:
    assert ran.exposition
    for text in (ran.exposition, ran.prometheus.everything()):
        assert not FOUND.findall(text)


def test_the_program_tells_no_secret(ran: Ran) -> None:
    assert not FOUND.findall(ran.program)


@pytest.mark.parametrize("name", ["collector", "store", "prometheus", "alertmanager"])
def test_no_log_holds_a_secret(collected: Collected, name: str) -> None:
    assert not FOUND.findall(collected.stack.processes.logs()[name])


def test_what_a_neighbour_records_is_stripped_and_the_rest_is_left(collected: Collected) -> None:
    (trace, *_) = collected.traces("neighbour")
    (span,) = [span for span in collected.stack.store.traces()[trace] if span.name == "neighbour"]
    assert dict(span.attributes) == {
        "e2e.neighbour": True,
        "gen_ai.prompt.name": "greeting",
        "gen_ai.usage.input_tokens": 7,
        "url.full": "http://models.example.com/v1/chat",
        "note": "asked with ****",
    }
    assert [(name, dict(event)) for name, event in span.events] == [("gen_ai.content.prompt", {})]
    assert span.message == "401 at http://x/ sk-****"


def test_an_address_is_told_without_user_password_and_query(collected: Collected) -> None:
    for trace in collected.traces("secretive"):
        (span,) = [span for span in collected.stack.store.traces()[trace] if span.parent]
        assert span.attributes["server.address"] == "127.0.0.1"
        assert span.attributes["server.port"] == collected.stack.gateway.port
