"""Passing telemetry on to the collector the user has named, beside the demo's own sink.

A tee: the programs export to the sink, and what the sink got goes on, byte for byte, as OTLP over HTTP. So the demo's
own columns do not depend on a collector, and an absent collector costs a message, not the demo.
"""

from __future__ import annotations

import base64
import queue
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["Collector", "Forwarder", "collector_from"]

_SIGNALS = {"/v1/traces": "TRACES", "/v1/metrics": "METRICS"}
_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Where each signal goes: full URLs by OTLP path, headers by OTLP path, and a CA file if one is named."""

    urls: Mapping[str, str]
    headers: Mapping[str, Mapping[str, str]]
    ca_file: str | None = None

    def __str__(self) -> str:
        return ", ".join(sorted({_shown(url) for url in self.urls.values()}))


def collector_from(environ: Mapping[str, str]) -> Collector | None:
    """Read the standard OTLP exporter variables; None if they name no endpoint."""
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip().rstrip("/")
    urls: dict[str, str] = {}
    headers: dict[str, dict[str, str]] = {}
    for path, signal in _SIGNALS.items():
        url = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "").strip() or (base and base + path)
        if url:
            urls[path] = url
            common = environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
            headers[path] = _headers(common) | _headers(
                environ.get(f"OTEL_EXPORTER_OTLP_{signal}_HEADERS", "")
            )
    if not urls:
        return None
    return Collector(
        urls=urls, headers=headers, ca_file=environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or None
    )


def _headers(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {unquote(name).strip(): unquote(value).strip() for name, _, value in pairs}


def _without_user(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL without its user information, and that as a header: urllib understands it in no other form."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    if not user:
        return url, {}
    basic = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), {"authorization": f"Basic {basic}"}


def _shown(url: str) -> str:
    """Return the URL without what may be secret: user information and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class Forwarder:
    """Sends in one thread of its own, in order; a context manager that waits for what is queued."""

    def __init__(self, collector: Collector) -> None:
        self.sent = 0
        self.failures: list[str] = []
        self._collector = collector
        self._queue: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="otlp-forward", daemon=True)

    def relay(self, path: str, body: bytes) -> None:
        """Queue one export; never waits."""
        self._queue.put((path, body))

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            path, body = item
            url = self._collector.urls.get(path)
            if url is None:
                continue
            try:
                self._post(path, url, body)
            except (OSError, ValueError, HTTPException) as error:
                self.failures.append(f"{_shown(url)}: {error}")
                if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
                    # Nobody there: more attempts would only make the user wait.
                    return
            else:
                self.sent += 1

    def _post(self, path: str, url: str, body: bytes) -> None:
        url, own = _without_user(url)
        headers = {"content-type": "application/x-protobuf", **own, **self._collector.headers[path]}
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        context = None
        if url.startswith("https:"):
            context = ssl.create_default_context(cafile=self._collector.ca_file)
        with urllib.request.urlopen(request, timeout=_TIMEOUT, context=context) as response:
            response.read()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.put(None)
        self._thread.join(3 * _TIMEOUT)
