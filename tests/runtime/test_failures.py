"""What exceptions and error frames say of the attempt they ended: made ones, hostile ones and real ones."""

from __future__ import annotations

import asyncio
import errno
import importlib
import re
import socket
import ssl
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from typing import Any

import anyio
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.core.classify import Failure
from stallwatch.core.words import FailureKind
from stallwatch.errors import RunCancelledError, StreamInactivityTimeoutError, TotalTimeoutError
from stallwatch.runtime.error_frames import failure_of_frame
from stallwatch.runtime.failures import classify, describe, failure_of
from stallwatch.testing import (
    CloseAbruptly,
    FaultGateway,
    Reset,
    Role,
    Silence,
    Status,
    Step,
    Token,
    mute_server,
    refusing_address,
)
from support.connects import http, quick_client
from support.drivers import DRIVERS, Driver
from support.places import MESSAGES, Place, places

core: Any = importlib.import_module(http.__name__.replace("httpx", "httpcore"))
"""The transport of the HTTP library that this release of the SDK uses."""

SECRET = "sk-proj-do-not-tell a prompt"
REQUEST = http.Request("POST", "http://model.invalid/v1/chat/completions")


def said_of(error: BaseException) -> str:
    """Return the verdict as words: kind, diagnosis, reason, and the transport code if there is one."""
    verdict = classify(error)
    return " ".join(filter(None, (verdict.kind, verdict.diagnosis, verdict.reason, verdict.transport_code)))


def chained(*errors: BaseException, hidden: bool = False) -> BaseException:
    """Raise each from the next, or with the next as its hidden context, as ``from None`` leaves it."""
    for error, below in pairwise(errors):
        if hidden:
            error.__context__, error.__suppress_context__ = below, True
        else:
            error.__cause__ = below
    return errors[0]


def handling(context: BaseException, error: BaseException) -> BaseException:
    """Make it an error raised while another was handled."""
    error.__context__ = context
    return error


def connection(*below: BaseException) -> BaseException:
    return chained(openai.APIConnectionError(request=REQUEST, message=SECRET), *below)


def answer(status: int, body: object = None, **headers: str) -> openai.APIStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = http.Response(status, headers=named, request=REQUEST)
    return openai.APIStatusError(SECRET, response=response, body=body)


def library_answer(status: int) -> BaseException:
    error: BaseException = http.HTTPStatusError(
        SECRET, request=REQUEST, response=http.Response(status, request=REQUEST)
    )
    return error


def frame(body: object) -> openai.APIError:
    """Make what the SDK raises for an error frame."""
    return openai.APIError(SECRET, REQUEST, body=body)


# Made exceptions, by what is said of them

