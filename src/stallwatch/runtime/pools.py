"""The HTTP library's connection pool, found from outside: its names are private, hence looked for with care."""

from __future__ import annotations

from typing import Any

from stallwatch.runtime.inflight import InFlight

__all__ = [
    "EXTENSION",
    "innermost",
    "is_aiohttp",
    "network_stream_of",
    "pool_of",
    "run_of",
    "socket_of_body",
    "socket_under",
    "transport_for",
]

EXTENSION = "stallwatch"
"""The name in a request's ``extensions`` under which its run travels, from the SDK's request to the pool's."""

_DEPTH = 3
"""How many transports may be wrapped in one another."""


def run_of(request: Any) -> InFlight | None:
    """Return the run that a request belongs to, of the SDK's or the pool's kind."""
    extensions = getattr(request, "extensions", None)
    run = extensions.get(EXTENSION) if isinstance(extensions, dict) else None
    return run if isinstance(run, InFlight) else None


def transport_for(http_client: Any, url: Any) -> Any:
    """Return the transport by which an HTTP client reaches ``url``: a proxy's, a mounted one, or its default."""
    return http_client._transport_for_url(url)


def pool_of(transport: Any, depth: int = _DEPTH) -> Any:
    """Return the connection pool of a transport, also of one that is wrapped in another; None when there is none."""
    pool = getattr(transport, "_pool", None)
    if pool is not None or depth == 0:
        return pool
    for inner in getattr(transport, "__dict__", {}).values():
        # Transports are told by their one method.
        if hasattr(inner, "handle_request") or hasattr(inner, "handle_async_request"):
            pool = pool_of(inner, depth - 1)
            if pool is not None:
                return pool
    return None


def is_aiohttp(transport: Any) -> bool:
    """Tell whether a transport stands on aiohttp, which closes the connection of a task that is cancelled."""
    return any(kind.__name__ == "AiohttpTransport" for kind in type(transport).__mro__)


def innermost(connection: Any) -> Any:
    """Return the connection that speaks the protocol: those of proxies and of several protocols hold another."""
    while getattr(connection, "_connection", None) is not None:
        connection = connection._connection
    return connection


def network_stream_of(connection: Any) -> Any:
    """Return the stream a pool's connection reads through; None while it has none."""
    return getattr(innermost(connection), "_network_stream", None)


def socket_under(stream: Any) -> Any:
    """Return the socket of a network stream; None when it has none."""
    return None if stream is None else stream.get_extra_info("socket")


def socket_of_body(source: Any) -> Any:
    """Return the socket that a body of an aiohttp response comes through; None when it cannot be reached."""
    connection = getattr(getattr(source, "_aiohttp_response", None), "connection", None)
    transport = getattr(connection, "transport", None)
    return None if transport is None else transport.get_extra_info("socket")
