"""Whether ending a call can be proven on the transport that a client stands on, told without sending anything."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from stallwatch.runtime.http2_names import missing_names
from stallwatch.runtime.pools import is_aiohttp, pool_of, transport_for

__all__ = ["InterruptProof", "interrupt_proof"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptProof:
    """What can be said of a client's transport beforehand."""

    proof: str
    """What ``stallwatch.interrupt`` says on the spans of its calls, if all goes as usual.

    ``proven``: a silent call is ended and the server sees it; ``unproven``: our own call is ended, and the transport is
    trusted to tell the server; ``none``: only the transport's own read timeout bounds the wait, if it heeds one.
    """

    transport: str
    """``HTTP/1.1``, ``HTTP/2`` (or HTTP/1.1, as agreed with the server), ``aiohttp``, ``custom`` or ``unknown``."""

    is_async: bool

    reason: str
    """One sentence on why."""


def interrupt_proof(client: Any) -> InterruptProof:
    """Return how sure ending a call of ``client`` is: an SDK client of either kind, or an HTTP client.

    Looks at the transport for the client's base URL (mounts, proxies and wrapped transports are followed), of
    ``httpx`` and ``httpx2`` alike. Pure inspection: nothing is sent, opened or changed. Never raises; what cannot be
    inspected is ``proof="none"``, ``transport="unknown"``.
    """
    try:
        return _inspect(client)
    except Exception as error:
        return InterruptProof(
            proof="none",
            transport="unknown",
            is_async=False,
            reason=f"the client cannot be inspected ({type(error).__name__})",
        )


def _inspect(client: Any) -> InterruptProof:
    http = getattr(client, "_client", client)
    url = getattr(client, "base_url", None) or http.base_url
    # The HTTP library's own kind of URL: the SDK may be given a client of the older library.
    transport = transport_for(http, type(http.base_url)(str(url)))
    pool = pool_of(transport)
    is_async = hasattr(http, "aclose")
    if pool is None:
        return _without_pool(transport, is_async=is_async)
    if not getattr(pool, "_http2", False):
        return InterruptProof(
            proof="proven",
            transport="HTTP/1.1",
            is_async=is_async,
            reason="each call has a connection of its own, which is closed when the call is ended",
        )
    lacking = _lacking(pool, is_async=is_async)
    if lacking:
        reason = f"the HTTP library has no {', '.join(lacking)}, so single streams cannot be reset"
        return InterruptProof(
            proof="unproven" if is_async else "none", transport="HTTP/2", is_async=is_async, reason=reason
        )
    return InterruptProof(
        proof="proven",
        transport="HTTP/2",
        is_async=is_async,
        reason="a call shares its connection; its stream alone is reset when it is ended",
    )


def _without_pool(transport: Any, *, is_async: bool) -> InterruptProof:
    if is_aiohttp(transport):
        return InterruptProof(
            proof="proven",
            transport="aiohttp",
            is_async=True,
            reason="each call has a connection of its own, which aiohttp closes when the call is ended",
        )
    if is_async:
        reason = (
            "the transport has no connection pool that is known; our own call is ended, and it is to close"
        )
    else:
        reason = "the transport has no connection pool that is known; its own read timeout is the bound"
    return InterruptProof(
        proof="unproven" if is_async else "none", transport="custom", is_async=is_async, reason=reason
    )


def _lacking(pool: Any, *, is_async: bool) -> list[str]:
    library = type(pool).__module__.partition(".")[0]
    module = importlib.import_module(f"{library}.{'_async' if is_async else '_sync'}.http2")
    return missing_names(getattr(module, "AsyncHTTP2Connection" if is_async else "HTTP2Connection"))
