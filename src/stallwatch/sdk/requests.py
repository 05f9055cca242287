"""What a request asks for, read from the SDK's options into neutral words; never its content."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from stallwatch.catalogue import Attr
from stallwatch.sdk.providers import provider_of
from stallwatch.telemetry.recorder import Call
from stallwatch.telemetry.values import count_of, integer_of, real_of, text_of

__all__ = [
    "Endpoint",
    "bare_url",
    "base_url_of",
    "body_of",
    "call_of",
    "choices_of",
    "effort_of",
    "endpoint_of",
]

_OPERATIONS: tuple[tuple[str, str, str | None], ...] = (
    (r"/chat/completions$", "chat", "chat_completions"),
    (r"/chat/completions/", "fetch_response", None),
    (r"/completions$", "text_completion", None),
    (r"/responses(/compact)?$", "chat", "responses"),
    (r"/responses/[^/]+$", "fetch_response", "responses"),
    (r"/embeddings$", "embeddings", None),
    (r"/images/", "generate_content", None),
    (r"/audio/", "generate_content", None),
    (r"/videos", "generate_content", None),
    (r"/threads/.*runs", "invoke_agent", None),
    (r"/moderations$", "moderation", None),
    (
        r"/(assistants|batches|evals|files|fine_tuning|models|threads|uploads|vector_stores|containers)\b",
        "manage",
        None,
    ),
)
"""Path pattern, operation name, ``openai.api.type``. Names beyond the conventions' are a short closed list."""

_NUMBERS: dict[str, tuple[str, Callable[[object], float | None]]] = {
    "temperature": (Attr.REQUEST_TEMPERATURE, real_of),
    "top_p": (Attr.REQUEST_TOP_P, real_of),
    "frequency_penalty": (Attr.REQUEST_FREQUENCY_PENALTY, real_of),
    "presence_penalty": (Attr.REQUEST_PRESENCE_PENALTY, real_of),
    "max_tokens": (Attr.REQUEST_MAX_TOKENS, count_of),
    "max_completion_tokens": (Attr.REQUEST_MAX_TOKENS, count_of),
    "max_output_tokens": (Attr.REQUEST_MAX_TOKENS, count_of),
    "seed": (Attr.REQUEST_SEED, integer_of),
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a client sends to."""

    provider: str
    address: str | None
    port: int | None
    base_url: str
    """Without credentials, query and fragment."""


_known: weakref.WeakKeyDictionary[Any, tuple[Any, Endpoint]] = weakref.WeakKeyDictionary()
"""Base URL and endpoint of each client: putting a URL into words takes longer than all else that is read here."""


def endpoint_of(client: Any) -> Endpoint:
    """Return where a client sends to."""
    url = getattr(client, "base_url", "")
    try:
        found = _known.get(client)
        if found is not None and found[0] is url:
            return found[1]
        endpoint = _endpoint(client, str(url))
        _known[client] = (url, endpoint)
    except TypeError:
        # A client of the user's own making that cannot be hashed, or not be held weakly.
        return _endpoint(client, str(url))
    return endpoint


def _endpoint(client: Any, base_url: str) -> Endpoint:
    address, port = _address(base_url)
    return Endpoint(
        provider=provider_of(client, address or ""), address=address, port=port, base_url=bare_url(base_url)
    )


def base_url_of(client: Any) -> str:
    """Return a client's base URL without credentials, query and fragment."""
    return endpoint_of(client).base_url


def body_of(options: Any) -> Mapping[str, Any]:
    """Return what a request asks for; empty when it does not ask in JSON."""
    body = getattr(options, "json_data", None)
    return body if isinstance(body, Mapping) else {}


def call_of(endpoint: Endpoint, options: Any, body: Mapping[str, Any], *, stream: bool) -> Call:
    """Return the neutral description of a request."""
    operation, api = _operation(str(getattr(options, "url", "")))
    model, attributes = text_of(body.get("model")), _attributes(body, api)
    uploads = bool(getattr(options, "files", None) or getattr(options, "content", None))
    key = (endpoint.base_url, endpoint.provider, operation, model, stream, uploads, *attributes.items())
    call = _calls.get(key)
    if call is None:
        if len(_calls) >= _CALLS_KEPT:
            _calls.clear()
        call = _calls[key] = Call(
            operation=operation,
            provider=endpoint.provider,
            model=model,
            stream=stream,
            server_address=endpoint.address,
            server_port=endpoint.port,
            attributes=attributes,
            uploads=uploads,
        )
    return call


_CALLS_KEPT = 256
_calls: dict[tuple[object, ...], Call] = {}
"""Descriptions in use: a run keeps its own as long as its stream is open, and most are alike."""


def choices_of(body: Mapping[str, Any]) -> int:
    """Return how many choices the answer will have."""
    count = body.get("n")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1


def effort_of(body: Mapping[str, Any]) -> str | None:
    """Return the reasoning effort a request asks for, in either API's spelling."""
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, Mapping) else body.get("reasoning_effort")
    return effort if isinstance(effort, str) else None


@lru_cache(maxsize=256)
def _operation(url: str) -> tuple[str, str | None]:
    path = urlsplit(url).path.rstrip("/")
    for pattern, operation, api in _OPERATIONS:
        if re.search(pattern, path):
            return operation, api
    return "request", None


@lru_cache(maxsize=256)
def _address(base_url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    try:
        port = parts.port
    except ValueError:
        port = None
    if port is None:
        port = {"https": 443, "http": 80}.get(parts.scheme)
    return host or None, port if host else None


@lru_cache(maxsize=256)
def bare_url(base_url: str) -> str:
    """Return an address without credentials, query and fragment, as rules see it."""
    parts = urlsplit(base_url)
    # As it is written, a port that is none and the brackets of an IPv6 address included.
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}{parts.path}"


def _attributes(body: Mapping[str, Any], api: str | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if api is not None:
        attributes[Attr.OPENAI_API_TYPE] = api
    # By what the body has, which is little of all it may have.
    for name, value in body.items():
        if name in _NUMBERS:
            attribute, kind = _NUMBERS[name]
            number = kind(value)
            if number is not None:
                attributes[attribute] = number
        elif name in _SETTINGS:
            _SETTINGS[name](attributes, value)
    return attributes


def _choice_count(attributes: dict[str, Any], value: Any) -> None:
    count = count_of(value)
    if count is not None and count != 1:
        attributes[Attr.REQUEST_CHOICE_COUNT] = count


def _reasoning(attributes: dict[str, Any], value: Any) -> None:
    _reasoning_effort(attributes, value.get("effort") if isinstance(value, Mapping) else None)


def _reasoning_effort(attributes: dict[str, Any], value: Any) -> None:
    effort = text_of(value)
    if effort is not None:
        attributes[Attr.REQUEST_REASONING_LEVEL] = effort


def _tier(attributes: dict[str, Any], value: Any) -> None:
    tier = text_of(value)
    if tier is not None and tier != "auto":
        attributes[Attr.OPENAI_REQUEST_TIER] = tier


def _output_type(attributes: dict[str, Any], value: Any) -> None:
    output = text_of(value.get("type")) if isinstance(value, Mapping) else None
    if output is not None:
        attributes[Attr.OUTPUT_TYPE] = "json" if output.startswith("json") else output


_SETTINGS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "n": _choice_count,
    "reasoning": _reasoning,
    "reasoning_effort": _reasoning_effort,
    "service_tier": _tier,
    "response_format": _output_type,
}
