"""What an exception is called in telemetry, and what it says of the attempt it ended.

Messages of foreign exceptions may quote keys, prompts and URLs, so they are never read. Of an exception only its
class, its status, short codes and ids are taken, and of a response's headers two.

Exceptions are told by the names of their classes, because which HTTP library is there depends on the SDK's release,
and importing one to ask would fail where it is not. What happened may lie several causes deep: the SDK's connection
error stands on the library's, that on its transport's, and only at the bottom is the socket's own. The walk down
follows these rules:

* Causes are followed always. A context is followed only while nothing certain is known, and below a connection error
  only from another: further down may lie an earlier attempt, as old releases of the SDK retry inside their ``except``.
* ``from None`` hides nothing below a connection error: the transport's pool raises the socket's error that way.
* Among several transport codes the most telling wins, the upper one between equals.
* A cancel counts at the top and below errors that say nothing, but not below a transport's error: the libraries' own
  timeouts are made of cancels. A bare ``TimeoutError`` that stands on a cancel is a scope of the user's that expired.
"""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass
from typing import Any

from stallwatch.core.classify import Failure, Verdict, verdict_of
from stallwatch.errors import EarlierRouteError, RunCancelledError, StallwatchError, StreamTimeoutError
from stallwatch.runtime.error_frames import details_of, id_of, mappings_of, member

__all__ = ["classify", "describe", "failure_of"]

_HTTP_LIBRARIES = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "h11", "h2", "anyio"})

_LEVELS = 4
"""Causes looked at below the error itself: as many as lie between the SDK's error and the socket's in asyncio."""

_VAGUE, _PLACED, _CERTAIN = 1, 2, 3
"""How telling a transport code is: that the connection failed, at what it failed, or how."""

_BY_CLASS: dict[tuple[str, str], tuple[int, str]] = {
    ("openai", "APITimeoutError"): (_CERTAIN, "ETIMEDOUT"),
    ("openai", "APIConnectionError"): (_VAGUE, "CONNECTION"),
    ("ssl", "SSLError"): (_CERTAIN, "TLS"),
    ("builtins", "TimeoutError"): (_CERTAIN, "ETIMEDOUT"),
    ("builtins", "ConnectionResetError"): (_CERTAIN, "ECONNRESET"),
    ("builtins", "ConnectionRefusedError"): (_CERTAIN, "ECONNREFUSED"),
    ("builtins", "ConnectionAbortedError"): (_CERTAIN, "ECONNABORTED"),
    ("builtins", "BrokenPipeError"): (_CERTAIN, "EPIPE"),
    ("builtins", "ConnectionError"): (_VAGUE, "CONNECTION"),
}
_BY_LIBRARY_CLASS: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("ConnectTimeout", "ReadTimeout", "WriteTimeout"), (_CERTAIN, "ETIMEDOUT")),
    **dict.fromkeys(("PoolTimeout", "TimeoutException"), (_CERTAIN, "ETIMEDOUT")),
    **dict.fromkeys(("RemoteProtocolError", "ClientPayloadError"), (_CERTAIN, "REMOTE_PROTOCOL")),
    "DecodingError": (_CERTAIN, "REMOTE_PROTOCOL"),
    "LocalProtocolError": (_CERTAIN, "LOCAL_PROTOCOL"),
    "ProtocolError": (_CERTAIN, "PROTOCOL"),
    "ServerDisconnectedError": (_CERTAIN, "ECONNRESET"),
    "ConnectError": (_PLACED, "CONNECT"),
    "ReadError": (_PLACED, "READ"),
    "WriteError": (_PLACED, "WRITE"),
    "ProxyError": (_PLACED, "PROXY"),
    **dict.fromkeys(("TransportError", "NetworkError", "ClientConnectionError"), (_VAGUE, "CONNECTION")),
    **dict.fromkeys(("BrokenResourceError", "ClosedResourceError", "EndOfStream"), (_VAGUE, "CONNECTION")),
}

