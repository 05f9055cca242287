"""``python -m matrix.contract``: is everything that stallwatch attaches to, or reads, in the SDK that is installed?

The seams are looked for by name and by the parameters they are called with. What is read besides (private names of
streams, responses and connection pools) is looked for on a real stream, bare, sync and async. Nothing is patched.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import openai
from openai._models import FinalRequestOptions

from stallwatch.sdk.seams import survey
from stallwatch.testing import FaultGateway

__all__ = ["PARAMETERS", "Missing", "missing"]

PARAMETERS: dict[str, tuple[str, ...]] = {
    "request": ("cast_to", "options", "stream"),
    "_build_request": ("options", "retries_taken"),
    "_should_retry": ("response",),
    "_calculate_retry_timeout": ("remaining_retries", "options", "response_headers"),
    "_sleep_for_retry": ("retries_taken", "max_retries", "options", "response"),
    "_retry_request": ("options", "cast_to", "retries_taken", "stream", "stream_cls", "response_headers"),
    "_process_response": ("options", "response"),
    "__init__": ("response",),
}
"""By the name of the seam; ``_retry_request`` is the one of releases before 1.109."""

TRACED = (
    "connection.connect_tcp.started",
    "connection.connect_tcp.complete",
    "http11.send_request_headers.started",
    "http11.receive_response_headers.started",
    "http11.receive_response_headers.complete",
    "http11.response_closed.started",
)
"""The events of the HTTP library's ``trace`` extension that are listened to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Something the SDK or its HTTP library lacks, and what that switches off."""

    what: str
    carries: str

    def __str__(self) -> str:
        return f"{self.what} is gone, and with it: {self.carries}"


def missing() -> Iterator[Missing]:
    """Yield what is gone from the installed SDK."""
    yield from _seams()
    yield from _options()
    with FaultGateway() as gateway:
        for kind, play in (
            ("sync", lambda: list(_live(gateway))),
            ("async", lambda: asyncio.run(_live_async(gateway))),
        ):
            try:
                yield from play()
            except Exception as error:
                what = f"a healthy stream ({kind}; {type(error).__name__}: {error})"
                yield Missing(what=what, carries="whatever is read from one")


def _seams() -> Iterator[Missing]:
    for seam in survey([]):
        name = f"{seam.owner.__name__}.{seam.name}"
        if not seam.present:
            yield Missing(what=name, carries=seam.carries)
            continue
        known = inspect.signature(seam.owner.__dict__[seam.name]).parameters
        for parameter in PARAMETERS[seam.name]:
            if parameter not in known:
                yield Missing(what=f"the parameter {parameter!r} of {name}", carries=seam.carries)


def _options() -> Iterator[Missing]:
    options = FinalRequestOptions.construct(method="post", url="/", json_data={"model": "m"})
    for name, carries in (
        ("json_data", "the model on spans, rules by model, hidden reasoning"),
        ("url", "the operation on spans"),
        ("files", "uploads are told from what can be sent twice"),
        ("max_retries", "one count of the retries of the SDK and of stallwatch"),
    ):
        if not hasattr(options, name):
            yield Missing(what=f"FinalRequestOptions.{name}", carries=carries)
    if not hasattr(options, "model_copy") and not hasattr(options, "copy"):
        yield Missing(what="FinalRequestOptions.model_copy", carries="retries after the headers")


_REQUEST: dict[str, Any] = {
    "model": "healthy:tokens=3,gap=0",
    "messages": [{"role": "user", "content": "Hello."}],
    "stream": True,
}


def _options_of(gateway: FaultGateway) -> dict[str, Any]:
    return {"base_url": gateway.base_url, "api_key": "sk-test", "max_retries": 0}


def _live(gateway: FaultGateway) -> Iterator[Missing]:
    seen: list[str] = []
    with openai.OpenAI(**_options_of(gateway)) as client:
        _listen(client, lambda name, _: seen.append(name))
        with client.chat.completions.create(**_REQUEST) as stream:
            yield from _read(client, stream, is_async=False)
            if hasattr(stream, "_iterator"):
                stream._iterator, theirs = iter(["a mark"]), stream._iterator
                if next(stream, None) != "a mark":
                    yield Missing(
                        what="reading through Stream._iterator", carries="chunks, sync: stalls, first token"
                    )
                stream._iterator = theirs
            list(stream)
    yield from _events(seen, "sync")


