"""What the API says in an error object: in the body of an HTTP error, or in the first event of a stream.

Only codes, types and ids are taken, and only where they are short identifiers; messages may quote content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from stallwatch.core.classify import Failure

__all__ = ["details_of", "failure_in", "failure_of_frame", "id_of", "mappings_of", "member"]

_CODE = re.compile(r"[A-Za-z0-9._-]{1,48}")
_MARKS = (b'"error"', b"response.failed")
"""One of these is in every error frame, and in next to no other first event."""
_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


def failure_in(event: bytes) -> Failure | None:
    """Return the failure that the first event of a stream tells of, if it is one."""
    if event.strip() == b"[DONE]":
        return Failure(body="empty")
    if not any(mark in event for mark in _MARKS):
        return None
    try:
        payload = json.loads(event)
    except (ValueError, RecursionError):
        # No JSON, or nested too deep for the parser.
        return None
    return failure_of_frame(payload) if isinstance(payload, Mapping) else None


def failure_of_frame(payload: Mapping[str, Any]) -> Failure | None:
    """Return the facts of an error frame, given an event's JSON object; None for any other event, and never raises.

    Error frames are a truthy ``error`` (also beside a choices list), the ``error`` and ``response.failed`` events of
    Responses, and ``object: error`` of servers that send the bare error object.
    """
    try:
        error, event = payload.get("error"), payload.get("type")
        if not error:
            if event == "response.failed":
                error = payload["response"].get("error")
            elif event != "error" and payload.get("object") != "error":
                return None
        code, kind, request_id = details_of(*mappings_of(error), payload)
        return Failure(
            code=code or _short(_CODE, error),
            type=None if kind in ("error", "response.failed") else kind,
            request_id=request_id,
            in_stream=True,
        )
    except Exception:
        return None


def mappings_of(body: object) -> list[Mapping[str, Any]]:
    """Return the error objects in an error's body, innermost first; some vendors wrap them in a list."""
    found: list[Mapping[str, Any]] = []
    for _ in range(3):
        if isinstance(body, list) and body:
            body = body[0]
        if not isinstance(body, Mapping):
            break
        found.insert(0, body)
        body = member(body, "error")
    return found


def details_of(*sources: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Return code, type and request id, each from the first source that has it as an identifier."""
    code = kind = request_id = None
    for source in sources:
        # A number with some vendors, a word with others.
        status = member(source, "status")
        number, word = (None, status) if isinstance(status, str) else (status, None)
        code = code or _short(_CODE, member(source, "code")) or _short(_CODE, member(source, "status_code"))
        code = code or _short(_CODE, number)
        kind = kind or _short(_CODE, member(source, "type")) or _short(_CODE, word)
        request_id = request_id or id_of(member(source, "request_id"))
    return code, kind, request_id


def id_of(value: object) -> str | None:
    """Return ``value`` if it is an id as servers give them, else None."""
    return _short(_ID, value)


def _short(shape: re.Pattern[str], value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000:
        value = str(int(value))
    found = shape.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else found[0]


def member(owner: Any, name: str) -> object:
    """Return a member of a mapping, None where there is none; never raises."""
    try:
        return owner.get(name)
    except Exception:
        return None
