"""What can be said of a client's transport before anything is sent, and that asking hurts nothing."""

from __future__ import annotations

import importlib.util
from typing import Any

import openai
import pytest

from stallwatch.runtime.interrupt_proof import interrupt_proof
from support.connects import http

LIBRARIES = [name for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
HTTP2 = pytest.mark.skipif(importlib.util.find_spec("h2") is None, reason="h2 is not installed")
KINDS = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


class Wrapping(http.BaseTransport):  # type: ignore[name-defined,misc]
    """A user's transport around the library's."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def handle_request(self, request: Any) -> Any:
        return self.inner.handle_request(request)


def _client(is_async: bool, library: Any = http, **options: Any) -> Any:
    options = {"verify": False, **options} if "transport" not in options else options
    if is_async:
        return openai.AsyncOpenAI(api_key="sk-test", http_client=library.AsyncClient(**options))
    return openai.OpenAI(api_key="sk-test", http_client=library.Client(**options))


@KINDS
@pytest.mark.parametrize(
    "options", [{}, {"proxy": "http://127.0.0.1:9"}, {"mounts": {}}], ids=["plain", "proxy", "mounts"]
)
def test_a_connection_of_one_s_own_is_proven(is_async: bool, options: dict[str, Any]) -> None:
    told = interrupt_proof(_client(is_async, **options))
    assert (told.proof, told.transport, told.is_async) == ("proven", "HTTP/1.1", is_async)


@KINDS
@pytest.mark.parametrize("name", LIBRARIES)
def test_either_library_s_own_client_can_be_asked_about(name: str, is_async: bool) -> None:
    library = importlib.import_module(name)
    kind = library.AsyncClient if is_async else library.Client
    told = interrupt_proof(kind(verify=False))
    assert (told.proof, told.transport, told.is_async) == ("proven", "HTTP/1.1", is_async)


@KINDS
def test_a_transport_without_a_pool_is_not_proven(is_async: bool) -> None:
    told = interrupt_proof(_client(is_async, transport=http.MockTransport(lambda request: None)))
    assert (told.proof, told.transport, told.is_async) == (
        "unproven" if is_async else "none",
        "custom",
        is_async,
    )


def test_a_wrapped_transport_is_looked_into() -> None:
    told = interrupt_proof(_client(False, transport=Wrapping(http.HTTPTransport(verify=False))))
    assert (told.proof, told.transport) == ("proven", "HTTP/1.1")


def test_the_transport_of_the_base_url_is_the_one_that_counts() -> None:
    mounts = {"all://api.openai.com": http.MockTransport(lambda request: None)}
    assert interrupt_proof(_client(False, mounts=mounts)).transport == "custom"


@pytest.mark.parametrize("thing", [None, 3, object(), "client"], ids=repr)
def test_what_is_no_client_raises_nothing(thing: object) -> None:
    told = interrupt_proof(thing)
    assert (told.proof, told.transport) == ("none", "unknown")
    assert told.reason


@HTTP2
@KINDS
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_stream_of_http2_is_proven_where_it_can_be_reset(name: str, is_async: bool) -> None:
    told = interrupt_proof(_client(is_async, importlib.import_module(name), http2=True))
    assert (told.proof, told.transport, told.is_async) == ("proven", "HTTP/2", is_async)
