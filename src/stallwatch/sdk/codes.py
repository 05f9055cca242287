"""Codes with which a response reports its own failure, as values of ``error.type``.

The code is a text of the server's choice and becomes a metric attribute, so it must be one of few and never carry
content. Codes that OpenAI documents pass. Of others only the first twenty of a process do, and only if they read like
a code: short, of lower-case letters, digits and ``_ . -``, and without what looks like an id or a key.
"""

from __future__ import annotations

import re
import threading

from stallwatch.telemetry.values import text_of

__all__ = ["code_of"]

_KNOWN = frozenset(
    {
        # openai.types.responses.ResponseError
        "bio_policy",
        "data_residency_mismatch",
        "empty_image_file",
        "failed_to_download_image",
        "image_content_policy_violation",
        "image_file_not_found",
        "image_file_too_large",
        "image_parse_error",
        "image_too_large",
        "image_too_small",
        "invalid_base64_image",
        "invalid_image",
        "invalid_image_format",
        "invalid_image_mode",
        "invalid_image_url",
        "invalid_prompt",
        "misalignment_policy_violation",
        "rate_limit_exceeded",
        "server_error",
        "unsupported_image_media_type",
        "vector_store_timeout",
        # Codes of HTTP errors that are also met inside streams
        "billing_hard_limit_reached",
        "content_filter",
        "content_policy_violation",
        "context_length_exceeded",
        "engine_overloaded",
        "insufficient_quota",
        "internal_error",
        "invalid_api_key",
        "invalid_request_error",
        "model_not_found",
        "overloaded_error",
        "service_unavailable",
        "string_above_max_length",
        "timeout",
        "unsupported_parameter",
        "unsupported_value",
    }
)

_UNKNOWN_CAP = 20

_CODE = re.compile(r"[a-z0-9_.-]{1,40}")
_ID = re.compile(
    r"\d{4}"
    r"|\d[a-z]+\d"
    r"|(?<![a-z0-9])(?:[a-z]+\d|\d+[a-z])[a-z0-9]{6,}"
    r"|^(?:req|resp|msg|chatcmpl|cmpl)[_-][a-z0-9]{12,}$"
    r"|(?<![a-z0-9])(?:sk|pk|rk|gsk|xai)[_-]"
)
"""Four digits in a row, digits between and after letters, a long word of both, the shape of a request id, or a key."""


class _Seen:
    """The unknown codes that this process has let through."""

    def __init__(self) -> None:
        self._codes: set[str] = set()
        self._lock = threading.Lock()

    def admits(self, code: str) -> bool:
        if code in self._codes:
            return True
        with self._lock:
            if len(self._codes) >= _UNKNOWN_CAP:
                return code in self._codes
            self._codes.add(code)
            return True


_seen = _Seen()


def code_of(value: object) -> str | None:
    """Return the code in lower case if it may be a metric attribute, else None."""
    text = text_of(value)
    if text is None:
        return None
    code = text.lower()
    if code in _KNOWN:
        return code
    if _CODE.fullmatch(code) is None or _ID.search(code) is not None:
        return None
    return code if _seen.admits(code) else None