_NETWORK_ERRNO = re.compile(
    r"E(ADDRNOTAVAIL|CONN(ABORTED|REFUSED|RESET)|(HOST|NET)(DOWN|UNREACH)|NETRESET|NOTCONN|PIPE|SHUTDOWN|TIMEDOUT)"
)
"""Numbers that say by themselves that a connection failed; others do so with a connection error only."""

_RESOLVER_CODES = {value: name for name, value in vars(socket).items() if name.startswith("EAI_")}


_SAYS = {"true": True, "false": False}
"""Spelled as the SDK reads it."""


def describe(error: BaseException, status: int | None) -> tuple[str, str, int | None]:
    """Return the ``error.type``, a text without content, and the HTTP status of ``error``.

    The HTTP libraries' own classes are folded into the SDK's names, because which of the two surfaces depends on the
    SDK's release and not on what happened.
    """
    name = _name(error)
    if isinstance(error, StallwatchError):
        return name, str(error), status
    found = getattr(error, "status_code", None)
    if isinstance(found, int):
        return name, f"{name} (HTTP {found})", found
    return name, name, status


def _name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__.partition(".")[0] in _HTTP_LIBRARIES:
        return "APITimeoutError" if "Timeout" in kind.__name__ else "APIConnectionError"
    return kind.__name__


def classify(error: BaseException | Failure) -> Verdict:
    """Tell what sort of failure this is, and whether trying again may help.

    Takes any exception, of the SDK, of its HTTP library or of stallwatch, or the facts as `Failure`. Never raises, and
    reads no messages. Whether a retry follows is another matter: that depends on the run, too.
    """
    return verdict_of(failure_of(error) if isinstance(error, BaseException) else error)


def failure_of(error: BaseException, *, in_stream: bool = False) -> Failure:
    """Return the facts that ``error`` and its causes tell; never raises.

    ``in_stream`` says that it was raised while a stream was read that had begun with a success status, which makes an
    error of the API an error frame.
    """
    told = _Told()
    seen: set[int] = set()
    level: BaseException | None = error
    try:
        for _ in range(_LEVELS + 1):
            level = _first_of(level)
            if level is None or id(level) in seen:
                break
            seen.add(id(level))
            told.note(level)
            level = told.below(level)
    except Exception:
        # A class that lies about itself; what the levels above have told still counts.
        pass
    return told.failure(in_stream=in_stream)


