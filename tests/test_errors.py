"""The exception family: what it is, what it tells, and that it survives copying and pickling."""

from __future__ import annotations

import asyncio
import copy
import errno
import pickle
import socket
from collections.abc import Callable

import openai
import pytest

from stallwatch.core.words import Phase, Wire
from stallwatch.errors import (
    RunCancelledError,
    StallwatchError,
    StreamInactivityTimeoutError,
    StreamTimeoutError,
    TotalTimeoutError,
)
from stallwatch.known_settings import BY_VARIABLE

FIELDS: dict[str, object] = {
    "phase": "first_token",
    "limit": 1.5,
    "waited": 1.62,
    "wire": "keepalive_only",
    "chunks_received": 3,
    "stream_lifetime": 2.25,
    "attempt": 2,
}

COPIES: dict[str, Callable[[BaseException], BaseException]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle{protocol}": lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}

LEAVES = [StreamTimeoutError, StreamInactivityTimeoutError, TotalTimeoutError]


class Unpicklable:
    """Stands for a request, whose extensions hold sockets and callbacks."""

    def __reduce__(self) -> str:
        raise TypeError("not to be copied")


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize(
    "caught",
    [
        StallwatchError,
        StreamTimeoutError,
        openai.APITimeoutError,
        openai.APIConnectionError,
        openai.APIError,
        openai.OpenAIError,
        TimeoutError,
        asyncio.TimeoutError,
        socket.timeout,
        OSError,
    ],
)
def test_a_stall_is_caught_as(kind: type[StreamTimeoutError], caught: type[Exception]) -> None:
    with pytest.raises(caught):
        raise kind(phase=Phase.IDLE)


def test_the_two_leaves_are_told_apart() -> None:
    assert not issubclass(StreamInactivityTimeoutError, TotalTimeoutError)
    assert not issubclass(TotalTimeoutError, StreamInactivityTimeoutError)


def test_a_cancelled_run_is_no_timeout_and_no_api_error() -> None:
    assert issubclass(RunCancelledError, openai.OpenAIError)
    assert issubclass(RunCancelledError, StallwatchError)
    assert not issubclass(RunCancelledError, (openai.APIError, TimeoutError, OSError))


@pytest.mark.parametrize("kind", LEAVES)
def test_fields_are_as_given(kind: type[StreamTimeoutError]) -> None:
    error = kind(**FIELDS)  # type: ignore[arg-type]
    assert {name: getattr(error, name) for name in FIELDS} == FIELDS
    assert (error.code, error.errno) == ("ETIMEDOUT", errno.ETIMEDOUT)


def test_the_sdks_own_fields_are_there() -> None:
    request = object()
    error = StreamTimeoutError(request=request)
    assert error.request is request
    assert (error.body, error.param, error.type) == (None, None, None)
    assert error.message == str(error) == error.strerror == error.args[0]


def test_closed_words_become_plain_strings() -> None:
    error = StreamTimeoutError(phase=Phase.THINKING, wire=Wire.DEAD_WIRE)
    assert type(error.phase) is str
    assert type(error.wire) is str


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.DONE])
def test_the_message_names_wait_limit_and_both_ways_to_change_it(phase: Phase) -> None:
    text = str(StreamTimeoutError(phase=phase, limit=120.0, waited=120.04, chunks_received=7))
    variable = f"STALLWATCH_{phase.upper()}_TIMEOUT"
    assert variable in BY_VARIABLE
    for part in (
        phase,
        "120.04 s",
        "limit 120 s",
        variable,
        f"stallwatch.policy({phase}=...)",
        "received: 7",
    ):
        assert part in text


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.DONE])
def test_the_message_begins_as_the_sdks_own_timeouts_do(phase: Phase) -> None:
    """Some tell timeouts by that text alone."""
    own = str(openai.APITimeoutError(request=None))  # type: ignore[arg-type]
    assert str(StreamTimeoutError(phase=phase)).startswith(own.removesuffix(".") + ": ")


