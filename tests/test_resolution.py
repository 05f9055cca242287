"""From layers of policy to the limits of one call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.core.deadlines import Limits
from stallwatch.core.words import Mode
from stallwatch.policy import Policy, Rule
from stallwatch.resolution import BUILT_IN, HIDDEN_REASONING, Layers, ResolvedPolicy, resolve

URL = "https://api.example.com/v1/"
SOURCES = ("environment", "code", "rule", "client", "call")
"""Least specific first."""


def resolved(model: str | None = "gpt-4o", effort: str | None = None, **layers: Any) -> ResolvedPolicy:
    """Resolve with each of SOURCES given as a dict of flat settings."""
    made = {name: Policy.of(**settings) for name, settings in layers.items() if name in SOURCES}
    rule = made.get("rule")
    return resolve(
        Layers(
            environment=made.get("environment", Policy()),
            code=made.get("code", Policy()),
            rules=layers.get("rules", [] if rule is None else [Rule(name="mine", policy=rule)]),
            backstop=layers.get("backstop"),
        ),
        model=model,
        base_url=URL,
        effort=effort,
        client=made.get("client"),
        calls=layers.get("calls", [made["call"]] if "call" in made else []),
    )


def test_without_settings_the_built_in_policy_rules() -> None:
    result = resolved()
    assert result == ResolvedPolicy(
        limits=Limits(
            connect=5.0,
            first_token=120.0,
            thinking=120.0,
            idle=120.0,
            total=3600.0,
            keepalive_factor=2.0,
            any_chunk_is_progress=False,
        ),
        mode=Mode.ENFORCE,
        gaps="all",
        max_retries=2,
        retries_explicit=False,
        hidden_reasoning=False,
        rule="default",
        backstop=300.0,
    )


@pytest.mark.parametrize(
    ("model", "effort"), [("gpt-5", None), ("o3-mini", "low"), ("gpt-4o", "high"), (None, "medium")]
)
def test_a_silent_thinker_gets_the_patient_built_ins(model: str | None, effort: str | None) -> None:
    result = resolved(model, effort)
    limits = result.limits
    assert (limits.connect, limits.first_token, limits.thinking, limits.idle, limits.total) == (
        5,
        300,
        300,
        120,
        3600,
    )
    assert (result.hidden_reasoning, result.rule, result.backstop) == (True, "hidden_reasoning", 630.0)


@pytest.mark.parametrize("count", range(1, len(SOURCES) + 1))
def test_the_most_specific_layer_wins(count: int) -> None:
    layers = {source: {"idle": number} for number, source in enumerate(SOURCES[:count], 1)}
    result = resolved(**layers)
    assert result.limits.idle == count
    assert result.rule == {"rule": "rule:mine"}.get(SOURCES[count - 1], SOURCES[count - 1])


@pytest.mark.parametrize("loosest", SOURCES)
def test_every_layer_wins_over_the_built_in(loosest: str) -> None:
    assert resolved(**{loosest: {"idle": 7}}).limits.idle == 7


def test_fields_merge_one_by_one() -> None:
    result = resolved(
        environment={"connect": 1, "first_token": 1, "thinking": 1, "idle": 1, "total": 1, "mode": "observe"},
        code={"first_token": 2, "thinking": 2, "idle": 2, "total": 2, "gaps": "summary"},
        rule={"thinking": 3, "idle": 3, "total": 3, "keepalive_factor": 3},
        client={"idle": 4, "total": 4, "progress": "chunk"},
        call={"total": 5, "max_retries": 5},
    )
    limits = result.limits
    assert (limits.connect, limits.first_token, limits.thinking, limits.idle, limits.total) == (1, 2, 3, 4, 5)
    assert (limits.keepalive_factor, limits.any_chunk_is_progress) == (3.0, True)
    assert (result.mode, result.gaps, result.max_retries, result.rule) == (Mode.OBSERVE, "summary", 5, "call")


def test_off_wins_like_any_value_and_can_be_switched_on_again() -> None:
    assert resolved(environment={"idle": 0}).limits.idle is None
    assert resolved(environment={"idle": 0}, call={"idle": 9}).limits.idle == 9
    assert resolved(environment={"idle": 9}, call={"idle": None}).limits.idle is None


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("value", [120, 1, 600, None])
def test_an_explicit_value_beats_the_patience_for_silent_thinkers_in_both_directions(
    source: str, value: float | None
) -> None:
    limits = resolved("gpt-5", **{source: {"first_token": value}}).limits
    assert limits.first_token == value
    assert limits.thinking == 300


@pytest.mark.parametrize(
    ("model", "effort", "setting", "patient"),
    [
        ("gpt-4o", None, True, True),
        ("gpt-5", None, False, False),
        ("gpt-5", "high", False, False),
        ("gpt-5.1", "none", True, True),
    ],
)
def test_the_list_of_silent_thinkers_can_be_overridden(
    model: str, effort: str | None, setting: bool, patient: bool
) -> None:
    result = resolved(model, effort, rule={"hidden_reasoning": setting})
    assert result.hidden_reasoning is patient
    assert result.limits.thinking == (300 if patient else 120)
    assert result.rule == "rule:mine"


def test_the_last_of_several_matching_rules_wins_field_by_field() -> None:
    rules = [
        Rule(name="all", policy=Policy.of(idle=1, total=1)),
        Rule(name="other model", model="claude*", policy=Policy.of(idle=2, total=2)),
        Rule(name="this route", base_url="https://api.example.com/*", policy=Policy.of(idle=3)),
        Rule(name="other route", base_url="http://localhost*", policy=Policy.of(idle=4)),
    ]
    result = resolved(rules=rules)
    assert (result.limits.idle, result.limits.total, result.rule) == (3, 1, "rule:this route")


def test_the_last_of_nested_blocks_wins_field_by_field() -> None:
    result = resolved(calls=[Policy.of(idle=1, total=1), Policy.of(idle=2)])
    assert (result.limits.idle, result.limits.total, result.rule) == (2, 1, "call")


def test_a_layer_that_sets_nothing_is_not_named() -> None:
    assert resolved(environment={"idle": 3}, rule={}, client={}, call={}).rule == "environment"
    assert resolved("o3", rule={}).rule == "hidden_reasoning"


@pytest.mark.parametrize(
    ("source", "value", "explicit"),
    [(None, 2, False), ("environment", 2, True), ("client", 0, True), ("call", 5, True)],
)
def test_it_is_known_whether_anybody_set_the_retries(source: str | None, value: int, explicit: bool) -> None:
    result = resolved(**({} if source is None else {source: {"max_retries": value}}))
    assert (result.max_retries, result.retries_explicit) == (value, explicit)


@pytest.mark.parametrize(
    ("settings", "given_backstop", "expected"),
    [
        ({}, None, 300.0),
        # 120 s may become 240 s while bytes without progress arrive; and 30 s on top are less than 300 s.
        ({"first_token": 140}, None, 310.0),
        ({"first_token": 400}, None, 630.0),
        ({"first_token": 5000}, None, 5030.0),
        ({"idle": 400}, None, 430.0),
        ({"connect": 400, "first_token": 1, "thinking": 1}, None, 430.0),
        ({"first_token": 140, "keepalive_factor": 1}, None, 300.0),
        # Where a phase is off, the total bounds its silence.
        ({"idle": None}, None, 3630.0),
        ({"first_token": None, "thinking": None, "idle": None, "connect": None, "total": None}, None, 300.0),
        ({}, 60.0, 270.0),
        ({"first_token": 1, "thinking": 1, "idle": 1}, 60.0, 60.0),
        ({}, 900.0, 900.0),
    ],
)
def test_the_backstop_outlasts_every_enforced_wait(
    settings: dict[str, Any], given_backstop: float | None, expected: float
) -> None:
    assert resolved(call=settings, backstop=given_backstop).backstop == expected


def test_a_call_that_is_not_streamed_gets_connect_and_total_only() -> None:
    layers = Layers(environment=Policy.of(idle=3, total=60))
    result = resolve(layers, model="gpt-5", base_url=URL, stream=False)
    assert result.limits == Limits(connect=5.0, total=60.0)
    assert (result.rule, result.backstop) == ("environment", 300.0)


def test_the_built_ins_leave_nothing_open() -> None:
    for deadlines in (BUILT_IN.deadlines, HIDDEN_REASONING):
        assert all(
            isinstance(getattr(deadlines, name), float)
            for name in ("connect", "first_token", "thinking", "idle", "total")
        )


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "connect": st.one_of(st.none(), st.integers(0, 1000)),
        "idle": st.one_of(st.none(), st.integers(0, 1000)),
        "max_retries": st.integers(0, 100),
        "mode": st.sampled_from(list(Mode)),
    },
)


@given(st.fixed_dictionaries(dict.fromkeys(SOURCES, SETTINGS)))
def test_each_field_is_that_of_the_most_specific_layer_that_sets_it(
    layers: dict[str, dict[str, Any]],
) -> None:
    result = resolved(**layers)

    def expected(name: str, built_in: Any) -> Any:
        return next(
            (layers[source][name] for source in reversed(SOURCES) if name in layers[source]), built_in
        )

    assert result.limits.connect == (expected("connect", 5) or None)
    assert result.limits.idle == (expected("idle", 120) or None)
    assert result.max_retries == expected("max_retries", 2)
    assert result.mode == expected("mode", "enforce")
    assert result.backstop >= result.limits.longest_silence() + 30


def test_each_setting_knows_the_layer_that_decided_it() -> None:
    layers = Layers(
        environment=Policy.of(idle=1, total=9),
        code=Policy.of(idle=2),
        rules=(Rule(name="mine", model="m*", policy=Policy.of(mode="observe")),),
    )
    resolved = resolve(layers, model="m1", base_url=None, calls=[Policy.of(max_retries=0)])
    assert {
        name: resolved.decided_by(name) for name in ("connect", "total", "idle", "mode", "max_retries")
    } == {
        "connect": "built-in",
        "total": "environment",
        "idle": "code",
        "mode": "rule:mine",
        "max_retries": "call",
    }
