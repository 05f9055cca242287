"""What a caller can see of one call, as plain data, without what differs from answer to answer."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from typing import Any

from stallwatch.testing import FaultGateway

__all__ = ["Enough", "Observed", "steady", "told_of_error", "told_of_response"]

_CHANGING = (
    (re.compile(r"gateway\d{6}"), "gatewayN"),
    (re.compile(r"(created(?:_at)?['\"]?[:=] ?)\d+"), r"\1T"),
    (re.compile(r"(127\.0\.0\.1:)\d+"), r"\1PORT"),
    (re.compile(r" at 0x[0-9a-f]+"), " at 0xADDRESS"),
)


def steady(text: str) -> str:
    """Return a text without the numbers, times and addresses that differ each time."""
    for pattern, instead in _CHANGING:
        text = pattern.sub(instead, text)
    return text


def _plain(value: Any) -> str:
    """Return a value with its class; models as all they hold, the fields that were set and the vendor's extras."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if hasattr(value, "model_dump"):
        with_sets = (
            f"{value.model_dump(mode='python', warnings=False)!r} set={sorted(value.model_fields_set)!r}"
        )
        return steady(f"{kind} {with_sets} request={getattr(value, '_request_id', None)!r}")
    return steady(f"{kind} {value!r}")


class Enough(Exception):
    """The reader's own, out of the body of its loop: it wants no more."""


@dataclass
class Observed:
    """One call: what came, in order, how it ended, and what the server got."""

    model: str = field(compare=False)
    seen: list[str] = field(default_factory=list)
    """What came, in order."""
    facts: list[str] = field(default_factory=list)
    """What the objects said of themselves."""
    error: dict[str, str] | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    raised: BaseException | None = field(default=None, compare=False, repr=False)
    wanted: int | None = field(default=None, compare=False)
    """After how many items the reader has enough."""

    def note(self, value: Any) -> None:
        """Add what the caller has just got."""
        self.seen.append(_plain(value).replace(self.model, "MODEL"))
        if len(self.seen) == self.wanted:
            raise Enough

    def say(self, fact: Any) -> None:
        """Add what an object says of itself."""
        self.facts.append(_plain(fact).replace(self.model, "MODEL"))

    def fail(self, error: BaseException) -> None:
        """Keep the exception that ended the call."""
        self.error = told_of_error(error)
        # The frames would keep the stream.
        self.raised = error.with_traceback(None)

    def ledger(self, gateway: FaultGateway) -> None:
        """Add what the gateway got for this model, headers and all."""
        self.requests += [
            {
                "asked": steady(f"{request.method} {request.path} {request.query_names}"),
                "headers": {
                    name: value
                    for name, value in request.headers.items()
                    # Of a form the boundary is random.
                    if name not in ("host", "content-type", "content-length") or "form-data" not in value
                },
                "retry": request.retry_count,
            }
            for request in gateway.ledger().for_model(self.model)
        ]
        for request in self.requests:
            request["headers"].pop("host", None)
            if "content-type" not in request["headers"]:
                request["headers"].pop("content-length", None)


_OF_ERRORS = ("message", "code", "param", "type", "status_code", "body", "request_id", "errno")


def told_of_error(error: BaseException) -> dict[str, str]:
    """Return what an ``except`` clause can see of an error."""
    told = {
        "class": f"{type(error).__module__}.{type(error).__qualname__}",
        "args": repr(error.args),
        "text": str(error),
        "cause": _name(error.__cause__),
        "cause's text": str(error.__cause__),
        "suppressed": str(error.__suppress_context__),
        "formatted": "".join(traceback.format_exception_only(error)),
        "fields": repr(sorted(vars(error))),
    }
    told |= {name: repr(getattr(error, name, "<none>")) for name in _OF_ERRORS}
    # The request of a transport's error is a property that raises where there is none.
    request = vars(error).get("request") or vars(error).get("_request")
    told["request"] = "" if request is None else f"{request.method} {request.url}"
    response = vars(error).get("response")
    if response is not None:
        told["response"] = told_of_response(response)
    return {name: steady(value) for name, value in told.items()}


def _name(error: BaseException | None) -> str:
    return "" if error is None else f"{type(error).__module__}.{type(error).__qualname__}"


_OF_RESPONSES = (
    "status_code",
    "reason_phrase",
    "http_version",
    "is_closed",
    "is_stream_consumed",
    "is_success",
    "num_bytes_downloaded",
    "encoding",
    "charset_encoding",
    "default_encoding",
    "history",
)


def told_of_response(response: Any) -> str:
    """Return what a caller can see of an HTTP response."""
    facts = {name: getattr(response, name) for name in _OF_RESPONSES}
    facts["headers"] = sorted(response.headers.multi_items())
    facts["request"] = (
        response.request.method,
        str(response.request.url),
        sorted(response.request.headers.keys()),
    )
    facts["class"] = f"{type(response).__module__}.{type(response).__qualname__}"
    facts["fields"] = sorted(vars(response))
    facts["extensions"] = sorted(response.extensions)
    return steady(repr(facts))
