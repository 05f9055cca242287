"""What keywords say, and what they win over."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stallwatch.policy import Deadlines, Policy, Rule
from stallwatch.resolution import Layers
from stallwatch.settings import load


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"idle": 30}, {"idle": 30}),
        ({"idle_timeout": 30}, {"idle": 30}),
        (
            {"connect_timeout": "3s", "first_token_timeout": timedelta(minutes=1)},
            {"connect": 3, "first_token": 60},
        ),
        ({"thinking_timeout": None, "total_timeout": 0}, {"thinking": None, "total": None}),
        (
            {"mode": "observe", "progress": "chunk", "gaps": "off"},
            {"mode": "observe", "progress": "chunk", "gaps": "off"},
        ),
        ({"max_retries": 0, "keepalive_factor": 3}, {"max_retries": 0, "keepalive_factor": 3}),
        ({"hidden_reasoning": True}, {"hidden_reasoning": True}),
        # As configuration files pass them on: quoted, or YAML's reading of a bare off.
        ({"max_retries": "3", "keepalive_factor": "1.5"}, {"max_retries": 3, "keepalive_factor": 1.5}),
        ({"mode": False, "gaps": False, "idle": False}, {"mode": "off", "gaps": "off", "idle": None}),
        ({"hidden_reasoning": False}, {"hidden_reasoning": False}),
        ({"hidden_reasoning": "true", "mode": "OBSERVE"}, {"hidden_reasoning": True, "mode": "observe"}),
    ],
)
def test_keywords_are_the_code_layer(options: dict[str, Any], meant: dict[str, Any]) -> None:
    assert load({}, **options) == Layers(code=Policy.of(**meant))


def test_a_policy_is_the_code_layer_and_keywords_are_laid_over_it() -> None:
    given_policy = Policy(deadlines=Deadlines(idle=30, total=60), mode="observe")
    assert load({}, policy=given_policy) == Layers(code=given_policy)
    assert load({}, policy=given_policy, idle=5, mode="off").code == Policy.of(idle=5, total=60, mode="off")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"idle": "abc"}, ("idle='abc'", "at most 1,000,000")),
        ({"idle_timeout": "abc"}, ("idle_timeout='abc'", "'500ms'")),
        ({"max_retries": -1}, ("max_retries=-1", "from 0 to 100")),
        ({"mode": "on"}, ("mode='on'", "'observe'")),
        ({"mode": None}, ("mode=None", "'observe'")),
        ({"keepalive_factor": []}, ("keepalive_factor=[]", "from 1 to 10")),
        ({"hidden_reasoning": "maybe"}, ("hidden_reasoning='maybe'", "true or false")),
        ({"span_backstop": "never"}, ("span_backstop='never'", "seconds")),
        ({"span_backstop": 0}, ("span_backstop=0", "above 0")),
        ({"policy_file": 3}, ("policy_file=3", "path of a TOML file")),
        ({"policy_file": ""}, ("policy_file=''", "path of a TOML file")),
        ({"policy_file": b"a.toml"}, ("policy_file=b'a.toml'", "path of a TOML file")),
        ({"idel": 3}, ("idel", "did you mean idle?")),
        ({"idel_timeout": 3}, ("idel_timeout", "did you mean idle")),
        ({"retries": 3}, ("retries", "did you mean max_retries?")),
        ({"idle": 3, "idle_timeout": 4}, ("idle_timeout=4", "idle is set already")),
        ({"policy": {"idle": 3}}, ("policy={'idle': 3}", "a Policy")),
        ({"rules": [Policy()]}, ("rules=Policy", "Rule objects")),
        ({"deadlines": Deadlines()}, ("deadlines", "known are", "first_token")),
    ],
)
def test_a_bad_keyword_is_refused_naming_it_its_value_and_what_is_allowed(
    options: dict[str, Any], said: tuple[str, str]
) -> None:
    with pytest.raises(ValueError, match="not") as caught:
        load({}, **options)
    for part in said:
        assert part in str(caught.value)


def test_a_bad_keyword_does_not_hide_behind_a_bad_environment(warnings_of: Any) -> None:
    with pytest.raises(ValueError, match="idle"):
        load({"STALLWATCH_MODE": "bad"}, idle="bad")


def test_keywords_win_over_variables_for_what_is_not_layered(policy_file: Any, tmp_path: Path) -> None:
    environ = policy_file("[default]\nidle = 3") | {"STALLWATCH_SPAN_BACKSTOP": "400"}
    other = tmp_path / "other.toml"
    other.write_text("[default]\nidle = 4\nspan_backstop = 500")
    layers = load(environ, policy_file=other, span_backstop=600)
    assert (layers.environment, layers.backstop) == (Policy.of(idle=4), 600.0)


def test_rules_in_code_come_after_those_of_the_file(policy_file: Any) -> None:
    mine = Rule(name="mine", policy=Policy.of(idle=2))
    layers = load(policy_file("[[rule]]\nname = 'file'\nidle = 1"), rules=iter([mine]))
    assert layers.rules == (Rule(name="file", policy=Policy.of(idle=1)), mine)
