"""What environment variables say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.known_settings import BY_VARIABLE
from stallwatch.policy import Policy
from stallwatch.resolution import Layers
from stallwatch.settings import load

GOOD: list[tuple[str, str, dict[str, Any]]] = [
    ("STALLWATCH_MODE", "observe", {"mode": "observe"}),
    ("STALLWATCH_MODE", " Off ", {"mode": "off"}),
    ("STALLWATCH_CONNECT_TIMEOUT", "3", {"connect": 3}),
    ("STALLWATCH_FIRST_TOKEN_TIMEOUT", "2m", {"first_token": 120}),
    ("STALLWATCH_THINKING_TIMEOUT", "500ms", {"thinking": 0.5}),
    ("STALLWATCH_IDLE_TIMEOUT", "120s", {"idle": 120}),
    ("STALLWATCH_IDLE_TIMEOUT", "0", {"idle": None}),
    ("STALLWATCH_IDLE_TIMEOUT", "-1", {"idle": None}),
    ("STALLWATCH_IDLE_TIMEOUT", "off", {"idle": None}),
    ("STALLWATCH_TOTAL_TIMEOUT", "1h", {"total": 3600}),
    ("STALLWATCH_MAX_RETRIES", "0", {"max_retries": 0}),
    ("STALLWATCH_MAX_RETRIES", " 5 ", {"max_retries": 5}),
    ("STALLWATCH_PROGRESS", "CHUNK", {"progress": "chunk"}),
    ("STALLWATCH_KEEPALIVE_FACTOR", "1.5", {"keepalive_factor": 1.5}),
    ("STALLWATCH_GAPS", "summary", {"gaps": "summary"}),
]

BAD: list[tuple[str, str, str]] = [
    ("STALLWATCH_MODE", "enforced", "'enforce' or 'observe' or 'off'"),
    ("STALLWATCH_CONNECT_TIMEOUT", "abc", "seconds"),
    ("STALLWATCH_FIRST_TOKEN_TIMEOUT", "1e3", "'500ms'"),
    ("STALLWATCH_THINKING_TIMEOUT", "nan", "seconds"),
    ("STALLWATCH_IDLE_TIMEOUT", "5 minutes", "0 or 'off' switches it off"),
    ("STALLWATCH_TOTAL_TIMEOUT", "9999999", "at most 1,000,000"),
    ("STALLWATCH_MAX_RETRIES", "-1", "from 0 to 100"),
    ("STALLWATCH_MAX_RETRIES", "two", "from 0 to 100"),
    ("STALLWATCH_MAX_RETRIES", "1.5", "from 0 to 100"),
    ("STALLWATCH_MAX_RETRIES", "101", "from 0 to 100"),
    ("STALLWATCH_PROGRESS", "bytes", "'content' or 'chunk'"),
    ("STALLWATCH_KEEPALIVE_FACTOR", "0.5", "from 1 to 10"),
    ("STALLWATCH_KEEPALIVE_FACTOR", "nan", "from 1 to 10"),
    ("STALLWATCH_GAPS", "none", "'all' or 'summary' or 'off'"),
    ("STALLWATCH_SPAN_BACKSTOP", "soon", "seconds"),
    ("STALLWATCH_SPAN_BACKSTOP", "0", "above 0"),
]


def test_every_variable_in_the_table_is_read(warnings_of: Any, policy_file: Any) -> None:
    values = (
        {name: text for name, text, _ in GOOD}
        | {"STALLWATCH_SPAN_BACKSTOP": "400s"}
        | policy_file("[default]\nidle = 3")
    )
    assert values.keys() == BY_VARIABLE.keys()
    for name, text in values.items():
        layers, warnings = warnings_of({name: text})
        assert layers != Layers(), name
        assert warnings == [], name


def test_an_empty_environment_says_nothing(warnings_of: Any) -> None:
    assert warnings_of({}) == (Layers(), [])


@pytest.mark.parametrize("name", sorted(BY_VARIABLE))
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_variable_is_nothing(warnings_of: Any, name: str, text: str) -> None:
    assert warnings_of({name: text}) == (Layers(), [])


@pytest.mark.parametrize(("name", "text", "meant"), GOOD)
def test_a_variable_is_understood(warnings_of: Any, name: str, text: str, meant: dict[str, Any]) -> None:
    assert warnings_of({name: text}) == (Layers(environment=Policy.of(**meant)), [])


@pytest.mark.parametrize(("text", "length"), [("400", 400.0), ("400s", 400.0), ("10m", 600.0)])
def test_the_backstop_is_understood(warnings_of: Any, text: str, length: float) -> None:
    assert warnings_of({"STALLWATCH_SPAN_BACKSTOP": text}) == (Layers(backstop=length), [])


@pytest.mark.parametrize(("name", "text", "allowed"), BAD)
def test_a_bad_variable_is_one_warning_and_otherwise_nothing(
    warnings_of: Any, name: str, text: str, allowed: str
) -> None:
    layers, warnings = warnings_of(
        {name: text, "STALLWATCH_GAPS" if name == "STALLWATCH_MODE" else "STALLWATCH_MODE": "off"}
    )
    assert layers == Layers(environment=Policy.of(**{"gaps" if name == "STALLWATCH_MODE" else "mode": "off"}))
    (warning,) = warnings
    for part in (name, repr(text), allowed):
        assert part in warning


def test_a_huge_bad_value_makes_no_huge_warning(warnings_of: Any) -> None:
    _, (warning,) = warnings_of({"STALLWATCH_MODE": "x" * 100_000})
    assert len(warning) < 300


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("STALLWATCH_IDLE", "STALLWATCH_IDLE_TIMEOUT"),
        ("STALLWATCH_IDEL_TIMEOUT", "STALLWATCH_IDLE_TIMEOUT"),
        ("STALLWATCH_CONNECTION_TIMEOUT", "STALLWATCH_CONNECT_TIMEOUT"),
        ("STALLWATCH_FIRST_TOKEN", "STALLWATCH_FIRST_TOKEN_TIMEOUT"),
        ("STALLWATCH_MODES", "STALLWATCH_MODE"),
        ("STALLWATCH_RETRIES", "STALLWATCH_MAX_RETRIES"),
        ("STALLWATCH_POLICY", "STALLWATCH_POLICY_FILE"),
    ],
)
def test_an_unknown_variable_is_one_warning_with_the_nearest_known_name(
    warnings_of: Any, name: str, meant: str
) -> None:
    layers, warnings = warnings_of({name: "secret-value"})
    assert layers == Layers()
    (warning,) = warnings
    assert warning.startswith(f"stallwatch: {name} ")
    assert f"did you mean {meant}?" in warning
    assert "secret-value" not in warning


def test_variables_of_others_are_left_alone(warnings_of: Any) -> None:
    assert warnings_of({"OTEL_SDK_DISABLED": "x", "MY_STALLWATCH_MODE": "x", "stallwatch_mode": "x"}) == (
        Layers(),
        [],
    )


def test_the_process_environment_is_read_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLWATCH_IDLE_TIMEOUT", "7")
    assert load().environment == Policy.of(idle=7)
    monkeypatch.delenv("STALLWATCH_IDLE_TIMEOUT")
    assert load().environment == Policy()


@given(st.dictionaries(st.sampled_from(sorted(BY_VARIABLE.keys() - {"STALLWATCH_POLICY_FILE"})), st.text()))
def test_no_environment_breaks_the_host(environ: dict[str, str]) -> None:
    assert isinstance(load(environ), Layers)


@pytest.mark.parametrize("name", ["STALLWATCH_ENABLED", "STALLWATCH_HIDDEN_REASONING"])
def test_a_variable_like_no_other_is_answered_with_all_there_are_and_no_guess(
    warnings_of: Any, name: str
) -> None:
    _, (warning,) = warnings_of({name: "1"})
    assert "did you mean" not in warning
    assert "known are STALLWATCH_" in warning