@pytest.mark.parametrize(
    ("wire", "said"),
    [
        (Wire.DEAD_WIRE, "no bytes arrived"),
        (Wire.KEEPALIVE_ONLY, "only keepalives arrived"),
        (Wire.HEARTBEAT_ONLY, "only empty chunks arrived"),
        (None, "arrived"),
    ],
)
def test_the_message_says_what_the_wire_did(wire: Wire | None, said: str) -> None:
    assert (said in str(StreamTimeoutError(phase=Phase.IDLE, wire=wire))) is (wire is not None)


def test_the_message_explains_a_wait_longer_than_the_limit() -> None:
    extended = StreamTimeoutError(phase=Phase.FIRST_TOKEN, limit=120.0, allowed=240.0, waited=240.1)
    assert "limit 120 s, 240 s while bytes arrive" in str(extended)
    plain = StreamTimeoutError(phase=Phase.FIRST_TOKEN, limit=120.0, allowed=120.0, waited=120.1)
    assert "while bytes arrive" not in str(plain)


def test_a_spent_total_does_not_blame_the_last_wait() -> None:
    text = str(TotalTimeoutError(phase=Phase.TOTAL, limit=60.0, waited=60.02, wire=Wire.DEAD_WIRE))
    assert "total" in text
    assert "no progress" not in text
    assert "no bytes" not in text


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", LEAVES)
def test_a_stall_survives(kind: type[StreamTimeoutError], how: str) -> None:
    error = kind(request=Unpicklable(), **FIELDS)  # type: ignore[arg-type]
    error.add_note("from the caller")
    twin = COPIES[how](error)
    assert type(twin) is kind
    assert isinstance(twin, StreamTimeoutError)
    assert {name: getattr(twin, name) for name in FIELDS} == FIELDS
    assert (str(twin), twin.args, twin.message) == (str(error), error.args, error.message)
    assert (twin.code, twin.errno, twin.strerror) == ("ETIMEDOUT", errno.ETIMEDOUT, error.strerror)
    assert twin.request is None
    assert twin.__notes__ == ["from the caller"]


@pytest.mark.parametrize("how", COPIES)
def test_a_message_of_its_own_survives(how: str) -> None:
    assert str(COPIES[how](TotalTimeoutError("spent", phase=Phase.TOTAL))) == "spent"


@pytest.mark.parametrize("how", COPIES)
def test_a_cancelled_run_survives(how: str) -> None:
    error = RunCancelledError("user stop")
    error.add_note("from the caller")
    twin = COPIES[how](error)
    assert type(twin) is RunCancelledError
    assert isinstance(twin, RunCancelledError)
    assert (twin.reason, str(twin)) == ("user stop", "run cancelled: user stop")
    assert twin.__notes__ == ["from the caller"]


def test_a_stall_keeps_its_cause() -> None:
    cause = ConnectionError("gone")
    with pytest.raises(openai.APITimeoutError) as caught:
        raise StreamInactivityTimeoutError(phase=Phase.IDLE) from cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize(
    ("set_by", "said"),
    [
        ("built-in", "Change the limit with STALLWATCH_IDLE_TIMEOUT or stallwatch.policy(idle=...)"),
        ("environment", "Change the limit with STALLWATCH_IDLE_TIMEOUT or stallwatch.policy(idle=...)"),
        ("code", "It was set by instrument(...): change it there, or use stallwatch.policy(idle=...)"),
        (
            "rule:slow models",
            "It was set by the rule 'slow models': change it there, or use stallwatch.policy(idle=...)",
        ),
        (
            "client",
            "It was set by stallwatch.guard(...): change it there, or use stallwatch.policy(idle=...)",
        ),
        ("call", "It was set by stallwatch.policy(...) around the call: change it there; 0"),
        (
            "route",
            "It was set by the policy of the router's route: change it there, or use stallwatch.policy(idle=...)",
        ),
        ("run", "It was set by stallwatch.Run(total=...) around the call: change it there; 0"),
        ("middleware", "It was set by StallwatchMiddleware(total=...): change it there; 0"),
        ("header", "in the header that StallwatchMiddleware(deadline_header=...) names"),
    ],
)
def test_the_advice_is_about_the_setting_that_is_in_force(set_by: str, said: str) -> None:
    error = StreamInactivityTimeoutError(phase="idle", limit=1, waited=1, set_by=set_by)
    assert said in str(error)
    assert error.set_by == set_by
