"""The request of a streamed answer, to be sent once more below the same run and the same response.

It goes through the client's own ``request``, so that authentication, redirects, status errors and the SDK's retries are
its own. Client and response are held weakly, and the options only until something has been delivered: an open stream
must not keep its prompt.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from openai._base_client import AsyncAPIClient

from stallwatch.runtime.inflight import InFlight
from stallwatch.sdk.attempts import note_transport_timeout
from stallwatch.sdk.current import executing

__all__ = ["Resend", "encoding_of"]

_ADOPTED = ("status_code", "headers", "extensions", "history", "default_encoding", "request")
"""What a response takes over from the one whose body it reads on from."""


class Resend:
    """See ``runtime.splicing.Again``."""

    __slots__ = ("_attached", "_client", "_encoding", "_options", "_response", "_run")

    def __init__(
        self,
        run: InFlight,
        client: Any,
        options: Any,
        response: Any,
        encoding: str,
        attached: Callable[[], bool],
    ) -> None:
        self._attached = attached
        self._run = run
        self._client = weakref.ref(client)
        self._response = weakref.ref(response)
        self._options = options
        self._encoding = encoding

    @property
    def replayable(self) -> bool:
        """Whether client and response are still there, and the body is one that can be sent twice."""
        held = self._client() is not None and self._response() is not None
        # With the patches gone it would be sent unguarded.
        return held and self._attached() and not self._run.call.uploads

    def reads_raw(self, response: Any) -> bool:
        """Tell whether both answers are compressed in the same way, or not at all."""
        return encoding_of(response) == self._encoding

    def send(self) -> Any:
        """Send the request and return the HTTP library's response, or an awaitable of it."""
        client, response, run = self._client(), self._response(), self._run
        if client is None or response is None:
            raise RuntimeError("the client is gone")
        before = run.tracker.attempts
        options = self._options.model_copy() if hasattr(self._options, "model_copy") else self._options.copy()
        options.max_retries = max(run.retries.allowed - before, 0)
        request = _send_async if _is_async(client) else _send
        return request(run, client, type(response), options, before)

    def adopt(self, response: Any) -> bool:
        """Make the user's response what ``response`` is; False when only one of the two is compressed."""
        mine = self._response()
        if mine is None or (self._encoding and not self.reads_raw(response)):
            return False
        for name in _ADOPTED:
            setattr(mine, name, getattr(response, name))
        mine.__dict__.pop("_elapsed", None)
        return True


def _send(run: InFlight, client: Any, kind: type, options: Any, before: int) -> Any:
    active = run.recorders.activate(run)
    try:
        with executing(run, before=before):
            return _bare(client.request(kind, options, stream=True))
    except Exception as error:
        note_transport_timeout(run, error.__cause__)
        raise
    finally:
        run.recorders.deactivate(active)


async def _send_async(run: InFlight, client: Any, kind: type, options: Any, before: int) -> Any:
    active = run.recorders.activate(run)
    try:
        with executing(run, before=before):
            return _bare(await client.request(kind, options, stream=True))
    except Exception as error:
        note_transport_timeout(run, error.__cause__)
        raise
    finally:
        run.recorders.deactivate(active)


def _bare(result: Any) -> Any:
    # Asked for as a raw response, the SDK's own is around it.
    return getattr(result, "http_response", result)


def _is_async(client: Any) -> bool:
    return isinstance(client, AsyncAPIClient)


def encoding_of(response: Any) -> str:
    """Return how a body is compressed; empty when it is not."""
    given = response.headers.get("content-encoding")
    if given is None:
        return ""
    encoding = str(given).strip().lower()
    return "" if encoding == "identity" else encoding
