"""Reading a request: which API form it wants, of which model, streamed or not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from stallwatch.testing.multipart import text_fields

Api = Literal[
    "chat",
    "completions",
    "responses",
    "embeddings",
    "images",
    "image-edits",
    "speech",
    "transcriptions",
    "runs",
    "models",
    "ledger",
    "none",
]

LEDGER_PATH = "/__stallwatch__/ledger"
RESET_PATH = "/__stallwatch__/reset"

_BASE = r"(?:/openai/deployments/(?P<deployment>[^/]+)|/openai/v1|/openai|/v1)?"
_APIS: Mapping[str, Api] = {
    "chat/completions": "chat",
    "completions": "completions",
    "responses": "responses",
    "embeddings": "embeddings",
    "images/generations": "images",
    "images/edits": "image-edits",
    "audio/speech": "speech",
    "audio/transcriptions": "transcriptions",
}
_ENDPOINT = re.compile(_BASE + rf"/(?P<endpoint>{'|'.join(_APIS)})/?")
_RUNS = re.compile(_BASE + r"/threads(?:/(?P<thread>[^/]+))?/runs/?")
_RUN = re.compile(_BASE + r"/threads/(?P<thread>[^/]+)/runs/(?P<id>[^/]+)(?P<tools>/submit_tool_outputs)?/?")
_RESPONSE = re.compile(_BASE + r"/responses/(?P<id>[^/]+)/?")
_MODELS = re.compile(_BASE + r"/models(?:/(?P<id>[^/]+))?/?")
_SECRET_HEADERS = ("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie")


class BadCall(ValueError):
    """A request that gets an HTTP error; the message names field, value and what is allowed."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def body(self) -> dict[str, object]:
        return error_body(self.status, str(self), param=self.param, code=self.code)


def error_body(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> dict[str, object]:
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def retry_count(self) -> int | None:
        value = self.headers.get("x-stainless-retry-count", "")
        return int(value) if value.isascii() and value.isdigit() else None

    def masked_headers(self) -> dict[str, str]:
        """Return the headers with every credential replaced; a scheme such as ``Bearer`` stays readable."""
        return {
            name: _masked(value) if name in _SECRET_HEADERS else value for name, value in self.headers.items()
        }


def _masked(value: str) -> str:
    scheme, space, _ = value.partition(" ")
    return f"{scheme} ***" if space and scheme.isalpha() else "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What the request asks for."""

    api: Api
    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    stored_id: str | None = None
    starting_after: int | None = None
    thread_id: str | None = None


def read_call(incoming: Incoming) -> Call:
    """Say what a request asks for; raise `BadCall` if it asks for nothing this gateway has."""
    path, method = incoming.path, incoming.method
    if path in (LEDGER_PATH, RESET_PATH):
        return Call(api="ledger")
    if match := _ENDPOINT.fullmatch(path):
        _require(method, "POST")
        deployment = match["deployment"]
        return _generation(
            _APIS[match["endpoint"]], incoming, None if deployment is None else unquote(deployment)
        )
    if match := _RUNS.fullmatch(path):
        _require(method, "POST")
        return replace(_generation("runs", incoming, None), thread_id=match["thread"])
    if match := _RUN.fullmatch(path):
        _require(method, "POST" if match["tools"] else "GET")
        body = _body(incoming) if match["tools"] else {}
        stream = body.get("stream") is True
        return Call(api="runs", stored_id=match["id"], thread_id=match["thread"], stream=stream, body=body)
    if match := _RESPONSE.fullmatch(path):
        _require(method, "GET")
        after = incoming.query.get("starting_after", "")
        return Call(
            api="responses",
            stored_id=match["id"],
            stream=incoming.query.get("stream", "").lower() == "true",
            starting_after=int(after) if after.isascii() and after.isdigit() else None,
        )
    if match := _MODELS.fullmatch(path):
        _require(method, "GET")
        return Call(api="models", model=None if match["id"] is None else unquote(match["id"]))
    raise BadCall(
        404,
        f"path: {path!r} is not served here; allowed: {', '.join(f'/v1/{name}' for name in _APIS)}, "
        f"/v1/threads/runs, /v1/threads/ID/runs, /v1/models, their /openai forms, {LEDGER_PATH}",
    )


def _require(method: str, allowed: str) -> None:
    if method != allowed:
        raise BadCall(405, f"method: {method!r} is not allowed here; allowed: {allowed}")


def _generation(api: Api, incoming: Incoming, deployment: str | None) -> Call:
    body = _body(incoming)
    # An assistant has a model of its own, so a run need not name one: then the assistant's id is the scenario.
    model = deployment or body.get("model") or (body.get("assistant_id") if api == "runs" else None)
    if not isinstance(model, str) or not model:
        raise BadCall(400, f"model: {model!r} is not allowed; allowed: the name of a scenario", param="model")
    options = body.get("stream_options")
    asked = isinstance(options, dict) and cast("dict[str, object]", options).get("include_usage") is True
    # In a form all values are texts.
    stream = body.get("stream") in (True, "true")
    if api == "speech":
        stream = True
    return Call(api=api, model=model, stream=stream, include_usage=asked, body=body)


def _body(incoming: Incoming) -> dict[str, object]:
    kind = incoming.headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):
        return text_fields(kind, incoming.body)
    try:
        parsed: object = json.loads(incoming.body)
    except ValueError:
        raise BadCall(400, "body: not JSON; allowed: a JSON object, or a form") from None
    if not isinstance(parsed, dict):
        raise BadCall(400, "body: not a JSON object; allowed: a JSON object, or a form")
    return cast("dict[str, object]", parsed)


def last_prompt(body: Mapping[str, object]) -> str:
    """Return the text the caller sent last, in whichever form."""
    value = body.get("messages") or body.get("input") or body.get("prompt")
    if isinstance(value, list) and value:
        last = cast("list[object]", value)[-1]
        value = cast("dict[str, object]", last).get("content") if isinstance(last, dict) else last
    if isinstance(value, list):
        parts = [
            cast("dict[str, object]", part) for part in cast("list[object]", value) if isinstance(part, dict)
        ]
        value = " ".join(str(part.get("text", "")) for part in parts)
    return value if isinstance(value, str) else ""


def api_key(headers: Mapping[str, str]) -> str:
    """Return the key the caller sent, for answers that quote it back."""
    return headers.get("api-key") or headers.get("authorization", "").removeprefix("Bearer ")
