"""Which HTTP library the tests' clients stand on: the SDK's own, or a legacy one that is passed in to each of them.

The SDK of the 3.x line is built on httpx2 and takes a client of httpx as ``http_client``. With
``TESTS_HTTP_LIBRARY=httpx`` in the environment every client that tests make, in this process and in those of
``support.children``, is given one of its own, and the SDK's own classes of HTTP clients
(``openai.DefaultHttpxClient``) are the legacy ones.
"""

from __future__ import annotations

import asyncio
import os
from types import FunctionType
from typing import Any

import openai
import openai._base_client as base

__all__ = ["VARIABLE", "legacy", "use"]

VARIABLE = "TESTS_HTTP_LIBRARY"


def legacy() -> bool:
    """Whether clients of the legacy library are passed in."""
    return os.environ.get(VARIABLE) == "httpx"


def use() -> None:
    """Make every client from here on stand on the library that the environment names."""
    if legacy() and not hasattr(base.SyncAPIClient, "passes_legacy_client"):
        _use_legacy()


def _use_legacy() -> None:
    import httpx

    def defaults(options: dict[str, Any]) -> dict[str, Any]:
        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
        return {
            "timeout": httpx.Timeout(600, connect=5.0),
            "limits": limits,
            "follow_redirects": True,
            **options,
        }

    # Dropped clients close themselves, as the SDK's own do.
    class Client(httpx.Client):
        def __init__(self, **options: Any) -> None:
            super().__init__(**defaults(options))

        def __del__(self) -> None:
            if not self.is_closed:
                try:
                    self.close()
                except Exception:  # its constructor has failed half-way
                    pass

    class AsyncClient(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**defaults(options))

        def __del__(self) -> None:
            if not self.is_closed:
                try:
                    asyncio.get_running_loop().create_task(self.aclose())
                except Exception:  # no loop runs any more: nothing is left to close it on
                    pass

    names: Any = openai
    names.DefaultHttpxClient, names.DefaultAsyncHttpxClient = Client, AsyncClient
    _pass_in(base.SyncAPIClient, Client)
    _pass_in(base.AsyncAPIClient, AsyncClient)


def _pass_in(owner: Any, make: Any) -> None:
    original = owner.__init__

    def __init__(self, **options):  # type: ignore[no-untyped-def]  # noqa: N807
        if options.get("http_client") is None:
            options["http_client"] = make()
        original(self, **options)

    # Whoever tells other tools by whose functions are in the SDK's classes is to take this for the SDK's own.
    ours = FunctionType(__init__.__code__, vars(base), "__init__", None, __init__.__closure__)
    owner.__init__ = ours
    owner.passes_legacy_client = True