class _Told:
    """What the levels of an exception have told so far."""

    def __init__(self) -> None:
        self.cancelled = False
        self.stalled = False
        self.weight = 0
        self.spoke = False
        self.transport: str | None = None
        self.answer: _Answer | None = None

    def note(self, error: BaseException) -> None:
        """Take what one level says."""
        kind = type(error)
        if issubclass(kind, StreamTimeoutError):
            self.stalled = True
        elif issubclass(kind, RunCancelledError) or (self._knows_nothing() and _is_cancel(error)):
            self.cancelled = True
        elif issubclass(kind, Exception):
            names = _names_of(kind)
            weight, transport = _transport_of(error, names, below=self.weight > 0)
            self.spoke = weight > 0
            if weight > self.weight:
                self.weight, self.transport = weight, transport
            if self.answer is None:
                self.answer = _answer_of(error, names)

    def below(self, error: BaseException) -> BaseException | None:
        """Return the next level, or None when what lies below would not belong to it."""
        cause = _read(error, "__cause__")
        if isinstance(cause, EarlierRouteError):
            # What lies below was said by another route.
            return None
        if cause is not None:
            return cause if isinstance(cause, BaseException) else None
        hidden = not self.spoke if self.weight else _read(error, "__suppress_context__")
        if hidden or self.answer is not None or self.weight == _CERTAIN:
            return None
        context = _read(error, "__context__")
        return context if isinstance(context, BaseException) else None

    def failure(self, *, in_stream: bool) -> Failure:
        """Return all of it."""
        answer = self.answer
        if self.stalled or self.cancelled or answer is None:
            return Failure(cancelled=self.cancelled, stalled=self.stalled, transport=self.transport)
        # Behind an answer that was found below a connection error, the connection was fine.
        certain = self.weight == _CERTAIN
        return Failure(
            status=answer.status,
            code=answer.code,
            type=answer.type,
            request_id=answer.request_id,
            transport=self.transport if answer.status is None or certain else None,
            in_stream=answer.is_frame or (in_stream and self.weight == 0),
            server_says=answer.server_says,
        )

    def _knows_nothing(self) -> bool:
        return self.weight == 0 and self.answer is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What the API said."""

    status: int | None = None
    code: str | None = None
    type: str | None = None
    request_id: str | None = None
    server_says: bool | None = None
    is_frame: bool = False


_Names = list[tuple[str, str]]
"""The classes of an exception, each as its top-level module and its name."""


def _names_of(kind: type[BaseException]) -> _Names:
    return [(str(each.__module__).partition(".")[0], each.__name__) for each in kind.__mro__]


def _first_of(error: BaseException | None) -> BaseException | None:
    """Return the first member of a group, as asyncio raises one where several addresses of a name refused."""
    for _ in range(_LEVELS):
        if not isinstance(error, ExceptionGroup):
            break
        error = error.exceptions[0]
    return error


def _is_cancel(error: BaseException) -> bool:
    if type(error) is TimeoutError:
        cause = error.__cause__
        below = error.__context__ if cause is None else cause
        return below is not None and not isinstance(below, Exception)
    return not isinstance(error, Exception)


def _transport_of(error: BaseException, names: _Names, *, below: bool) -> tuple[int, str | None]:
    """Return how telling a transport code ``error`` has, and the code; ``below`` means below a connection error."""
    number = _read(error, "errno") if isinstance(error, OSError) else None
    if ("socket", "gaierror") in names:
        return _CERTAIN, _RESOLVER_CODES.get(number, "EAI_FAIL")
    found: tuple[int, str | None] = (0, None)
    for library, name in names:
        known = _BY_LIBRARY_CLASS.get(name) if library in _HTTP_LIBRARIES else _BY_CLASS.get((library, name))
        if known is not None and known[0] > found[0]:
            found = known
    numbered = errno.errorcode.get(number) if isinstance(number, int) else None
    if found[0] == _CERTAIN or numbered is None:
        return found
    telling = below or found[0] > 0 or _NETWORK_ERRNO.fullmatch(numbered) is not None
    return (_CERTAIN, numbered) if telling else found


def _answer_of(error: BaseException, names: _Names) -> _Answer | None:
    """Return what the API said, if ``error`` is about an answer of it."""
    if ("openai", "ContentFilterFinishReasonError") in names:
        return _Answer(code="content_filter")
    response = _read(error, "response")
    status = _status(_read(error, "status_code")) or _status(_read(response, "status_code"))
    of_api = ("openai", "APIError") in names and ("openai", "APIConnectionError") not in names
    if status is None and not of_api:
        return None
    headers = _read(response, "headers")
    own = {name: _read(error, name) for name in ("code", "type", "request_id")}
    code, kind, request_id = details_of(own, *mappings_of(_read(error, "body")))
    return _Answer(
        status=status,
        code=code,
        type=kind,
        request_id=request_id or id_of(member(headers, "x-request-id")),
        server_says=_SAYS.get(str(member(headers, "x-should-retry"))),
        # Nothing but an error frame makes the SDK raise the plain class.
        is_frame=status is None and names[0] == ("openai", "APIError"),
    )


def _status(value: object) -> int | None:
    return int(value) if isinstance(value, int) and 100 <= value <= 999 else None


def _read(owner: object, name: str) -> Any:
    try:
        return getattr(owner, name)
    except Exception:
        return None
