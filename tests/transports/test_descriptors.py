"""No descriptor is closed by another thread than the one that reads through it.

A number that is closed under a blocked reader goes to whatever is opened next, and the reader, when it wakes, reads or
writes there. So every close of a socket is traced here with the threads that were inside a call on it, while calls are
stalled, cancelled and closed from elsewhere; beside them a thread writes files as fast as it can, and each must hold
what was written. The same traffic through the bare SDK shows that the trace sees such closes.
"""

from __future__ import annotations

import importlib.util
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

import stallwatch
from stallwatch.runtime import shared_stream
from stallwatch.testing import FaultGateway
from support.drivers import MESSAGES, SYNC
from support.telemetry import instrumented
from transports.roads import road_to

ROUNDS = 12
SERVERS = ("stallwatch-fault-gateway", "H2Front", "TunnelProxy")

IN_CALLS = (
    (socket.socket, "recv"),
    (socket.socket, "send"),
    (ssl.SSLSocket, "recv"),
    (ssl.SSLSocket, "send"),
)


class Trace:
    """Who is inside a call on which socket, and who closes one under another thread."""

    def __init__(self) -> None:
        self.inside: Counter[tuple[int, int]] = Counter()
        """By descriptor and thread."""
        self.closes = 0
        self.under_others: list[str] = []

    def close(self, sock: Any) -> None:
        number, me = sock.fileno(), threading.get_ident()
        if number < 0 or threading.current_thread().name in SERVERS:
            return
        self.closes += 1
        others = [thread for (each, thread), count in list(self.inside.items()) if each == number and count]
        if any(thread != me for thread in others):
            self.under_others.append(f"{number} by {threading.current_thread().name}")


@contextmanager
def traced(patch: pytest.MonkeyPatch) -> Iterator[Trace]:
    """Trace every read, write and close of a socket."""
    trace = Trace()

    def entering(kind: Any, name: str) -> None:
        original = getattr(kind, name)

        def call(sock: Any, *args: Any, **options: Any) -> Any:
            key = (sock.fileno(), threading.get_ident())
            trace.inside[key] += 1
            try:
                return original(sock, *args, **options)
            finally:
                trace.inside[key] -= 1

        patch.setattr(kind, name, call, raising=False)

    for kind, name in IN_CALLS:
        entering(kind, name)
    # The one place where Python gives a descriptor back; ``close`` only counts who still holds the object.
    real_close = socket.socket._real_close  # type: ignore[attr-defined]

    def closing(sock: Any, *args: Any, **options: Any) -> Any:
        trace.close(sock)
        return real_close(sock, *args, **options)

    patch.setattr(socket.socket, "_real_close", closing)
    wait_for_either = shared_stream._readable

    def waiting(one: Any, other: Any, timeout: float | None) -> Any:
        keys = [(each.fileno(), threading.get_ident()) for each in (one, other)]
        trace.inside.update(keys)
        try:
            return wait_for_either(one, other, timeout)
        finally:
            trace.inside.subtract(keys)

    patch.setattr(shared_stream, "_readable", waiting)
    yield trace


class Files:
    """Writes and reads back small files as fast as it can."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, name="files")
        self.written = 0
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._over.is_set():
            path = self._directory / str(self.written % 50)
            content = f"{self.written}:".encode() * 300
            try:
                path.write_bytes(content)
                if path.read_bytes() != content:
                    self.wrong.append(str(self.written))
            except OSError as error:
                self.wrong.append(repr(error))
            self.written += 1


def _stalled(client: Any) -> None:
    with pytest.raises(stallwatch.StreamInactivityTimeoutError):
        for _ in client.chat.completions.create(
            model="stall-after:tokens=2,gap=0", messages=MESSAGES, stream=True
        ):
            pass


def _cancelled(client: Any) -> None:
    with stallwatch.policy(first_token=20, idle=20), stallwatch.Run() as run:
        timer = threading.Timer(0.2, run.cancel, ("enough",))
        timer.start()
        with pytest.raises(stallwatch.RunCancelledError):
            list(client.chat.completions.create(model="silent", messages=MESSAGES, stream=True))
        timer.join()


def _closed_from_elsewhere(client: Any, wait: float = 0.2) -> None:
    with stallwatch.policy(first_token=20, idle=20):
        stream = client.chat.completions.create(
            model="stall-after:tokens=1,gap=0", messages=MESSAGES, stream=True
        )
    timer = threading.Timer(wait, stream.close)
    timer.start()
    try:
        list(stream)
    except Exception:
        pass
    timer.join()


def _whole(client: Any) -> None:
    assert len(list(client.chat.completions.create(model="healthy", messages=MESSAGES, stream=True))) == 7


def _traffic(client: Any, kinds: list[Callable[[Any], None]]) -> list[BaseException]:
    errors: list[BaseException] = []

    def run(kind: Any) -> None:
        try:
            for _ in range(ROUNDS):
                kind(client)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(kind,), name=kind.__name__) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert not any(thread.is_alive() for thread in threads), "a call does not end"
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tls", "tcp", "tls in tls", "proxy", "http2"])
def test_none_is_closed_by_another_thread_than_its_reader(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "http2" and importlib.util.find_spec("h2") is None:
        pytest.skip("h2 is not installed")
    settings = {"connect": 20, "first_token": 10, "idle": 0.15, "total": 40}
    kinds = [_stalled, _cancelled, _closed_from_elsewhere, _whole, _closed_from_elsewhere]
    with (
        road_to(name, SYNC) as road,
        instrumented(**settings),
        traced(monkeypatch) as trace,
        Files(tmp_path) as files,
        road.client(SYNC) as client,
    ):
        errors = _traffic(client, kinds)
    assert errors == []
    assert trace.under_others == []
    assert trace.closes > (0 if name == "http2" else 2 * ROUNDS)
    assert files.wrong == []
    assert files.written > 100


@pytest.mark.slow
def test_the_trace_sees_what_the_bare_sdk_does(
    gateway: FaultGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with traced(monkeypatch) as trace, SYNC.client(gateway.base_url, timeout=1.0) as client:
        _closed_from_elsewhere(client)
    assert len(trace.under_others) == 1
