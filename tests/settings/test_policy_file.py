"""What a policy file says, and what is said about what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.policy import Policy, Rule
from stallwatch.resolution import Layers, resolve
from stallwatch.settings import load

WHOLE_FILE = """
[default]
idle = 90
total_timeout = "10m"
max_retries = 1
span_backstop = 700

[[rule]]
name = "thinkers"
model = "gpt-5*"
first_token = "5m"
thinking_timeout = 600
hidden_reasoning = true

[[rule]]
name = "local"
base_url = "http://localhost:*"
connect = 1
first_token = "off"
mode = "observe"
keepalive_factor = 3
progress = "chunk"
gaps = "summary"
max_retries = 0
"""


def test_a_policy_file_is_understood(warnings_of: Any, policy_file: Any) -> None:
    layers, warnings = warnings_of(policy_file(WHOLE_FILE))
    assert warnings == []
    assert layers == Layers(
        environment=Policy.of(idle=90, total=600, max_retries=1),
        backstop=700.0,
        rules=(
            Rule(
                name="thinkers",
                model="gpt-5*",
                policy=Policy.of(first_token=300, thinking=600, hidden_reasoning=True),
            ),
            Rule(
                name="local",
                base_url="http://localhost:*",
                policy=Policy.of(
                    connect=1,
                    first_token=None,
                    mode="observe",
                    keepalive_factor=3,
                    progress="chunk",
                    gaps="summary",
                    max_retries=0,
                ),
            ),
        ),
    )


def test_variables_win_over_the_files_defaults_and_rules_over_both(policy_file: Any) -> None:
    environ = policy_file(
        "[default]\nidle = 3\ntotal = 30\nspan_backstop = 400\n[[rule]]\nmodel = 'gpt*'\ntotal = 9"
    )
    layers = load(
        environ
        | {
            "STALLWATCH_IDLE_TIMEOUT": "5",
            "STALLWATCH_TOTAL_TIMEOUT": "50",
            "STALLWATCH_SPAN_BACKSTOP": "500",
        }
    )
    assert layers.environment == Policy.of(idle=5, total=50)
    assert layers.backstop == 500.0
    limits = resolve(layers, model="gpt-4o", base_url=None).limits
    assert (limits.idle, limits.total) == (5, 9)


def test_a_bad_variable_leaves_the_files_default(warnings_of: Any, policy_file: Any) -> None:
    layers, warnings = warnings_of(policy_file("[default]\nidle = 3") | {"STALLWATCH_IDLE_TIMEOUT": "abc"})
    assert layers.environment == Policy.of(idle=3)
    assert len(warnings) == 1


@pytest.mark.parametrize("text", ["", "# nothing\n", "rule = []\n", "[default]\n"])
def test_a_file_may_say_nothing(warnings_of: Any, policy_file: Any, text: str) -> None:
    assert warnings_of(policy_file(text)) == (Layers(), [])


def test_a_rule_without_a_name_is_named_by_its_model_or_number_never_by_its_address(
    policy_file: Any,
) -> None:
    layers = load(policy_file("[[rule]]\nmodel = 'gpt-5*'\n[[rule]]\nbase_url = 'https://user:pass@host/*'"))
    assert [rule.name for rule in layers.rules] == ["gpt-5*", "2"]


def test_a_file_in_the_home_folder_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "policy.toml").write_text("[default]\nidle = 3")
    assert load({"STALLWATCH_POLICY_FILE": "~/policy.toml"}).environment == Policy.of(idle=3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("idle = \n[default]\n", "line 1"),
        ("[default]\nidle = 1\nidle = 2\n", "line 3"),
        (b"\xff\xfe\x00", "decode"),
        ("a = " + "[" * 5000, "not allowed"),
        ("a = " + "9" * 5000, "digits"),
    ],
    ids=["not TOML", "a key twice", "not UTF-8", "nested too deep", "too many digits"],
)
def test_a_broken_file_is_one_warning(
    warnings_of: Any, policy_file: Any, content: str | bytes, said: str
) -> None:
    environ = policy_file(content)
    layers, warnings = warnings_of(environ | {"STALLWATCH_MODE": "off"})
    assert layers == Layers(environment=Policy.of(mode="off"))
    (warning,) = warnings
    assert environ["STALLWATCH_POLICY_FILE"] in warning
    assert said in warning
    assert "TOML" in warning


@pytest.mark.parametrize("name", ["missing.toml", ".", "\0", "~nobody-of-this-name/policy.toml"])
@pytest.mark.parametrize("way", ["variable", "keyword"])
def test_an_unreadable_file_is_one_warning(warnings_of: Any, tmp_path: Path, name: str, way: str) -> None:
    path = name if name.startswith("~") else f"{tmp_path}/{name}"
    given_file = ({"STALLWATCH_POLICY_FILE": path}, {}) if way == "variable" else ({}, {"policy_file": path})
    layers, warnings = warnings_of(given_file[0], **given_file[1])
    assert layers == Layers()
    (warning,) = warnings
    assert name.strip(".") in warning


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults]\nidle = 3", ("defaults", "did you mean default?")),
        ("[[rules]]\nidle = 3", ("rules", "did you mean rule?")),
        ("idle = 3", ("idle", "known are default, rule")),
        ("[rule]\nidle = 3", ("rule", "write [[rule]]")),
        ("rule = 3", ("rule", "write [[rule]]")),
        ("rule = [3]", ("rule 1", "write [[rule]]")),
        ("default = 3", ("default", "write [default]")),
        ("[default]\nidle = 'abc'", ("[default]", "idle='abc'", "'500ms'")),
        ("[default]\nidle = inf", ("[default]", "idle=inf", "at most")),
        ("[default]\nidle = 2020-01-01", ("[default]", "idle=datetime.date", "at most")),
        ("[default]\nidel = 3", ("[default]", "did you mean idle?")),
        ("[default]\npolicy_file = 'x.toml'", ("[default]", "policy_file", "not a setting")),
        ("[default.deadlines]\nidle = 3", ("[default]", "deadlines", "not a setting")),
    ],
)
def test_what_is_wrong_in_a_file_is_one_warning_naming_file_table_and_what_is_allowed(
    warnings_of: Any, policy_file: Any, text: str, said: tuple[str, ...]
) -> None:
    environ = policy_file(text)
    layers, warnings = warnings_of(environ)
    assert layers == Layers()
    (warning,) = warnings
    for part in (environ["STALLWATCH_POLICY_FILE"], *said):
        assert part in warning


def test_only_the_bad_fields_of_the_defaults_are_left_out(warnings_of: Any, policy_file: Any) -> None:
    layers, warnings = warnings_of(
        policy_file("[default]\nidle = 3\nmode = 'bad'\ntotal = 'bad'\nconnect = 1")
    )
    assert layers == Layers(environment=Policy.of(idle=3, connect=1))
    assert len(warnings) == 2


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("name = 'bad'\nidle = 'abc'", ("'bad'", "idle='abc'", "'500ms'")),
        ("name = 'bad'\nmax_retries = -1", ("'bad'", "max_retries=-1", "from 0 to 100")),
        ("name = 'bad'\nidel = 3", ("'bad'", "did you mean idle?")),
        ("name = 'bad'\nmodell = 'gpt*'\nidle = 3", ("'bad'", "did you mean model?")),
        ("name = 'bad'\nspan_backstop = 3", ("'bad'", "span_backstop", "not a setting")),
        ("name = 'bad'\nmodel = 3\nidle = 3", ("'bad'", "model=3", "text")),
        ("name = 3\nidle = 3", ("name=3", "text")),
        ("name = ''\nidle = 3", ("name=''", "text")),
        ("name = 'bad'\nmode = 'bad'\ngaps = 'bad'", ("'bad'", "mode='bad'", "gaps='bad'")),
    ],
)
def test_a_bad_rule_is_one_warning_and_only_that_rule_is_skipped(
    warnings_of: Any, policy_file: Any, rule: str, said: tuple[str, ...]
) -> None:
    environ = policy_file(
        f"[[rule]]\nname = 'first'\nidle = 1\n[[rule]]\n{rule}\n[[rule]]\nname = 'last'\nidle = 3"
    )
    layers, warnings = warnings_of(environ)
    assert [found.name for found in layers.rules] == ["first", "last"]
    (warning,) = warnings
    for part in (environ["STALLWATCH_POLICY_FILE"], "[[rule]] number 2", "the rule is skipped", *said):
        assert part in warning


@given(st.binary(max_size=60) | st.text("[]=\"'default rule idle\n0123456789.", max_size=80).map(str.encode))
def test_no_file_breaks_the_host(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    assert isinstance(load({}, policy_file=path), Layers)
