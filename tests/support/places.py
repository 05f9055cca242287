"""Where tests connect to and how they run: a gateway, plain or TLS, clients for it, and the event loops."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import openai
import trustme
import uvloop
from openai._constants import DEFAULT_CONNECTION_LIMITS

from stallwatch.testing import FaultGateway

__all__ = ["LOOPS", "MESSAGES", "Place", "eventually", "eventually_async", "places", "pool_of", "run_on"]

MESSAGES: Any = [{"role": "user", "content": "Tell me a story."}]

_T = TypeVar("_T")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


@dataclass(frozen=True)
class Place:
    """A running gateway and the trust a client needs for it."""

    gateway: FaultGateway
    tls: bool

    @property
    def base_url(self) -> str:
        """What a client wants as ``base_url``."""
        return self.gateway.base_url

    def trust(self) -> ssl.SSLContext | bool:
        """What an HTTP client wants as ``verify``."""
        if not self.tls:
            # Not used, and loading the system's authorities takes longer than most tests.
            return False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _authority().configure_trust(context)
        return context

    def write_authority(self, directory: Path) -> Path:
        """Write the certificate authority as a file, for another process."""
        path = directory / "authority.pem"
        _authority().cert_pem.write_to_path(str(path))
        return path

    def client(self, *, connections: int | None = None, **options: Any) -> openai.OpenAI:
        """A synchronous client without retries; ``connections`` caps its pool."""
        return openai.OpenAI(
            http_client=openai.DefaultHttpxClient(**self._http(connections)), **self._own(options)
        )

    def async_client(self, *, connections: int | None = None, **options: Any) -> openai.AsyncOpenAI:
        """An asynchronous client without retries; ``connections`` caps its pool."""
        return openai.AsyncOpenAI(
            http_client=openai.DefaultAsyncHttpxClient(**self._http(connections)), **self._own(options)
        )

    def _http(self, connections: int | None) -> dict[str, Any]:
        limits = DEFAULT_CONNECTION_LIMITS
        if connections is not None:
            limits = type(limits)(max_connections=connections, max_keepalive_connections=connections)
        return {"verify": self.trust(), "limits": limits}

    def _own(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"base_url": self.base_url, "api_key": "sk-test", "max_retries": 0, "timeout": 30.0, **options}


@contextmanager
def places(*kinds: str) -> Iterator[list[Place]]:
    """Start one gateway for each of the kinds ``plain`` and ``tls``."""
    started: list[Place] = []
    try:
        for kind in kinds:
            context = None
            if kind == "tls":
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                _authority().issue_cert("127.0.0.1").configure_cert(context)
            started.append(Place(FaultGateway(ssl_context=context).start(), kind == "tls"))
        yield started
    finally:
        for place in started:
            place.gateway.stop()


def run_on(loop: str, story: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on a new loop of this kind."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(story)


def pool_of(client: Any) -> tuple[int, int]:
    """The requests and the connections in a client's pool."""
    pool = client._client._transport._pool
    return len(pool._requests), len(pool.connections)


def eventually(condition: Callable[[], object], within: float = 2.0) -> None:
    """Wait until the condition holds; fail when it does not within so many seconds."""
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.005)


async def eventually_async(condition: Callable[[], object], within: float = 2.0) -> None:
    """Do the same without blocking the loop."""
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        await asyncio.sleep(0.005)