QUOTA = {"message": SECRET, "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}
FILTERED = {
    "message": SECRET,
    "code": "content_filter",
    "innererror": {"code": "ResponsibleAIPolicyViolation"},
}
IN_LIST = [{"error": {"code": 403, "status": "RESOURCE_EXHAUSTED", "message": SECRET}}]
TIMEOUT = "transport retryable timeout ETIMEDOUT"
CANCEL = "cancel fail_fast cancelled"

# fmt: off
MADE: dict[str, dict[str, BaseException]] = {
    "client fail_fast bad_request": {
        "400": answer(400),
        "400, in a list": answer(400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT"}}]),
    },
    "client retryable bad_request": {"418, to be tried again": answer(418, x_should_retry="true")},
    "client retryable request_timeout": {"408": answer(408)},
    "client retryable conflict": {"409": answer(409)},
    "auth fail_fast authentication": {
        "401": answer(401, {"code": "invalid_api_key", "type": "invalid_request_error"}),
        "401, found below a connection error": connection(library_answer(401)),
    },
    "auth fail_fast permission": {"403": answer(403)},
    "rate_limit retryable rate_limit": {"429": answer(429, SECRET), "403, in a list": answer(403, IN_LIST)},
    "provider fail_fast quota": {"429, spent": answer(429, QUOTA)},
    "provider fail_fast content_filter": {
        "400, filtered": answer(400, FILTERED),
        "an answer that was filtered": openai.ContentFilterFinishReasonError(),
    },
    "provider fail_fast permanent_code": {"a permanent frame": frame({"type": "invalid_request_error"})},
    "server retryable server_error": {"500": answer(500, SECRET), "a frame with a status": frame({"code": 502})},
    "capacity retryable overloaded": {
        "503": answer(503, b"<html>"),
        "529": answer(529),
        "503, with a header the SDK does not know": answer(503, x_should_retry="False"),
        "503 of the library": library_answer(503),
        "503, found below a connection error": connection(library_answer(503)),
        "503, read while a cancel was handled": handling(asyncio.CancelledError(), answer(503)),
    },
    "capacity fail_fast overloaded": {"503, not to be tried again": answer(503, x_should_retry="false")},
    "stream retryable error_frame": {
        "a frame": frame({"message": SECRET, "code": "new"}),
        "a frame of text": frame("aborted"),
    },
    TIMEOUT: {
        "the SDK's timeout": openai.APITimeoutError(request=REQUEST),
        "the system's": TimeoutError("timed out"),
        "numbered": OSError(errno.ETIMEDOUT, SECRET),
        "in groups of the user's": ExceptionGroup("1", [ExceptionGroup("2", [http.ReadTimeout(SECRET)])]),
        "a status that a wrapper made up": chained(answer(500), http.ReadTimeout(SECRET)),
        "made of a cancel": chained(http.ReadTimeout(SECRET), TimeoutError(), asyncio.CancelledError()),
        "of somebody's transport": connection(TimeoutError(), asyncio.CancelledError()),
        **{
            f"{library.__name__}.{name}": getattr(library, name)(SECRET)
            for library in (http, core)
            for name in ("ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout")
        },
    },
    **{
        f"transport retryable {reason} {code}": {
            f"{library.__name__}.{name}": getattr(library, name)(SECRET) for library in (http, core)
        }
        for name, reason, code in [
            ("ConnectError", "connection", "CONNECT"),
            ("ReadError", "connection", "READ"),
            ("WriteError", "connection", "WRITE"),
            ("ProxyError", "connection", "PROXY"),
            ("RemoteProtocolError", "protocol", "REMOTE_PROTOCOL"),
            ("LocalProtocolError", "protocol", "LOCAL_PROTOCOL"),
        ]
    },
    "transport retryable connection CONNECTION": {
        "the SDK's connection error": connection(),
        "from something unknown": connection(ValueError(SECRET)),
        "anyio's": anyio.BrokenResourceError(),
        "the system's": ConnectionError("aborted"),
    },
    "transport retryable connection ECONNRESET": {
        "the system's": ConnectionResetError(SECRET),
        "the most telling one": connection(
            http.ReadError(SECRET), core.ReadError(SECRET), anyio.BrokenResourceError(),
            ConnectionResetError(errno.ECONNRESET, SECRET),
        ),
        "the fourth cause": chained(*(RuntimeError() for _ in range(4)), ConnectionResetError()),
    },
    "transport retryable connection ECONNREFUSED": {
        "the system's": ConnectionRefusedError(),
        "wrapped by the user": chained(RuntimeError(SECRET), connection(ConnectionRefusedError())),
        "one of several": connection(
            http.ConnectError(SECRET), core.ConnectError(SECRET), OSError("All connection attempts failed"),
            ExceptionGroup("attempts", [ConnectionRefusedError(errno.ECONNREFUSED, ""), OSError()]),
        ),
    },
    "transport retryable connection ECONNABORTED": {"the system's": ConnectionAbortedError()},
    "transport retryable connection EPIPE": {"the system's": BrokenPipeError()},
    "transport retryable connection EHOSTUNREACH": {"numbered": OSError(errno.EHOSTUNREACH, SECRET)},
    "transport retryable connection ENETUNREACH": {"numbered": OSError(errno.ENETUNREACH, SECRET)},
    "transport retryable connection EMFILE": {
        "any number, below a connection error": connection(OSError(errno.EMFILE, SECRET)),
    },
    "transport retryable name_resolution EAI_AGAIN": {"for now": socket.gaierror(socket.EAI_AGAIN, SECRET)},
    "transport retryable name_resolution EAI_NONAME": {"for good": socket.gaierror(socket.EAI_NONAME, SECRET)},
    "transport retryable name_resolution EAI_FAIL": {"unnumbered": socket.gaierror(SECRET)},
    "transport retryable tls TLS": {
        "TLS": ssl.SSLError(1, SECRET),
        "a certificate": ssl.SSLCertVerificationError(1, SECRET),
        "as a hidden context": connection(
            chained(http.ConnectError(SECRET), core.ConnectError(SECRET), ssl.SSLError(1), hidden=True)
        ),
    },
    "transport retryable stall ETIMEDOUT": {
        "a stall": StreamInactivityTimeoutError(),
        "the total": TotalTimeoutError(),
        "wrapped by the SDK": connection(StreamInactivityTimeoutError()),
    },
    CANCEL: {
        "a run": RunCancelledError(),
        "a run, wrapped by the SDK": connection(RunCancelledError("aborted")),
        "a task": asyncio.CancelledError(),
        "an interrupt": KeyboardInterrupt(),
        "an exit": SystemExit(1),
        "a generator": GeneratorExit(),
        "a group with a cancel": BaseExceptionGroup("tasks", [asyncio.CancelledError(), OSError()]),
        "an error in the user's own clean-up": handling(asyncio.CancelledError(), ValueError()),
        "the user's scope that expired": chained(TimeoutError(), asyncio.CancelledError()),
    },
    "unknown unknown unclassified": {
        "aborted": RuntimeError("aborted: request was cancelled"),
        "no file": FileNotFoundError(errno.ENOENT, SECRET),
        "no permission": PermissionError(errno.EACCES, SECRET),
        "no number": OSError(SECRET),
        "the SDK's own": openai.OpenAIError(SECRET),
        "a success status": openai.APIResponseValidationError(http.Response(200, request=REQUEST), None),
        "the fifth cause": chained(*(RuntimeError() for _ in range(5)), ConnectionResetError()),
        "hidden by the user": chained(RuntimeError(SECRET), ConnectionResetError(), hidden=True),
        "a name of another library": type("ReadTimeout", (Exception,), {})(SECRET),
    },
}
# fmt: on


def cases(table: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """Return the entries of a table, each with what is said of it."""
    return [
        pytest.param(entry, said, id=f"{name}: {said}")
        for said, row in table.items()
        for name, entry in row.items()
    ]


@pytest.mark.parametrize(("error", "said"), cases(MADE))
def test_an_exception_is_classified(error: BaseException, said: str) -> None:
    assert said_of(error) == said
    assert SECRET not in repr(failure_of(error))


def test_all_facts_of_an_answer_are_taken() -> None:
    assert failure_of(answer(429, QUOTA, x_request_id="req_1", x_should_retry="false")) == Failure(
        status=429,
        code="insufficient_quota",
        type="insufficient_quota",
        request_id="req_1",
        server_says=False,
    )


def test_the_facts_themselves_can_be_classified() -> None:
    assert classify(Failure(status=503)) == classify(answer(503))


def test_an_error_of_the_api_is_a_frame_in_a_stream_and_any_other_is_not() -> None:
    for error in (answer(500), frame(None)):
        assert failure_of(error, in_stream=True).in_stream
    for other in (connection(), connection(library_answer(401)), ValueError(), http.ReadError(SECRET)):
        assert failure_of(other, in_stream=True) == failure_of(other)


# What an earlier attempt died of: old releases of the SDK try again while they handle it


def test_an_earlier_attempt_says_nothing() -> None:
    reset = connection(ConnectionResetError(errno.ECONNRESET, SECRET))
    for late in (handling(reset, answer(503)), chained(answer(503), reset, hidden=True)):
        assert said_of(late) == "capacity retryable overloaded"
    unknown = connection(handling(answer(401), ValueError()))
    assert said_of(unknown) == "transport retryable connection CONNECTION"
    for earlier in (http.ReadTimeout(SECRET), answer(401)):
        refused = connection(handling(earlier, ConnectionRefusedError(errno.ECONNREFUSED, "")))
        assert said_of(refused) == "transport retryable connection ECONNREFUSED"


# Hostile exceptions


class Hostile(Exception):
    """Answers every question with an error."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(SECRET)

    def __bool__(self) -> bool:
        raise RuntimeError(SECRET)

    __hash__ = None


class HostileAnswer(openai.APIStatusError):
    """Has a status, and nothing else that can be read."""

    def __init__(self) -> None:
        Exception.__init__(self, SECRET)
        self.status_code = 503

    def __getattribute__(self, name: str) -> Any:
        if name in ("response", "code", "type", "body", "request_id", "__cause__", "__context__"):
            raise KeyError(SECRET)
        return super().__getattribute__(name)


class HostileMapping(dict[str, Any]):
    """A body that cannot be looked into."""

    def get(self, *_: Any) -> Any:
        raise RuntimeError(SECRET)


class _Nameless(type):
    @property
    def __mro__(cls) -> Any:  # type: ignore[override]
        raise RuntimeError(SECRET)


class Nameless(Exception, metaclass=_Nameless):
    """Of a class whose ancestors cannot be told."""


class Endless(Exception):
    """Has a new cause whenever it is asked."""

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        return Endless()


def circle() -> BaseException:
    first, second = ValueError(), KeyError()
    return chained(first, second, first)


HOSTILE: dict[str, Callable[[], BaseException]] = {
    "attributes": Hostile,
    "class": Nameless,
    "cause": lambda: chained(RuntimeError(), Hostile()),
    "member": lambda: ExceptionGroup("tasks", [Hostile()]),
    "endless": Endless,
    "circle": circle,
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_exceptions_are_classified_too(make: Callable[[], BaseException]) -> None:
    assert classify(make()).kind is FailureKind.UNKNOWN


def test_what_can_be_read_counts() -> None:
    assert said_of(HostileAnswer()) == "capacity retryable overloaded"
    assert said_of(connection(Hostile())) == "transport retryable connection CONNECTION"
    error = answer(503)
    error.body = HostileMapping(code=1)
    assert said_of(error) == "capacity retryable overloaded"


class Odd(Exception):
    """Carries whatever it is given."""

    def __init__(self, carried: Mapping[str, Any]) -> None:
        super().__init__(SECRET)
        self.__dict__.update(carried)


class OddAnswer(openai.APIError):
    """The same as an error of the API."""

    def __init__(self, carried: Mapping[str, Any]) -> None:
        Exception.__init__(self, SECRET)
        self.__dict__.update(carried)


NAMES = ["error", "code", "type", "status", "status_code", "object", "response", "message", "request_id"]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just(SECRET)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
CARRIED = st.dictionaries(st.sampled_from([*NAMES, "body", "errno"]), JSON, max_size=6)
ERRORS: st.SearchStrategy[BaseException] = st.one_of(
    st.builds(Odd, CARRIED),
    st.builds(OddAnswer, CARRIED),
    st.builds(OSError, st.integers(0, 140), st.just(SECRET)),
    *(
        st.builds(kind)
        for kind in (
            HostileAnswer,
            KeyboardInterrupt,
            asyncio.CancelledError,
            TimeoutError,
            RunCancelledError,
        )
    ),
    *(
        st.builds(kind, st.just(SECRET))
        for kind in (http.ReadError, core.ConnectError, http.ReadTimeout, ValueError)
    ),
)


@given(st.lists(ERRORS, min_size=1, max_size=7), st.booleans(), st.booleans())
def test_any_chain_of_any_exceptions_has_a_verdict_and_gives_no_text_away(
    errors: list[BaseException], hidden: bool, in_stream: bool
) -> None:
    chained(*errors, hidden=hidden)
    failure = failure_of(errors[0], in_stream=in_stream)
    code = classify(failure).transport_code
    assert code is None or re.fullmatch(r"[A-Z_0-9]+", code)
    assert all(word is None or re.fullmatch(r"[\w.-]{1,48}", word) for word in (failure.code, failure.type))
    assert SECRET not in repr(failure)


@given(JSON)
def test_any_event_is_a_frame_or_none(payload: Any) -> None:
    failure = failure_of_frame(payload)
    if failure is not None:
        assert failure.in_stream
        assert SECRET not in repr(failure)
        classify(failure)


# Error frames

RESPONSE = {"id": "resp_1", "status": "failed", "error": {"code": "rate_limit_exceeded", "message": SECRET}}

# fmt: off
FRAMES: list[tuple[dict[str, Any], dict[str, str], str]] = [
    # payload, facts, reason
    ({"error": {"message": SECRET, "code": 502}}, {"code": "502"}, "server_error"),
    ({"error": {"message": SECRET, "code": "502"}}, {"code": "502"}, "server_error"),
    ({"choices": [], "error": {"message": SECRET, "code": 502}}, {"code": "502"}, "server_error"),
    ({"error": {"code": "slow_down", "type": "tokens"}}, {"code": "slow_down", "type": "tokens"}, "overloaded"),
    ({"type": "error", "error": {"type": "overloaded_error"}}, {"type": "overloaded_error"}, "overloaded"),
    ({"error": {"message": SECRET}, "code": 429}, {"code": "429"}, "rate_limit"),
    ({"error": SECRET}, {}, "error_frame"),
    ({"error": SECRET, "status": 503}, {"code": "503"}, "overloaded"),
    ({"error": "insufficient_quota"}, {"code": "insufficient_quota"}, "quota"),
    ({"error": True}, {}, "error_frame"),
    ({"error": 503}, {"code": "503"}, "overloaded"),
    ({"error": [{"code": 400}]}, {"code": "400"}, "bad_request"),
    ({"error": {"code": 503, "status": "UNAVAILABLE"}}, {"code": "503", "type": "UNAVAILABLE"}, "overloaded"),
    ({"error": {"message": SECRET, "request_id": "r-1"}}, {"request_id": "r-1"}, "error_frame"),
    ({"error": {"message": SECRET}, "request_id": "r-1"}, {"request_id": "r-1"}, "error_frame"),
    ({"type": "error", "code": "server_error", "message": SECRET}, {"code": "server_error"}, "server_error"),
    ({"type": "error", "code": None, "message": SECRET}, {}, "error_frame"),
    ({"type": "response.failed", "response": RESPONSE}, {"code": "rate_limit_exceeded"}, "rate_limit"),
    ({"type": "response.failed", "response": {"status": "failed", "error": None}}, {}, "error_frame"),
    ({"object": "error", "type": "BadRequest", "code": 400}, {"code": "400", "type": "BadRequest"}, "bad_request"),
]
# fmt: on


@pytest.mark.parametrize(("payload", "facts", "reason"), FRAMES, ids=str)
def test_an_error_frame_is_told(payload: dict[str, Any], facts: dict[str, str], reason: str) -> None:
    failure = failure_of_frame(payload)
    assert failure == Failure(in_stream=True, **facts)  # type: ignore[arg-type]
    assert failure is not None
    assert classify(failure).reason == reason


NO_FRAMES: list[Any] = [
    {"id": "1", "object": "chat.completion.chunk", "choices": [{"delta": {"content": "error"}}]},
    {"choices": [], "error": None},
    {"choices": [], "error": {}},
    {"error": ""},
    {"type": "response.created", "response": {"error": None}},
    {"type": "response.output_text.delta", "delta": "error"},
    {"type": "response.completed", "response": {"error": None, "status": "completed"}},
    {"type": "response.failed"},
    {},
    [],
    None,
    HostileMapping(error="x"),
]


@pytest.mark.parametrize("payload", NO_FRAMES, ids=str)
def test_any_other_event_is_none(payload: Any) -> None:
    assert failure_of_frame(payload) is None


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "Throttling.RateQuota", "x" * 48, 0, 502], ids=repr)
def test_short_identifiers_are_kept(code: Any) -> None:
    assert failure_of_frame({"error": {"code": code}}) == Failure(code=str(code), in_stream=True)
    assert failure_of(frame({"code": code})).code == str(code)


@pytest.mark.parametrize(
    "code",
    [
        "x" * 49,
        "your prompt",
        "http://a/?key=1",
        "naïve",
        "code\n",
        "",
        -1,
        10**9,
        True,
        502.0,
        {"code": "1"},
        None,
    ],
    ids=repr,
)
def test_anything_else_is_not_kept_as_a_code(code: Any) -> None:
    assert failure_of_frame({"error": {"code": code, "type": code}, "type": code}) == Failure(in_stream=True)
    raised = frame(None)
    raised.code = raised.type = code
    assert failure_of(raised) == Failure(in_stream=True)


# Real failures

Where = Generator[tuple[str, Any]]
"""The address to call, and what to verify its certificate with."""


@contextmanager
def playing(*attempts: str | list[Step]) -> Where:
    with FaultGateway() as gateway:
        gateway.script("m", *attempts)
        yield gateway.base_url, False


@contextmanager
def nobody(host: str = "127.0.0.1") -> Where:
    with refusing_address() as address:
        yield f"http://{host}:{address.port}/v1", False


@contextmanager
def unresolvable() -> Where:
    def getaddrinfo(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, SECRET)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield "http://model.invalid/v1", False


@contextmanager
def plain_text_for_tls() -> Where:
    with FaultGateway() as gateway:
        yield gateway.base_url.replace("http:", "https:"), False


@contextmanager
def untrusted() -> Where:
    with places("tls") as (place,):
        yield place.base_url, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@contextmanager
def mute_for_tls() -> Where:
    with mute_server() as address:
        yield address.tls_base_url, False


def status(code: int, error: str | None = None, **headers: str) -> list[Step]:
    return [Status(code, headers, {"error": {"message": SECRET, "code": error, "type": None}})]


HALF: list[Step] = [Role(), Token("Hel")]
REAL: dict[str, dict[str, Callable[[], AbstractContextManager[tuple[str, Any]]]]] = {
    "transport retryable connection ECONNREFUSED": {"one": nobody, "several": lambda: nobody("localhost")},
    "transport retryable name_resolution EAI_NONAME": {"a name": unresolvable},
    "transport retryable tls TLS": {"plain text": plain_text_for_tls, "untrusted": untrusted},
    "transport retryable connection ECONNRESET": {
        "before the headers": lambda: playing([Reset()]),
        "in the body": lambda: playing([*HALF, Reset()]),
    },
    "transport retryable protocol REMOTE_PROTOCOL": {
        "closed before the headers": lambda: playing([CloseAbruptly()]),
        "cut in the body": lambda: playing([*HALF, CloseAbruptly()]),
    },
    TIMEOUT: {
        "in the handshake": mute_for_tls,
        "before the headers": lambda: playing([Silence()]),
        "in the body": lambda: playing([*HALF, Silence()]),
    },
    "server retryable server_error": {"a frame": lambda: playing("error-frame")},
    "capacity retryable overloaded": {
        "503": lambda: playing(status(503)),
        "a frame beside choices": lambda: playing("error-frame:style=choices,code=overloaded"),
    },
    "capacity fail_fast overloaded": {"503": lambda: playing(status(503, **{"x-should-retry": "false"}))},
    "client fail_fast bad_request": {"400": lambda: playing(status(400))},
    "auth fail_fast authentication": {"401": lambda: playing(status(401, "invalid_api_key"))},
    "rate_limit retryable rate_limit": {"429": lambda: playing(status(429, "rate_limit_exceeded"))},
    "provider fail_fast quota": {"429": lambda: playing(status(429, "insufficient_quota"))},
}


def fail(driver: Driver, where: tuple[str, Any], **options: Any) -> BaseException:
    url, verify = where
    if verify:
        client = (http.AsyncClient if driver.is_async else http.Client)(verify=verify)
    else:
        client = quick_client(is_async=driver.is_async)
    told = driver.tell(url, "m", options={"http_client": client, "timeout": 0.3, **options})
    assert told.error is not None
    return told.error


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
@pytest.mark.parametrize(("where", "said"), cases(REAL))
def test_a_real_failure_is_classified(driver: Driver, where: Callable[[], Any], said: str) -> None:
    with where() as place:
        error = fail(driver, place)
    assert said_of(error) == said
    assert SECRET not in repr(failure_of(error))


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        (([Reset()], "error-status:code=401"), "auth fail_fast authentication"),
        (("error-status:code=503", [Silence()]), TIMEOUT),
    ],
    ids=["answer", "timeout"],
)
def test_of_the_sdks_attempts_the_last_one_counts(driver: Driver, attempts: Any, said: str) -> None:
    with playing(*attempts) as place:
        assert said_of(fail(driver, place, max_retries=1)) == said


async def within_asyncio(call: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.timeout(0.1):
        await call


async def within_anyio(call: Coroutine[Any, Any, Any]) -> None:
    with anyio.fail_after(0.1):
        await call


@pytest.mark.parametrize("within", [within_asyncio, within_anyio])
def test_a_scope_of_the_users_that_expires_is_a_cancel(plain: Place, within: Callable[[Any], Any]) -> None:
    async def story() -> None:
        async with plain.async_client() as client:
            await within(client.chat.completions.create(model="silent", messages=MESSAGES))

    with pytest.raises(TimeoutError) as caught:
        asyncio.run(story())
    assert said_of(caught.value) == CANCEL


# Names for telemetry


@pytest.mark.parametrize(
    ("error", "known", "described"),
    [
        (ValueError(SECRET), None, ("ValueError", "ValueError", None)),
        (answer(404), None, ("APIStatusError", "APIStatusError (HTTP 404)", 404)),
        (http.ReadTimeout(SECRET), 200, ("APITimeoutError", "APITimeoutError", 200)),
        (core.ReadError(SECRET), 200, ("APIConnectionError", "APIConnectionError", 200)),
        (RunCancelledError("stop"), None, ("RunCancelledError", "run cancelled: stop", None)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_described_without_its_text(
    error: BaseException, known: int | None, described: tuple[str, str, int | None]
) -> None:
    assert describe(error, known) == described
