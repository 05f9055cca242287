"""The server around the scenarios: its life, its load, TLS, and what it says to bad requests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest
import trustme

from stallwatch.testing import (
    CloseDelimited,
    Delta,
    FaultGateway,
    Headers,
    Raw,
    Role,
    Silence,
    Status,
    Token,
    Tokens,
)
from testing.rawhttp import PATHS, RawClient, body_for


def test_stop_drops_open_connections_at_once_and_leaves_no_thread() -> None:
    gateway = FaultGateway().start()
    clients = [
        RawClient(gateway.port).model(model) for model in ("silent", "never-responds", "endless:gap=0.001")
    ]
    clients.append(RawClient(gateway.port))
    gateway.wait_for(lambda ledger: len(ledger.requests) == 3 and ledger.open_connections == 4)
    begun = time.monotonic()
    gateway.stop()
    assert time.monotonic() - begun < 1
    assert gateway.open_connections == 0
    assert {connection.closed_how for connection in gateway.ledger().connections} == {"server"}
    assert "stallwatch-fault-gateway" not in {thread.name for thread in threading.enumerate()}
    for client in clients:
        client.sock.close()
    gateway.stop()


def test_a_stopped_gateway_starts_again_on_its_port() -> None:
    gateway = FaultGateway()
    ports = set()
    for _ in range(2):
        with gateway:
            ports.add(gateway.port)
            with RawClient(gateway.port) as client:
                assert client.model("healthy:gap=0").reply().status == 200
    assert len(ports) == 1


def test_starting_twice_is_an_error(gateway: FaultGateway) -> None:
    with pytest.raises(RuntimeError, match="already running"):
        gateway.start()


def test_a_taken_port_is_an_error_at_start(gateway: FaultGateway) -> None:
    with pytest.raises(OSError, match="in use"):
        FaultGateway(gateway.port).start()


def test_nothing_warns_even_with_connections_open_at_stop() -> None:
    program = """
import gc, socket
from stallwatch.testing import FaultGateway
with FaultGateway() as gateway:
    sock = socket.create_connection(("127.0.0.1", gateway.port))
    gateway.wait_for(lambda ledger: ledger.connections)
