"""The sections in their order. Looking changes nothing; what instruments the process, or calls, is the command's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stallwatch.cli.doctor.attachment import By, attachment, instrumented_by
from stallwatch.cli.doctor.limits import Asked, limits, resolved_for, settings
from stallwatch.cli.doctor.network import DEFAULT_BASE_URL, network
from stallwatch.cli.doctor.others import others
from stallwatch.cli.doctor.report import Report, Section
from stallwatch.cli.doctor.secrets import Secrets
from stallwatch.cli.doctor.telemetry import telemetry
from stallwatch.cli.doctor.versions import versions
from stallwatch.cli.doctor.your_client import is_client, own_base_url, own_policy, your_client
from stallwatch.governing import in_force, is_governed
from stallwatch.sdk.requests import bare_url

__all__ = ["examine", "sections"]


def examine(
    client: Any = None,
    *,
    model: str | None = None,
    base_url: str | None = None,
    effort: str | None = None,
    http2: bool = False,
) -> Report:
    """Look at this process as it is, and return what was found; nothing is patched, sent or changed.

    ``client`` is a client object to look at, too. ``model``, ``base_url`` (default: the client's, or the
    environment's) and ``effort`` are those of the call whose limits are asked for. ``http2`` looks also at clients that
    speak HTTP/2. The report has no secrets in it. Raises ValueError when ``client`` is no client of the SDK.
    """
    if client is not None and not is_client(client):
        raise ValueError(f"client={type(client).__name__} is not allowed: give an OpenAI client object")
    governed = client is not None and is_governed(client)
    asked = asked_for(os.environ, client, model=model, base_url=base_url, effort=effort)
    found = sections(os.environ, asked, by=instrumented_by(), client=client, governed=governed, http2=http2)
    return Report(sections=tuple(found)).without(secrets_of(os.environ, client, base_url).hide)


def secrets_of(environ: Mapping[str, str], client: Any, base_url: str | None) -> Secrets:
    """Return what must not be told, of the environment and of what was asked."""
    secrets = Secrets(
        {**environ, "--base-url": base_url or "", "client": str(getattr(client, "base_url", ""))}
    )
    secrets.add(getattr(client, "api_key", None))
    return secrets


def asked_for(
    environ: Mapping[str, str], client: Any, *, model: str | None, base_url: str | None, effort: str | None
) -> Asked:
    """Return the call that is asked about, as its client would make it."""
    if base_url is None:
        url = environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL
        url = own_base_url(client) if client is not None else url
    else:
        url = base_url
    asked = Asked(model=model, base_url=bare_url(url), effort=effort)
    if client is None:
        return asked
    return replace(asked, client_policy=own_policy(client), max_retries=client.max_retries)


def sections(
    environ: Mapping[str, str], asked: Asked, *, by: By, client: Any, governed: bool, http2: bool
) -> list[Section]:
    """Return every section that needs no call."""
    wiring = in_force()
    resolved = resolved_for(None if wiring is None else wiring.layers, environ, asked)
    found = [versions(), attachment(by), others(environ), telemetry(environ, by), settings(environ)]
    if client is not None:
        found.append(your_client(client, resolved, governed=governed))
    found.append(limits(resolved, environ, asked))
    if client is None or http2:
        found.append(network(environ, asked.base_url or DEFAULT_BASE_URL, http2=http2))
    return found
