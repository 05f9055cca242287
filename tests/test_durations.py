"""Durations as people write them."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.durations import LONGEST, seconds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (120, 120.0),
        (0.25, 0.25),
        (LONGEST, LONGEST),
        (timedelta(minutes=2), 120.0),
        (timedelta(milliseconds=5), 0.005),
        ("120", 120.0),
        ("120s", 120.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("5.", 5.0),
        ("+5", 5.0),
        (" 2 m ", 120.0),
    ],
)
def test_is_understood(value: object, expected: float) -> None:
    result = seconds("idle", value)
    assert result == pytest.approx(expected)
    assert type(result) is float


@pytest.mark.parametrize(
    "value",
    [None, 0, 0.0, -0.0, -1, -0.5, -(10**400), -math.inf, timedelta(0), timedelta(seconds=-3),
     "0", "0ms", "-1", "-5m", "off", "OFF", " none ", "None"],
)  # fmt: skip
def test_switches_off(value: object) -> None:
    assert seconds("idle", value) is None


@pytest.mark.parametrize(
    "value",
    [True, False, math.nan, math.inf, LONGEST + 1, 10**400, timedelta(days=365), "", " ", "abc", "5x", "5 5", "1e3",
     "inf", "nan", "2M", "5 min", "1h30m", "1,5", "0x10", "١٢", "9" * 400, b"5", [], {}, (5,), object(), Decimal(5)],
)  # fmt: skip
def test_is_refused_naming_field_value_and_range(value: object) -> None:
    with pytest.raises(ValueError, match="not allowed") as caught:
        seconds("first_token", value)
    text = str(caught.value)
    assert text.startswith(f"first_token={value!r} ")
    assert "'120s'" in text
    assert "1,000,000 s" in text
    assert "switches it off" in text


@given(st.one_of(st.floats(), st.integers(), st.timedeltas(), st.text(), st.none(), st.booleans()))
def test_gives_a_positive_finite_number_or_off_or_refuses(value: object) -> None:
    try:
        result = seconds("idle", value)
    except ValueError:
        return
    assert result is None or 0 < result <= LONGEST


@given(st.floats(min_value=0.001, max_value=LONGEST, allow_nan=False))
def test_a_number_is_the_same_as_its_text(value: float) -> None:
    assert seconds("idle", f"{value:.6f}s") == pytest.approx(value, abs=1e-6)
