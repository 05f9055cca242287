"""Addresses that fail before HTTP begins."""

from __future__ import annotations

import socket
import ssl

import pytest

from stallwatch.testing import mute_server, refusing_address, unaccepting_server


def test_a_refusing_address_refuses() -> None:
    with refusing_address() as address:
        assert address.base_url == f"http://127.0.0.1:{address.port}/v1"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port), timeout=2)


def test_a_connect_to_a_full_queue_never_completes() -> None:
    with unaccepting_server() as address:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                socket.create_connection((address.host, address.port), timeout=0.3)


def test_a_mute_server_lets_a_handshake_stall() -> None:
    with mute_server() as address, socket.create_connection((address.host, address.port), timeout=2) as sock:
        assert address.tls_base_url.startswith("https://")
        sock.settimeout(0.2)
        context = ssl.create_default_context()
        with pytest.raises(TimeoutError):
            context.wrap_socket(sock, server_hostname="localhost")
