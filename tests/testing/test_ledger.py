"""The ledger tells what was received, what was sent when, and when and how each connection went away."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.request

import pytest

from stallwatch.testing import FaultGateway, Headers, Ledger, Raw, Role, SentKind, Silence, Token, Wait
from testing.rawhttp import PATHS, RawClient, body_for

SILENT_MODELS = [
    "silent",
    "never-responds",
    "stall-after:tokens=3,gap=0",
    "endless:gap=0.005",
    "keepalive:every=0.01",
]


def _noticed(gateway: FaultGateway, model: str, how: str) -> float:
    """Return how long after the client's close the ledger dates it."""
    with RawClient(gateway.port) as client:
        client.model(model)
        before = len(gateway.wait_for(lambda ledger: ledger.for_model(model)).for_model(model))
        closing = time.monotonic()
        if how == "rst":
            client.reset()
        else:
            # Closing with bytes unread, or while more arrive, would send RST.
            client.sock.shutdown(socket.SHUT_WR)
            gateway.wait_for(lambda ledger: ledger.for_model(model)[before - 1].peer_closed_at)
    request = gateway.wait_for(lambda ledger: ledger.for_model(model)[before - 1].peer_closed_at).for_model(
        model
    )[-1]
    assert request.closed_how == how
    assert request.peer_closed_at is not None
    return request.peer_closed_at - closing


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("model", SILENT_MODELS)
def test_a_close_is_noticed_at_once(gateway: FaultGateway, model: str, how: str) -> None:
    # The best of three: a busy machine may hold up any one of them.
    delays: list[float] = []
    for _ in range(3):
        delays.append(_noticed(gateway, model, how))
        if delays[-1] < 0.05:
            break
    assert min(delays) < 0.05


def test_a_close_before_any_request_is_in_the_ledger(gateway: FaultGateway) -> None:
    with RawClient(gateway.port):
        gateway.wait_for(lambda ledger: ledger.open_connections == 1)
        assert gateway.open_connections == 1
    ledger = gateway.wait_for(lambda ledger: ledger.open_connections == 0)
    assert gateway.open_connections == 0
    assert ledger.requests == ()
    assert [(c.closed_how, c.requests) for c in ledger.connections] == [("fin", ())]


@pytest.mark.parametrize("model", ["cut:tokens=1", "reset:tokens=1", "close-delimited:gap=0"])
def test_the_gateway_s_own_close_is_told_apart(gateway: FaultGateway, model: str) -> None:
    with RawClient(gateway.port) as client:
        client.model(model).reply()
    ledger = gateway.wait_for(lambda ledger: ledger.requests[0].peer_closed_at)
    assert ledger.requests[0].closed_how == ledger.connections[0].closed_how == "server"
    assert (ledger.requests[0].completed_at is not None) == model.startswith("close-delimited")


def test_sent_pieces_carry_time_kind_and_size(gateway: FaultGateway) -> None:
    gateway.script(
        "m", [Wait(0.03), Headers(), Wait(0.03), Role(), Wait(0.05), Token("a"), Token("b"), Raw(b"xyz")]
    )
    start = time.monotonic()
    with RawClient(gateway.port) as client:
        reply = client.model("m").reply()
    (request,) = gateway.wait_for(lambda ledger: ledger.requests[0].completed_at).requests
    kinds = [sent.kind for sent in request.sent]
    assert kinds == ["headers", "role", "token", "token", "raw", "end"]
    assert [sent.bytes for sent in request.sent[1:-1]] == [len(chunk) for chunk in reply.chunks]
    assert request.sent_bytes == sum(sent.bytes for sent in request.sent)
    times = [sent.at for sent in request.sent]
    assert times == sorted(times)
    assert request.received_at >= start
    assert request.headers_sent_at is not None
    assert 0.03 <= request.headers_sent_at - request.received_at < 0.5
    first, role = request.first("token"), request.last("role")
    assert first is not None
    assert role is not None
    assert 0.05 <= first - role < 0.5
    assert request.count(SentKind.TOKEN) == 2
    assert request.last_sent_at == times[-1]


def test_the_request_itself_is_described_without_its_content(gateway: FaultGateway) -> None:
    secret = "sk-very-secret"
    headers = {"authorization": f"Bearer {secret}", "cookie": secret, "x_api_key": secret}
    path = PATHS["chat"] + f"?api-key={secret}"
    body = body_for("chat", "healthy:gap=0", messages=[{"role": "user", "content": "private words"}])
    with RawClient(gateway.port) as client:
        client.ask(body, path, x_stainless_retry_count="2", **headers).reply()
    ledger = gateway.ledger()
    (request,) = ledger.requests
    assert (request.method, request.path, request.api) == ("POST", PATHS["chat"], "chat")
    assert (request.model, request.scenario, request.stream) == ("healthy:gap=0", "healthy:gap=0", True)
    assert (request.retry_count, request.attempt, request.number, request.connection) == (2, 0, 1, 1)
    assert request.headers["authorization"] == "Bearer ***"
    assert request.body_bytes == len(json.dumps(body))
    assert request.query_names == ("api-key",)
    assert secret not in ledger.to_json() + str(ledger) + repr(ledger)
    assert "private words" not in ledger.to_json() + repr(ledger)


