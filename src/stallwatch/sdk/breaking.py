"""How a synchronous request is broken off before its headers: found in the pool, and its socket shut down.

The pool's names are private, hence looked for with care: where one is missing, a cancel is noticed at the next timeout
of the transport. A request that is queued for a connection has no socket; it is told that it has got one, and the
error that follows is translated like any other. During a TLS handshake, with the server or through a proxy, the pool
does not know the socket yet and the object that will own it is not made; so for runs that may be cancelled a duplicate
of the descriptor is kept for just that time. It must not be kept longer: it would hold back the close that the server
is to see.
"""

from __future__ import annotations

import os
import socket
import weakref
from functools import partial
from typing import Any

from stallwatch.runtime.inflight import InFlight
from stallwatch.runtime.interrupt import shut_down
from stallwatch.runtime.pools import (
    EXTENSION,
    innermost,
    network_stream_of,
    pool_of,
    run_of,
    socket_under,
    transport_for,
)

__all__ = [
    "break_off",
    "end_handshake",
    "failed_tunnel",
    "govern_pool",
    "govern_streams",
    "stream_of",
    "watch_handshake",
]


def stream_of(client: Any, request: Any) -> Any:
    """Return the network stream that serves ``request``; None when it has none, or none that could be found."""
    connection = getattr(_entry_of(client, request), "connection", None)
    return network_stream_of(connection)


def break_off(owner: weakref.ref[Any], request: Any) -> None:
    """Wake whoever waits for ``request``; from another thread."""
    try:
        client = owner()
        entry = _entry_of(client, request)
        if entry is None:
            return
        if entry.connection is None:
            entry._connection_acquired.set()
            return
        connection = innermost(entry.connection)
        stream = getattr(connection, "_network_stream", None)
        run = run_of(request)
        if "HTTP2" not in type(connection).__name__:
            if stream is not None:
                shut_down(socket_under(stream))
        elif run is not None and hasattr(connection, "stallwatch_reset"):
            # The socket is shared with others.
            connection.stallwatch_reset(run)
    except (AttributeError, OSError):
        pass


def failed_tunnel(client: Any, request: Any, name: str) -> Any:
    """Return the connection of a proxy in whose tunnel TLS has failed, to be closed; None for any other event.

    The library forgets to: it would hold a place in the pool for good, as one that is in use.
    """
    if name != "proxy.start_tls.failed":
        return None
    return getattr(_entry_of(client, request), "connection", None)


def govern_streams(client: Any, request: Any, *, is_async: bool) -> bool:
    """Have calls on the HTTP/2 connection that serves ``request`` ended one by one; False where that cannot be."""
    connection = innermost(getattr(_entry_of(client, request), "connection", None))
    return connection is not None and _http2(is_async=is_async).govern(connection)


def govern_pool(pool: Any, *, is_async: bool) -> None:
    """Do the same for the connections that a pool has, before it gives one of them to a further call."""
    if getattr(pool, "_http2", False):
        for connection in list(pool.connections):
            inner = innermost(connection)
            if "HTTP2" in type(inner).__name__:
                _http2(is_async=is_async).govern(inner)


def _http2(*, is_async: bool) -> Any:
    # Only where the protocol is spoken: most programs do not.
    if is_async:
        from stallwatch.runtime import http2_async

        return http2_async
    from stallwatch.runtime import http2_sync

    return http2_sync


def watch_handshake(run: InFlight, client: Any, name: str, info: dict[str, Any]) -> None:
    """Follow a connect by the transport's trace events: during a handshake a duplicate stands by."""
    _, _, event = name.partition(".")
    if event == "connect_tcp.complete":
        _stand_by(run, info["return_value"])
    elif event == "start_tls.started" and run.handshake is None:
        # Through a proxy: the connection to it has been in use since.
        _stand_by(run, stream_of(client, run.request))
    elif run.handshake is not None and (
        event in ("start_tls.complete", "start_tls.failed", "send_request_headers.started")
        or name == "connection.connect_tcp.failed"
    ):
        end_handshake(run)


def _stand_by(run: InFlight, stream: Any) -> None:
    sock = socket_under(stream)
    if isinstance(sock, socket.socket):
        # Of the descriptor: a socket that speaks TLS cannot be duplicated as such.
        spare = socket.socket(sock.family, sock.type, sock.proto, fileno=os.dup(sock.fileno()))
        run.handshake = (spare, run.break_off)
        run.break_off = partial(shut_down, spare)


def end_handshake(run: InFlight) -> None:
    """The connection stands, or has failed: let go of the duplicate."""
    held, run.handshake = run.handshake, None
    if held is not None:
        spare, run.break_off = held
        spare.close()


def _entry_of(client: Any, request: Any) -> Any:
    if client is None:
        return None
    pool = pool_of(transport_for(client._client, request.url))
    mine = request.extensions.get(EXTENSION)
    for entry in list(getattr(pool, "_requests", ())):
        if entry.request.extensions.get(EXTENSION) is mine:
            return entry
    return None