async def _live_async(gateway: FaultGateway) -> list[Missing]:
    seen: list[str] = []

    async def listen(name: str, _: object) -> None:
        seen.append(name)

    async def mark() -> Any:
        yield "a mark"

    found: list[Missing] = []
    async with openai.AsyncOpenAI(**_options_of(gateway)) as client:
        _listen(client, listen)
        async with await client.chat.completions.create(**_REQUEST) as stream:
            found += _read(client, stream, is_async=True)
            if hasattr(stream, "_iterator"):
                stream._iterator, theirs = mark(), stream._iterator
                if await anext(stream, None) != "a mark":  # type: ignore[arg-type]
                    what = "reading through AsyncStream._iterator"
                    found.append(Missing(what=what, carries="chunks, async: stalls, first token"))
                stream._iterator = theirs
            async for _ in stream:
                pass
    return [*found, *_events(seen, "async")]


def _listen(client: Any, listen: Callable[[str, Any], Any]) -> None:
    """Put a listener into every request, as the patches do: by ``_build_request``."""
    build = client._build_request

    def built(*args: Any, **kwargs: Any) -> Any:
        request = build(*args, **kwargs)
        request.extensions["trace"] = listen
        request.extensions["a mark"] = client
        return request

    client._build_request = built


def _events(seen: list[str], kind: str) -> Iterator[Missing]:
    for event in TRACED:
        if event not in seen:
            carries = "waits until the headers are bounded and told by their part"
            yield Missing(what=f"the trace event {event} ({kind})", carries=carries)


def _read(client: Any, stream: Any, *, is_async: bool) -> list[Missing]:
    """Return what is gone of what is read from an open stream."""
    kind = "async" if is_async else "sync"
    bytes_, ends = f"bytes, {kind}: keepalives, closes", f"ending a read, {kind}"
    opening = f"waits until the headers, {kind}"
    readings: tuple[tuple[str, str, Callable[[], object]], ...] = (
        ("Stream._iterator", f"chunks, {kind}: stalls, first token, gaps", lambda: stream._iterator),
        ("Stream.response", f"chunks, {kind}: stalls, first token, gaps", lambda: stream.response),
        ("Response.stream, to be set", bytes_, lambda: _can_be_set(stream.response, "stream")),
        ("Response.is_stream_consumed", bytes_, lambda: not stream.response.is_stream_consumed),
        ("Response.status_code", "the status on spans", lambda: stream.response.status_code == 200),
        (
            "Request.extensions, on the way to Response.request",
            f"attempts, {kind}: every guard of an answer",
            lambda: stream.response.request.extensions["a mark"] is client,
        ),
        (
            'Request.extensions["timeout"], a dict of four',
            opening,
            lambda: (
                {"connect", "read", "write", "pool"} <= set(stream.response.request.extensions["timeout"])
            ),
        ),
        ('Response.extensions["network_stream"]', ends, lambda: _network(stream)),
        ('Response.extensions["http_version"]', ends, lambda: stream.response.extensions["http_version"]),
        ("the socket of the network stream", ends, lambda: _can_be_shut_down(_network(stream))),
        ("the network stream's read, to be set", ends, lambda: _can_be_set(_network(stream), "read")),
        ("Client._transport_for_url", opening, lambda: _pool(client, stream)),
        ("Pool._requests", opening, lambda: [entry.request for entry in _pool(client, stream)._requests]),
        ("Pool._network_backend", opening, lambda: _pool(client, stream)._network_backend.connect_tcp),
        ("client.max_retries", "one count of all retries", lambda: client.max_retries == 0),
        ("client.base_url", "the provider on spans, rules by base URL", lambda: str(client.base_url)),
    )
    return [Missing(what=what, carries=carries) for what, carries, reading in readings if not _holds(reading)]


def _holds(reading: Callable[[], object]) -> bool:
    try:
        return reading() not in (None, False, "")
    except Exception:
        return False


def _network(stream: Any) -> Any:
    return stream.response.extensions["network_stream"]


def _pool(client: Any, stream: Any) -> Any:
    return client._client._transport_for_url(stream.response.request.url)._pool


def _can_be_set(owner: Any, name: str) -> bool:
    present = getattr(owner, name)
    was_own = name in owner.__dict__
    setattr(owner, name, present)
    if not was_own:
        delattr(owner, name)
    return True


def _can_be_shut_down(network: Any) -> bool:
    found = network.get_extra_info("socket")
    return isinstance(found, socket.socket) or callable(getattr(found, "shutdown", None))


def main() -> int:
    """Tell what is gone; 1 when something is."""
    found = list(missing())
    for each in found:
        print(f"openai {openai.__version__}: {each}")
    if not found:
        seams = ", ".join(f"{seam.owner.__name__}.{seam.name}" for seam in survey([]))
        print(f"openai {openai.__version__} has every seam: {seams}; and all else that is read")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
