"""How calls leave this machine, and whether ending one can be proven there: proxies, HTTP/2, the client's transport."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.request import getproxies_environment

import openai

from stallwatch.cli.doctor.report import Finding, Section, note, ok, problem, warning
from stallwatch.cli.doctor.secrets import origin
from stallwatch.cli.doctor.versions import library_of_sdk
from stallwatch.cli.extras import importable
from stallwatch.runtime.interrupt_proof import interrupt_proof
from stallwatch.runtime.pools import pool_of, transport_for

__all__ = ["DEFAULT_BASE_URL", "network", "proof_of", "way_to"]

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_KINDS = (
    ("sync", openai.OpenAI, "DefaultHttpxClient"),
    ("async", openai.AsyncOpenAI, "DefaultAsyncHttpxClient"),
)


def network(environ: Mapping[str, str], base_url: str, *, http2: bool) -> Section:
    """Look at the transports of clients as they are made here; nothing is sent."""
    findings = [*_proxies(environ), *_clients(base_url, http2=False)]
    if http2:
        findings += _http2(base_url)
    return Section(
        key="network",
        title="How calls leave, and whether they can be ended",
        findings=tuple(findings),
        lead=f"For clients of {origin(base_url)}, made here without an http_client of their own:",
    )


def _proxies(environ: Mapping[str, str]) -> Iterator[Finding]:
    names = {name.lower(): name for name in environ if name.lower().endswith("_proxy") and environ[name]}
    for scheme, url in sorted(getproxies_environment().items()):
        variable = names.get(f"{scheme}_proxy", f"{scheme.upper()}_PROXY")
        if scheme == "no":
            yield note(f"proxy.{scheme}", variable, url, "reached directly", value=url)
        elif scheme in ("http", "https", "all"):
            yield note(f"proxy.{scheme}", variable, origin(url), "of the environment", origin=origin(url))


def _clients(base_url: str, *, http2: bool) -> Iterator[Finding]:
    for kind, made, http_client in _KINDS:
        prefix = "http2" if http2 else "default"
        key, title = f"{prefix}.{kind}", f"{'HTTP/2 client' if http2 else 'default client'}, {kind}"
        try:
            options = {"http_client": getattr(openai, http_client)(http2=True)} if http2 else {}
            client = made(api_key="doctor", base_url=base_url, **options)
        except Exception as error:
            yield _cannot_be_made(key, title, error)
            continue
        yield proof_of(key, title, client)
        if isinstance(client, openai.OpenAI):
            # An async one can be closed in a loop only, and has nothing open.
            client.close()


def _http2(base_url: str) -> Iterator[Finding]:
    if importable("h2"):
        yield from _clients(base_url, http2=True)
        return
    library = library_of_sdk()
    yield problem(
        "http2",
        "HTTP/2 client",
        "cannot be made",
        f"pip install '{library}[http2]'",
        "h2 is not installed",
    )


def _cannot_be_made(key: str, title: str, error: Exception) -> Finding:
    socks = "socks" in str(error).lower()
    library = library_of_sdk()
    return problem(
        key,
        title,
        "cannot be made",
        f"pip install '{library}[socks]', or unset the SOCKS proxy"
        if socks
        else "correct the proxy variables of the environment, and the base URL",
        f"the SDK's own constructor raises {type(error).__name__}",
        error=type(error).__name__,
    )


def proof_of(key: str, title: str, client: Any) -> Finding:
    """Tell how sure ending a call of a client is."""
    found = interrupt_proof(client)
    way = way_to(client)
    value = f"{found.proof}, {found.transport}" + (f", {way}" if way else "")
    data = {"proof": found.proof, "transport": found.transport, "async": found.is_async, "by": way}
    if found.proof == "proven":
        return ok(key, title, value, found.reason, **data)
    if found.proof == "unproven":
        return note(key, title, value, found.reason, **data)
    return warning(
        key,
        title,
        value,
        "set a read timeout on the client that you can live with, or use an HTTP/1.1 client of the SDK's own kind",
        found.reason,
        **data,
    )


def way_to(client: Any) -> str:
    """Return how a client reaches its base URL, where that is through a proxy."""
    http = getattr(client, "_client", None)
    try:
        url = type(http.base_url)(str(client.base_url))  # type: ignore[union-attr]
        pool = pool_of(transport_for(http, url))
    except Exception:
        return ""
    name = type(pool).__name__
    proxy = getattr(pool, "_proxy_url", None)
    if "Proxy" not in name or proxy is None:
        return ""
    host = _text(proxy.host)
    shown = f"[{host}]" if ":" in host else host
    port = "" if proxy.port is None else f":{proxy.port}"
    return f"through the proxy {_text(proxy.scheme)}://{shown}{port}"


def _text(value: object) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
