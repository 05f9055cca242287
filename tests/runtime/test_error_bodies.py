"""The body of an error is read inside the request: it is no answer, and however it comes it is bounded."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest

from support import expect
from support.bounds import LIMITS
from support.drivers import DRIVERS, Driver
from support.telemetry import instrumented

HEAD = b"HTTP/1.1 500 Oops\r\ncontent-type: application/json\r\ncontent-length: 64\r\n\r\n"
BODY = b'{"error": {"message": "late", "code": "late"}}'.ljust(64)

drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)


@contextmanager
def _failing_server(first_pause: float, pause: float, piece: int) -> Iterator[str]:
    """A server that answers each call with a 500 whose body comes in pieces."""
    gone = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not gone.is_set():
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                try:
                    peer.recv(65536)
                    peer.sendall(HEAD)
                    gone.wait(first_pause)
                    for start in range(0, len(BODY), piece):
                        peer.sendall(BODY[start : start + piece])
                        if gone.wait(pause):
                            return
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            gone.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@drivers
def test_an_error_body_that_comes_later_than_its_head_is_no_chunk(driver: Driver) -> None:
    with _failing_server(0.05, 0.0, 64) as base_url, instrumented(**LIMITS) as captured:
        told = driver.tell(base_url, "any")
    assert isinstance(told.error, openai.InternalServerError)
    attributes = captured.attributes()
    assert attributes["stallwatch.outcome"] == "failed"
    assert attributes["stallwatch.chunks"] == 0
    assert "stallwatch.time_to_first_token" not in attributes


@drivers
def test_an_error_body_that_drips_is_bounded_by_first_token(driver: Driver) -> None:
    with _failing_server(0.0, 0.05, 1) as base_url, instrumented(**LIMITS) as captured:
        told = driver.tell(base_url, "any")
    expect.timeout_error(told.error, phase="first_token", limit=LIMITS["first_token"], wire=None)
    assert captured.attributes()["stallwatch.chunks"] == 0
