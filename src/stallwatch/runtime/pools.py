"""The HTTP library's connection pool, found from outside: its names are private, hence looked for with care."""

from __future__ import annotations

from typing import Any

__all__ = ["innermost", "network_stream_of", "pool_of", "socket_under", "transport_for"]

_DEPTH = 3
"""How many transports may be wrapped in one another."""


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