sock.close()
gc.collect()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def _read_stream(port: int, model: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(body_for("chat", model)).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    try:
        return await reader.readuntil(b"0\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()


async def _closes_too_late() -> None:
    raise RuntimeError("Event loop is closed")


def test_a_task_that_somebody_else_leaves_on_its_loop_is_no_failure_of_the_gateway() -> None:
    """The SDK's dropped clients close themselves on the loop of whichever thread collects them."""
    with FaultGateway() as gateway:
        loop = gateway._loop
        assert loop is not None
        left = asyncio.Event()

        def leave() -> None:
            task = loop.create_task(_closes_too_late())
            task.add_done_callback(lambda _: left.set())

        loop.call_soon_threadsafe(leave)
        until = time.monotonic() + 5
        while not left.is_set():
            assert time.monotonic() < until
            time.sleep(0.005)
        # The loop is told of a task's exception that nobody asked for when the task is collected.
        gc.collect()


def test_two_hundred_streams_at_once(gateway: FaultGateway) -> None:
    async def run() -> list[bytes]:
        return await asyncio.gather(
            *(_read_stream(gateway.port, "slow:tokens=5,gap=0.1") for _ in range(200))
        )

    begun = time.monotonic()
    bodies = asyncio.run(run())
    assert time.monotonic() - begun < 10
    assert all(body.count(b'"content":"t') == 5 for body in bodies)
    ledger = gateway.wait_for(lambda ledger: ledger.open_connections == 0)
    assert len(ledger.requests) == 200
    spans = [request.sent[-1].at - request.received_at for request in ledger.requests]
    assert min(spans) >= 0.4
    overlapping = max(request.received_at for request in ledger.requests) - ledger.requests[0].received_at
    assert overlapping < min(spans) + 2


def test_a_reader_that_does_not_read_holds_up_only_itself(gateway: FaultGateway) -> None:
    gateway.script("huge", [Headers(), *[Raw(b"x" * 100_000)] * 200])
    with RawClient(gateway.port) as stuck:
        stuck.model("huge")
        gateway.wait_for(lambda ledger: ledger.requests[0].count("raw") > 5)
        with RawClient(gateway.port) as client:
            assert client.model("healthy:gap=0").reply().ended == "clean"
        assert gateway.ledger().requests[0].completed_at is None
        assert len(stuck.reply().body) == 20_000_000
    gateway.wait_for(lambda ledger: ledger.requests[0].completed_at)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_gateway(authority: trustme.CA) -> FaultGateway:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return FaultGateway(ssl_context=context)


def _tls(authority: trustme.CA, gateway: FaultGateway) -> RawClient:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    client = RawClient(gateway.port, patience=0.3)
    client.sock = context.wrap_socket(client.sock, server_hostname="127.0.0.1")
    return client


def test_tls_streams_and_sees_the_close(authority: trustme.CA, tls_gateway: FaultGateway) -> None:
    with tls_gateway as gateway:
        assert gateway.base_url.startswith("https://")
        with _tls(authority, gateway) as client:
            assert client.model("healthy:gap=0").reply().events[-1] == "[DONE]"
            assert client.model("stall-after:tokens=1").reply().ended == "silent"
        ledger = gateway.wait_for(lambda ledger: ledger.requests[1].peer_closed_at)
        assert ledger.requests[1].closed_how == "fin"
        client = _tls(authority, gateway)
        client.model("silent")
        gateway.wait_for(lambda ledger: len(ledger.requests) == 3)
        client.reset()
        ledger = gateway.wait_for(lambda ledger: ledger.requests[2].peer_closed_at)
        assert ledger.requests[2].closed_how == "rst"


@pytest.mark.parametrize(
    ("model", "error"), [("cut:tokens=1", None), ("reset:tokens=1", ConnectionResetError)]
)
def test_tls_connections_break_as_scripted(
    authority: trustme.CA, tls_gateway: FaultGateway, model: str, error: type[OSError] | None
) -> None:
    with tls_gateway as gateway, _tls(authority, gateway) as client:
        client.model(model)
        gateway.wait_for(lambda ledger: ledger.requests[0].peer_closed_at)
        # Below TLS: OpenSSL reports a reset as an end of file.
        with socket.socket(fileno=client.sock.detach()) as plain, contextlib.ExitStack() as expected:
            plain.settimeout(2)
            if error is not None:
                expected.enter_context(pytest.raises(error))
            while plain.recv(65536):
                pass


def test_a_tls_handshake_that_fails_or_stalls_harms_nothing(
    authority: trustme.CA, tls_gateway: FaultGateway
) -> None:
    with tls_gateway as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            sock.settimeout(2)
            while sock.recv(100):
                pass
        gateway.wait_for(lambda ledger: ledger.connections[0].closed_at)
        stalled = socket.create_connection(("127.0.0.1", gateway.port))
        gateway.wait_for(lambda ledger: len(ledger.connections) == 2)
        with _tls(authority, gateway) as client:
            assert client.model("healthy:gap=0").reply().status == 200
    assert gateway.open_connections == 0
    stalled.close()


BAD_REQUESTS = [
    (
        body_for("chat", "nope"),
        PATHS["chat"],
        "POST",
        404,
        "'nope' is not a scenario of this gateway; allowed: ",
    ),
    (
        body_for("chat", "healthy:gap=x"),
        PATHS["chat"],
        "POST",
        400,
        "'gap' of scenario 'healthy': 'x' is not allowed",
    ),
    (
        body_for("chat", "healthy:no=1"),
        PATHS["chat"],
        "POST",
        400,
        "'no' of scenario 'healthy' is not known; allowed: ",
    ),
    (
        body_for("chat", "healthy:5"),
        PATHS["chat"],
        "POST",
        400,
        "'5' after scenario 'healthy' is not allowed",
    ),
    (body_for("chat", "keepalive:every=0"), PATHS["chat"], "POST", 400, "Comments.every: 0.0 is not allowed"),
    ({"messages": []}, PATHS["chat"], "POST", 400, "model: None is not allowed"),
    (b"{", PATHS["chat"], "POST", 400, "body: not JSON"),
    ([1], PATHS["chat"], "POST", 400, "body: not a JSON object"),
    (None, PATHS["chat"], "GET", 405, "method: 'GET' is not allowed here; allowed: POST"),
    (None, "/v2/chat", "GET", 404, "path: '/v2/chat' is not served here; allowed: /v1/chat/completions"),
    (None, "/v1/models/nope", "GET", 404, "'nope' is not a scenario"),
]


@pytest.mark.parametrize(("body", "path", "method", "status", "message"), BAD_REQUESTS)
def test_a_bad_request_is_told_field_value_and_what_is_allowed(
    gateway: FaultGateway, body: object, path: str, method: str, status: int, message: str
) -> None:
    with RawClient(gateway.port) as client:
        reply = client.ask(body, path, method).reply()
        assert reply.status == status
        assert message in reply.json["error"]["message"]
        assert client.model("healthy:gap=0").reply().status == 200


def test_what_is_not_http_is_turned_away(gateway: FaultGateway) -> None:
    with RawClient(gateway.port) as client:
        client.sock.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
        assert client.reply().status == 400
    gateway.wait_for(lambda ledger: ledger.connections[0].closed_how == "server")


def test_a_body_may_be_chunked_and_announced(gateway: FaultGateway) -> None:
    body = json.dumps(body_for("chat", "healthy:gap=0")).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\n"
    head += b"transfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n"
    with RawClient(gateway.port) as client:
        client.sock.sendall(head)
        assert client.head().status == 100
        client.sock.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert client.reply().events[-1] == "[DONE]"


def test_requests_sent_ahead_are_answered_in_turn(gateway: FaultGateway) -> None:
    with RawClient(gateway.port) as client:
        for model in ("healthy:gap=0,tokens=1", "error-status:code=418", "silent>healthy:gap=0"):
            client.model(model)
        assert [client.reply().status for _ in range(2)] == [200, 418]


def test_default_answers_names_not_known() -> None:
    with FaultGateway(default="error-status:code=418") as gateway, RawClient(gateway.port) as client:
        assert client.model("gpt-4o").reply().status == 418
        assert client.model("healthy:gap=0").reply().status == 200
        assert client.model("healthy:gap=x").reply().status == 400


def test_a_script_takes_steps_and_scenario_names(gateway: FaultGateway) -> None:
    gateway.script("gpt-4o", [Status(503)], "cut:tokens=1>healthy:gap=0,tokens=1", [Role(), Token("end")])
    seen = []
    for _ in range(5):
        with RawClient(gateway.port) as client:
            reply = client.model("gpt-4o").reply()
            seen.append((reply.status, reply.ended))
    assert seen == [(503, "clean"), (200, "fin"), (200, "clean"), (200, "clean"), (200, "clean")]
    assert gateway.ledger().requests[0].scenario == "script>cut:tokens=1>healthy:gap=0,tokens=1>script"
    with pytest.raises(ValueError, match="attempts: none given"):
        gateway.script("gpt-4o")


def test_a_step_without_a_form_is_refused_or_breaks_the_stream(gateway: FaultGateway) -> None:
    gateway.script("first", [Delta({"x": 1})])
    gateway.script("later", [Role(), Token("a"), Delta({"x": 1})])
    with RawClient(gateway.port) as client:
        reply = client.model("first", "responses").reply()
        assert reply.status == 400
        assert "Delta has no Responses form" in reply.json["error"]["message"]
        assert client.model("later", "responses").reply().ended == "fin"


def test_extra_headers_replace_the_usual_ones(gateway: FaultGateway) -> None:
    gateway.script("m", [Headers({"Content-Type": "text/plain", "x-more": "1"}), Token("a")])
    gateway.script("closed", [CloseDelimited(), Tokens(2)])
    with RawClient(gateway.port) as client:
        reply = client.model("m").reply()
        assert reply.headers["content-type"] == "text/plain"
        assert reply.headers["x-more"] == "1"
        closed = client.model("closed").reply()
        assert closed.headers["connection"] == "close"
        assert closed.ended == "clean"


def test_a_client_that_asks_to_close_is_closed(gateway: FaultGateway) -> None:
    with RawClient(gateway.port) as client:
        reply = client.ask(body_for("chat", "healthy:gap=0"), connection="close").reply()
        assert reply.headers["connection"] == "close"
        assert client.sock.recv(1) == b""


def test_the_plugin_itself_brings_in_nothing_heavy() -> None:
    program = """
import sys, pytest
before = set(sys.modules)
import stallwatch_pytest
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.split() == ["stallwatch_pytest"]


def test_silence_before_the_head_never_answers(gateway: FaultGateway) -> None:
    gateway.script("m", [Silence()])
    with RawClient(gateway.port, patience=0.1) as client:
        assert client.model("m").reply().status == 0
