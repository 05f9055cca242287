"""A synchronous connect has one limit for all it does, and is otherwise the library's own."""

from __future__ import annotations

import importlib
import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stallwatch.runtime.connecting import BoundedConnects

NAME = "model.invalid"

library: Any = importlib.import_module("httpcore2" if importlib.util.find_spec("httpcore2") else "httpcore")


class Pool:
    """A connection pool, as far as it matters here."""

    def __init__(self, backend: Any) -> None:
        self._network_backend = backend


class Recording:
    """A backend that only notes how it is asked to connect."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float | None]] = []

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> str:
        self.asked.append((host, timeout))
        return "connected"

    def connect_unix_socket(self, path: str) -> str:
        return path


class Unscoped:
    """A run that nobody can cancel."""

    wakeable = False


def bounded(inner: Any = None, *, governed: bool = True) -> BoundedConnects:
    run: Any = Unscoped() if governed else None
    return BoundedConnects(library.SyncBackend() if inner is None else inner, lambda: run)


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of somebody who listens on 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def resolving(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Set what ``NAME`` resolves to: addresses, an error to raise, or something to call."""
    real = socket.getaddrinfo

    def set_answer(answer: Any) -> None:
        def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
            if host != NAME:
                return real(host, port, *args, **kwargs)
            found = answer() if callable(answer) else answer
            if isinstance(found, Exception):
                raise found
            return [
                (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (each, port)) for each in found
            ]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    return set_answer


@pytest.fixture
def dead_network(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nobody answers at any address; returns those that were tried."""
    tried: list[str] = []

    def create_connection(address: tuple[str, int], timeout: float, **_: object) -> socket.socket:
        tried.append(address[0])
        time.sleep(min(timeout, 0.04))
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", create_connection)
    return tried


def test_a_name_is_connected_to(listener: int, resolving: Callable[[Any], None]) -> None:
    resolving(["127.0.0.1"])
    stream = bounded().connect_tcp(NAME, listener, timeout=5.0, socket_options=[])
    assert stream.get_extra_info("server_addr") == ("127.0.0.1", listener)
    stream.close()


def test_an_address_that_refuses_does_not_hide_the_next(
    listener: int, resolving: Callable[[Any], None]
) -> None:
    resolving(["127.0.0.2", "127.0.0.1"])
    stream = bounded().connect_tcp(NAME, listener, timeout=5.0, socket_options=[])
    assert stream.get_extra_info("server_addr")[0] == "127.0.0.1"
    stream.close()


def test_the_last_refusal_is_raised_as_the_library_does(resolving: Callable[[Any], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    resolving(["127.0.0.1", "127.0.0.1"])
    with pytest.raises(library.ConnectError):
        bounded().connect_tcp(NAME, port, timeout=5.0, socket_options=[])


def test_a_resolver_that_takes_too_long_is_a_connect_timeout(resolving: Callable[[Any], None]) -> None:
    answer = threading.Event()
    resolving(lambda: ["127.0.0.1"] if answer.wait(10.0) else [])
    started = time.monotonic()
    try:
        with pytest.raises(library.ConnectTimeout):
            bounded().connect_tcp(NAME, 9, timeout=0.1)
        assert 0.1 <= time.monotonic() - started < 0.6
    finally:
        answer.set()


def test_resolving_is_charged_to_the_limit(resolving: Callable[[Any], None]) -> None:
    def slow() -> list[str]:
        time.sleep(0.1)
        return ["127.0.0.1"]

    resolving(slow)
    inner = Recording()
    bounded(inner).connect_tcp(NAME, 9, timeout=5.0)
    ((host, timeout),) = inner.asked
    assert host == "127.0.0.1"
    assert timeout is not None
    assert timeout <= 4.9


def test_several_dead_addresses_share_one_limit(
    resolving: Callable[[Any], None], dead_network: list[str]
) -> None:
    addresses = [f"127.0.1.{number}" for number in range(1, 21)]
    resolving(addresses)
    started = time.monotonic()
    with pytest.raises(library.ConnectTimeout):
        bounded().connect_tcp(NAME, 9, timeout=0.1, socket_options=[])
    # Each takes 0.04 s: all would take 0.8 s.
    assert time.monotonic() - started < 0.5
    assert dead_network == addresses[: len(dead_network)]
    assert 2 <= len(dead_network) <= 4


@pytest.mark.parametrize(
    "error",
    [socket.gaierror(socket.EAI_NONAME, "not known"), OSError("no network")],
    ids=lambda error: type(error).__name__,
)
def test_a_name_that_does_not_resolve_raises_the_library_s_own_error(
    resolving: Callable[[Any], None], error: Exception
) -> None:
    resolving(error)
    with pytest.raises(library.ConnectError) as own:
        library.SyncBackend().connect_tcp(NAME, 9, timeout=1.0, socket_options=[])
    with pytest.raises(library.ConnectError) as ours:
        bounded().connect_tcp(NAME, 9, timeout=1.0, socket_options=[])
    assert str(ours.value) == str(own.value)


def test_a_name_that_cannot_be_encoded_is_no_error_of_a_thread(resolving: Callable[[Any], None]) -> None:
    resolving(UnicodeError("label too long"))
    with pytest.raises(UnicodeError, match="label too long"):
        bounded().connect_tcp(NAME, 9, timeout=1.0, socket_options=[])


def test_where_no_thread_can_be_started_the_library_resolves(
    listener: int, resolving: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    resolving(["127.0.0.1"])
    monkeypatch.setattr(threading.Thread, "start", start)
    stream = bounded().connect_tcp(NAME, listener, timeout=5.0, socket_options=[])
    assert stream.get_extra_info("server_addr") == ("127.0.0.1", listener)
    stream.close()


@pytest.mark.parametrize(
    ("host", "timeout", "governed"),
    [
        ("127.0.0.1", 5.0, True),
        ("::1", 5.0, True),
        (NAME, None, True),
        (NAME, 5.0, False),
        (NAME, None, False),
    ],
)
def test_passes_through_as_it_is(
    host: str, timeout: float | None, governed: bool, resolving: Callable[[Any], None]
) -> None:
    resolving(AssertionError("nobody resolves here"))
    inner = Recording()
    backend = bounded(inner, governed=governed)
    assert backend.connect_tcp(host, 9, timeout=timeout) == "connected"
    assert inner.asked == [(host, timeout)]


def test_what_else_a_backend_can_do_is_the_inner_one_s() -> None:
    assert bounded(Recording()).connect_unix_socket("a") == "a"


def test_a_pool_gets_one_stand_in_and_its_own_backend_back() -> None:
    inner = Recording()
    pool = Pool(inner)
    for _ in range(2):
        BoundedConnects.install(pool, lambda: True)
    stand_in = pool._network_backend
    assert isinstance(stand_in, BoundedConnects)
    assert stand_in._inner is inner
    BoundedConnects.remove_all()
    assert pool._network_backend is inner
    BoundedConnects.remove_all()
    assert pool._network_backend is inner


def test_a_backend_that_somebody_put_there_since_stays() -> None:
    pool, theirs = Pool(Recording()), Recording()
    BoundedConnects.install(pool, lambda: True)
    pool._network_backend = theirs
    BoundedConnects.remove_all()
    assert pool._network_backend is theirs


@pytest.mark.parametrize("pool", [object(), Pool(None), Pool(object())], ids=["none", "empty", "unknown"])
def test_a_pool_of_an_unknown_kind_is_left_alone(pool: Any) -> None:
    before = getattr(pool, "_network_backend", None)
    BoundedConnects.install(pool, lambda: True)
    assert getattr(pool, "_network_backend", None) is before
