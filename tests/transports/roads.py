"""The transports by which a client reaches the gateway, each with the HTTP client that goes there."""

from __future__ import annotations

import importlib
import importlib.util
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openai
import pytest
import trustme

from stallwatch.testing import FaultGateway
from support.connects import http
from support.drivers import Driver
from transports.relays import TunnelProxy, UnixRelay

__all__ = ["NAMES", "Road", "road_to"]

# Early: while it is being imported the SDK trips over it, wherever a collection ends a stream just then.
httpx: Any = importlib.import_module("httpx") if importlib.util.find_spec("httpx") else None

_authority = trustme.CA()


def _served() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _authority.configure_trust(context)
    return context


@dataclass
class Road:
    """A way to a gateway."""

    gateway: FaultGateway
    base_url: str
    connect: Callable[[], Any]
    """Makes an HTTP client."""
    proxy: TunnelProxy | None = None
    proof: str = "proven"

    def client(self, driver: Driver, **options: Any) -> Any:
        """An SDK client."""
        return driver.client(self.base_url, http_client=self.connect(), **options)


class _Wrapping(http.BaseTransport):  # type: ignore[misc, name-defined]
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def handle_request(self, request: Any) -> Any:
        return self.inner.handle_request(request)

    def close(self) -> None:
        self.inner.close()


class _WrappingAsync(http.AsyncBaseTransport):  # type: ignore[misc, name-defined]
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def handle_async_request(self, request: Any) -> Any:
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


def _kind(driver: Driver, library: Any = http) -> Any:
    return library.AsyncClient if driver.is_async else library.Client


def _direct(driver: Driver, stack: ExitStack, *, tls: bool = False, library: Any = http) -> Road:
    gateway = stack.enter_context(FaultGateway(ssl_context=_served() if tls else None))
    verify = _trusting() if tls else False
    return Road(gateway, gateway.base_url, lambda: _kind(driver, library)(verify=verify))


def _tls(driver: Driver, stack: ExitStack) -> Road:
    return _direct(driver, stack, tls=True)


def _proxied(driver: Driver, stack: ExitStack, *, tls: bool = False) -> Road:
    gateway = stack.enter_context(FaultGateway(ssl_context=_served()))
    proxy = stack.enter_context(TunnelProxy(gateway.port, _served() if tls else None))
    through = http.Proxy(proxy.url, ssl_context=_trusting() if tls else None)
    return Road(gateway, gateway.base_url, lambda: _kind(driver)(verify=_trusting(), proxy=through), proxy)


def _tls_in_tls(driver: Driver, stack: ExitStack) -> Road:
    return _proxied(driver, stack, tls=True)


def _unix(driver: Driver, stack: ExitStack) -> Road:
    gateway = stack.enter_context(FaultGateway())
    directory = stack.enter_context(TemporaryDirectory())
    relay = stack.enter_context(UnixRelay(gateway.port, Path(directory) / "s"))
    transport = http.AsyncHTTPTransport if driver.is_async else http.HTTPTransport
    return Road(
        gateway,
        gateway.base_url,
        lambda: _kind(driver)(transport=transport(uds=relay.path, verify=False)),
    )


def _wrapped(driver: Driver, stack: ExitStack) -> Road:
    gateway = stack.enter_context(FaultGateway())
    inner = http.AsyncHTTPTransport if driver.is_async else http.HTTPTransport
    around = _WrappingAsync if driver.is_async else _Wrapping
    return Road(gateway, gateway.base_url, lambda: _kind(driver)(transport=around(inner(verify=False))))


def _legacy(driver: Driver, stack: ExitStack) -> Road:
    if http.__name__ == "httpx" or httpx is None:
        pytest.skip("the SDK stands on httpx itself, or httpx is not installed")
    return _direct(driver, stack, library=httpx)


def _aiohttp(driver: Driver, stack: ExitStack) -> Road:
    if not driver.is_async:
        pytest.skip("aiohttp is asynchronous")
    if importlib.util.find_spec("aiohttp") is None:
        pytest.skip("aiohttp is not installed")
    gateway = stack.enter_context(FaultGateway())
    if hasattr(openai, "DefaultAioHttpClient") and http.__name__ == "httpx2":
        kind = openai.DefaultAioHttpClient
    elif importlib.util.find_spec("httpx_aiohttp") is not None:
        kind = importlib.import_module("httpx_aiohttp").HttpxAiohttpClient
    else:
        pytest.skip("httpx-aiohttp is not installed")
    return Road(gateway, gateway.base_url, lambda: kind(verify=False))


def _http2(driver: Driver, stack: ExitStack) -> Road:
    if importlib.util.find_spec("h2") is None:
        pytest.skip("h2 is not installed")
    front = importlib.import_module("transports.h2_front").H2Front
    gateway = stack.enter_context(FaultGateway())
    server = stack.enter_context(front(gateway.port, _served()))
    return Road(gateway, server.base_url, lambda: _kind(driver)(verify=_trusting(), http2=True))


_ROADS: dict[str, Callable[[Driver, ExitStack], Road]] = {
    "tcp": _direct,
    "tls": _tls,
    "proxy": _proxied,
    "tls in tls": _tls_in_tls,
    "unix": _unix,
    "wrapped": _wrapped,
    "legacy httpx": _legacy,
    "aiohttp": _aiohttp,
    "http2": _http2,
}

NAMES = tuple(_ROADS)


@contextmanager
def road_to(name: str, driver: Driver, connections: int | None = None) -> Iterator[Road]:
    """Open a road, skipping the test where what it needs is not installed; ``connections`` caps the client's pool."""
    with ExitStack() as stack:
        road = _ROADS[name](driver, stack)
        if connections is not None:
            road.connect = partial(_capped, road.connect, connections)
        yield road


def _capped(connect: Callable[[], Any], connections: int) -> Any:
    client = connect()
    for transport in (client._transport, *client._mounts.values()):
        transport._pool._max_connections = transport._pool._max_keepalive_connections = connections
    return client
