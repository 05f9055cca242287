"""What a server says about coming back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallwatch.core.budget import LONGEST_SERVER_WAIT
from stallwatch.durations import LONGEST
from stallwatch.runtime.retry_after import server_wait, should_retry_header

NOW = 784_111_777.0
"""1994-11-06 08:49:37 GMT."""


@pytest.fixture
def far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    tzset = getattr(time, "tzset", lambda: None)
    with monkeypatch.context() as context:
        context.setenv("TZ", "EST5")
        tzset()
        yield
    tzset()


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("1", 1),
        ("120", 120),
        ("600", 600),
        ("1.5", 1.5),
        (".5", 0.5),
        ("2.", 2),
        ("+3", 3),
        (" 4 ", 4),
        ("1e1", 10),
        ("0", None),
        ("0.0", None),
        ("-1", None),
        ("-1e999", None),
        ("1e-999", None),
        ("nan", None),
        ("inf", None),
        ("Infinity", None),
        ("-inf", None),
        ("", None),
        (" ", None),
        ("soon", None),
        ("5s", None),
        ("1_000", None),
        ("0x10", None),
        ("1, 2", None),
        ("\N{ARABIC-INDIC DIGIT ONE}", None),
        ("5\u00a0", None),
        ("5\N{SNOWMAN}", None),
    ],
)
def test_seconds(text: str, wait: float | None) -> None:
    assert server_wait({"retry-after": text}, NOW) == wait


@pytest.mark.parametrize("text", ["1e999", "9" * 400, "1e300", "1000001"])
def test_a_wait_beyond_all_numbers_is_a_very_long_one(text: str) -> None:
    assert server_wait({"retry-after": text}, NOW) == LONGEST > LONGEST_SERVER_WAIT
    assert server_wait({"retry-after-ms": text + "000000"}, NOW) == LONGEST


@pytest.mark.parametrize(
    ("date", "wait"),
    [
        ("Sun, 06 Nov 1994 08:49:38 GMT", 1),
        ("Sun, 06 Nov 1994 08:51:37 GMT", 120),
        ("Sunday, 06-Nov-94 08:49:38 GMT", 1),
        ("Sun Nov  6 08:49:38 1994", 1),
        ("Sun, 06 Nov 1994 09:49:38 +0100", 1),
        ("Sun, 06 Nov 1994 08:49:38 -0000", 1),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST),
        ("Sun, 06 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 08:49:36 GMT", None),
        ("Sun, 06 Nov 99999 08:49:38 GMT", None),
        ("Sun, 06 Nov 1994 08:49:38 GMT\N{SNOWMAN}", None),
        ("Sun, 06 Foo 1994 08:49:38 GMT", None),
        ("tomorrow at noon", None),
    ],
)
@pytest.mark.usefixtures("far_from_greenwich")
def test_a_date_counts_from_the_time_of_day_in_gmt(date: str, wait: float | None) -> None:
    assert server_wait({"retry-after": date}, NOW) == wait


def test_what_the_standard_library_writes_is_read() -> None:
    assert server_wait({"retry-after": formatdate(NOW + 90, usegmt=True)}, NOW + 0.25) == 89.75


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "0", "retry-after": "1"}, None),
        ({"retry-after-ms": "nan", "retry-after": "1"}, 1),
        ({"retry-after-ms": "garbage", "retry-after": "1"}, 1),
        ({"retry-after-ms": "Sun, 06 Nov 1994 08:49:38 GMT"}, None),
        ({}, None),
        (None, None),
        ({"retry-after": 7}, None),
        ({"retry-after": b"7"}, None),
    ],
)
def test_milliseconds_come_first_if_they_are_a_number(headers: Any, wait: float | None) -> None:
    assert server_wait(headers, NOW) == wait


@pytest.mark.parametrize(
    ("value", "said"),
    [("true", True), ("false", False), ("", None), ("True", None), ("1", None), (True, None), (None, None)],
)
def test_a_server_may_say_whether_to_try_again(value: object, said: bool | None) -> None:
    assert should_retry_header({"x-should-retry": value}) is said


def test_no_headers_say_nothing() -> None:
    assert should_retry_header({}) is should_retry_header(None) is None


# Near enough to dates and numbers to get far.
TEXTS = st.one_of(
    st.text(),
    st.text("0123456789+-.eE_ "),
    st.lists(
        st.sampled_from(["Sun,", "06", "Nov", "1994", "94", "08:49:38", "25:61:99", "GMT", "+9999", "-", "0"])
        | st.integers().map(str),
        max_size=8,
    ).map(" ".join),
)


@settings(deadline=None, max_examples=500)
@given(TEXTS, st.floats(0, 1e10))
def test_nothing_a_server_may_say_raises_or_leaves_the_range(text: str, now: float) -> None:
    for name in ("retry-after", "retry-after-ms"):
        wait = server_wait({name: text}, now)
        assert wait is None or 0 < wait <= LONGEST