def test_the_ledger_is_json_over_http_and_leaves_itself_out(gateway: FaultGateway) -> None:
    with RawClient(gateway.port) as client:
        client.model("healthy:gap=0").reply()
        with urllib.request.urlopen(gateway.ledger_url) as answer:
            seen = json.load(answer)
        assert seen["requests"][0]["model"] == "healthy:gap=0"
        assert seen["requests"][0]["sent"][0][1] == "headers"
        assert [connection["number"] for connection in seen["connections"]] == [1]
        assert abs(seen["epoch"] + seen["taken_at"] - time.time()) < 5
        request = urllib.request.Request(
            gateway.ledger_url.replace("ledger", "reset"), method="POST", data=b""
        )
        urllib.request.urlopen(request).close()
        ledger = gateway.ledger()
        assert ledger.requests == ()
        assert [connection.closed_at for connection in ledger.connections] == [None]


def test_reset_starts_over(gateway: FaultGateway) -> None:
    with RawClient(gateway.port) as client:
        assert client.model("flaky").reply().status == 503
    gateway.wait_for(lambda ledger: ledger.open_connections == 0)
    gateway.reset_ledger()
    assert gateway.ledger().requests == ()
    assert gateway.ledger().connections == ()
    with RawClient(gateway.port) as client:
        assert client.model("flaky").reply().status == 503
    assert gateway.ledger().requests[0].attempt == 0


def test_memory_is_bounded_and_counts_stay_exact() -> None:
    with FaultGateway(keep_requests=3, keep_sent=10) as gateway:
        for _ in range(5):
            with RawClient(gateway.port) as client:
                client.model("burst:tokens=50").reply()
        ledger = gateway.wait_for(lambda ledger: ledger.open_connections == 0)
    assert [request.number for request in ledger.requests] == [3, 4, 5]
    assert (ledger.requests_dropped, ledger.connections_dropped) == (2, 2)
    request = ledger.requests[0]
    assert len(request.sent) == 10
    assert request.sent_dropped == 55 - 10
    assert request.counts == {"headers": 1, "role": 1, "token": 50, "finish": 1, "done": 1, "end": 1}
    assert request.headers_sent_at is not None


def test_waiting_returns_the_ledger_that_held(gateway: FaultGateway) -> None:
    def later() -> None:
        with RawClient(gateway.port) as client:
            client.model("healthy:gap=0").reply()

    thread = threading.Thread(target=later)
    thread.start()
    ledger = gateway.wait_for(lambda ledger: any(request.completed_at for request in ledger.requests))
    thread.join()
    assert ledger.requests[0].count("done") == 1


def test_a_wait_in_vain_shows_the_ledger(gateway: FaultGateway) -> None:
    gateway.script("m", [Headers(), Silence()])
    with RawClient(gateway.port) as client:
        client.model("m")
        with pytest.raises(AssertionError, match=r"within 0.05 s\nledger: \d requests") as caught:
            gateway.wait_for(lambda ledger: ledger.requests and ledger.requests[0].completed_at, timeout=0.05)
    assert "connection 1" in str(caught.value)


def test_waiting_does_not_block_the_loop(gateway: FaultGateway) -> None:
    async def run() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        waiting = asyncio.create_task(gateway.wait_for_async(_first_is_closed))
        await gateway.wait_for_async(lambda ledger: ledger.connections)
        writer.close()
        ledger = await waiting
        assert ledger.connections[0].closed_how == "fin"
        await writer.wait_closed()
        with pytest.raises(AssertionError, match="within"):
            await gateway.wait_for_async(lambda ledger: len(ledger.connections) == 9, timeout=0.02)

    threads = threading.active_count()
    asyncio.run(run())
    assert threading.active_count() == threads


def _first_is_closed(ledger: Ledger) -> bool:
    return any(connection.closed_at for connection in ledger.connections)


def test_each_request_and_each_close_is_one_log_line() -> None:
    lines: list[str] = []
    with FaultGateway(log=lines.append) as gateway:
        with RawClient(gateway.port) as client:
            client.model("healthy:gap=0").reply()
        gateway.wait_for(lambda ledger: ledger.open_connections == 0)
    assert lines == [
        "request 1: POST /v1/chat/completions model=healthy:gap=0 attempt=0",
        "connection 1 closed by the client (FIN), last request 1, 10 pieces sent, answer complete",
    ]
