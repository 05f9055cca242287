"""What a request asks for, read from the SDK's options into neutral words; never its content."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from stallwatch.catalogue import Attr
from stallwatch.sdk.providers import provider_of
from stallwatch.sdk.values import count_of, integer_of, real_of, text_of
from stallwatch.telemetry.recorder import Call

__all__ = ["bare_url", "base_url_of", "call_of", "choices_of", "effort_of"]

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

_NUMBERS: tuple[tuple[str, str, Callable[[object], float | None]], ...] = (
    ("temperature", Attr.REQUEST_TEMPERATURE, real_of),
    ("top_p", Attr.REQUEST_TOP_P, real_of),
    ("frequency_penalty", Attr.REQUEST_FREQUENCY_PENALTY, real_of),
    ("presence_penalty", Attr.REQUEST_PRESENCE_PENALTY, real_of),
    ("max_tokens", Attr.REQUEST_MAX_TOKENS, count_of),
    ("max_completion_tokens", Attr.REQUEST_MAX_TOKENS, count_of),
    ("max_output_tokens", Attr.REQUEST_MAX_TOKENS, count_of),
    ("seed", Attr.REQUEST_SEED, integer_of),
)


def call_of(client: Any, options: Any, *, stream: bool) -> Call:
    """Return the neutral description of a request."""
    body = _body(options)
    operation, api = _operation(str(getattr(options, "url", "")))
    address, port = _address(str(getattr(client, "base_url", "")))
    return Call(
        operation=operation,
        provider=provider_of(client, address or ""),
        model=text_of(body.get("model")),
        stream=stream,
        server_address=address,
        server_port=port,
        attributes=_attributes(body, api),
        uploads=bool(getattr(options, "files", None) or getattr(options, "content", None)),
    )


def base_url_of(client: Any) -> str:
    """Return a client's base URL without credentials, query and fragment."""
    return bare_url(str(getattr(client, "base_url", "")))


def choices_of(options: Any) -> int:
    """Return how many choices the answer will have."""
    count = _body(options).get("n")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1


def effort_of(options: Any) -> str | None:
    """Return the reasoning effort a request asks for, in either API's spelling."""
    body = _body(options)
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, Mapping) else body.get("reasoning_effort")
    return effort if isinstance(effort, str) else None


def _body(options: Any) -> Mapping[str, Any]:
    body = getattr(options, "json_data", None)
    return body if isinstance(body, Mapping) else {}


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
    host = parts.hostname or ""
    port = "" if ":" not in parts.netloc.rpartition("@")[2] else ":" + parts.netloc.rpartition(":")[2]
    return f"{parts.scheme}://{host}{port}{parts.path}"


def _attributes(body: Mapping[str, Any], api: str | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if api is not None:
        attributes[Attr.OPENAI_API_TYPE] = api
    for name, attribute, kind in _NUMBERS:
        value = kind(body.get(name))
        if value is not None:
            attributes[attribute] = value
    count = count_of(body.get("n"))
    if count is not None and count != 1:
        attributes[Attr.REQUEST_CHOICE_COUNT] = count
    reasoning = body.get("reasoning")
    effort = text_of(
        reasoning.get("effort") if isinstance(reasoning, Mapping) else body.get("reasoning_effort")
    )
    if effort is not None:
        attributes[Attr.REQUEST_REASONING_LEVEL] = effort
    tier = text_of(body.get("service_tier"))
    if tier is not None and tier != "auto":
        attributes[Attr.OPENAI_REQUEST_TIER] = tier
    wanted = body.get("response_format")
    output = text_of(wanted.get("type")) if isinstance(wanted, Mapping) else None
    if output is not None:
        attributes[Attr.OUTPUT_TYPE] = "json" if output.startswith("json") else output
    return attributes
