"""What the environment, a policy file and keywords say."""

from __future__ import annotations

import ast
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stallwatch
from stallwatch import settings
from stallwatch.known_settings import BY_VARIABLE
from stallwatch.policy import Deadlines, Policy, Rule
from stallwatch.resolution import Layers, resolve
from stallwatch.settings import SETTINGS, load, settings_table

DOCUMENTED = {
    "STALLWATCH_MODE",
    "STALLWATCH_CONNECT_TIMEOUT",
    "STALLWATCH_FIRST_TOKEN_TIMEOUT",
    "STALLWATCH_THINKING_TIMEOUT",
    "STALLWATCH_IDLE_TIMEOUT",
    "STALLWATCH_TOTAL_TIMEOUT",
    "STALLWATCH_MAX_RETRIES",
    "STALLWATCH_PROGRESS",
    "STALLWATCH_KEEPALIVE_FACTOR",
    "STALLWATCH_GAPS",
    "STALLWATCH_SPAN_BACKSTOP",
    "STALLWATCH_POLICY_FILE",
}

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


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Any:
    """Load, and return the layers with the texts that were logged meanwhile."""
    caplog.set_level(logging.DEBUG, logger="stallwatch")

    def run(*args: Any, **kwargs: Any) -> tuple[Layers, list[str]]:
        caplog.clear()
        layers = load(*args, **kwargs)
        assert all(record.levelno == logging.WARNING for record in caplog.records)
        assert all(record.name == "stallwatch" for record in caplog.records)
        return layers, caplog.messages[:]

    return run


class Files:
    """Writes policy files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, text: str | bytes) -> dict[str, str]:
        path = self._folder / "policy.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"STALLWATCH_POLICY_FILE": str(path)}


@pytest.fixture
def policy_file(tmp_path: Path) -> Files:
    return Files(tmp_path)


# The list of settings


def test_the_documented_variables_are_those_of_the_table() -> None:
    assert set(BY_VARIABLE) == DOCUMENTED


def test_every_variable_in_the_table_is_read(warnings_of: Any, policy_file: Files) -> None:
    values = (
        {name: text for name, text, _ in GOOD}
        | {"STALLWATCH_SPAN_BACKSTOP": "400s"}
        | policy_file("[default]\nidle = 3")
    )
    assert values.keys() == DOCUMENTED
    for name, text in values.items():
        layers, warnings = warnings_of({name: text})
        assert layers != Layers(), name
        assert warnings == [], name


def test_every_variable_named_in_the_code_is_in_the_table() -> None:
    named: set[str] = set()
    for path in Path(stallwatch.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(re.findall(r"STALLWATCH_[A-Z_]*[A-Z]", node.value))
    assert named <= DOCUMENTED


def test_the_table_tells_everything_about_each_setting() -> None:
    lines = settings_table().splitlines()
    assert len(lines) == len(SETTINGS) + 2
    assert {line.count("|") for line in lines} == {6}
    for item, line in zip(SETTINGS, lines[2:], strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells == [
            f"`{item.variable}`" if item.variable else "",
            f"`{item.keyword}`",
            item.default,
            item.allowed,
            item.meaning,
        ]
        assert all((item.name, item.default, item.allowed, item.meaning))


def test_the_defaults_in_the_table_are_those_that_apply() -> None:
    usual = resolve(Layers(), model="gpt-4o", base_url=None)
    patient = resolve(Layers(), model="gpt-5", base_url=None)
    defaults = {item.keyword: item.default for item in SETTINGS}
    for name in ("connect", "first_token", "thinking", "idle", "total"):
        values = [getattr(resolved.limits, name) for resolved in (usual, patient)]
        assert [float(text) for text in re.findall(r"(\d+) s\b", defaults[name])] == list(
            dict.fromkeys(values)
        )
    assert defaults["mode"] == usual.mode
    assert defaults["gaps"] == usual.gaps
    assert int(defaults["max_retries"]) == usual.max_retries
    assert float(defaults["keepalive_factor"]) == usual.limits.keepalive_factor
    assert (defaults["progress"] == "chunk") is usual.limits.any_chunk_is_progress
    assert defaults["span_backstop"].startswith(f"{usual.backstop:g} s")


def test_every_policy_field_can_be_set_flat() -> None:
    flat = {item.keyword for item in SETTINGS} - {"span_backstop", "policy_file"}
    with pytest.raises(ValueError, match="choose from") as caught:
        Policy.of(nothing=1)
    assert flat == set(str(caught.value).partition("choose from ")[2].split(", ")) - {"deadlines", "retry"}


# The environment


def test_an_empty_environment_says_nothing(warnings_of: Any) -> None:
    assert warnings_of({}) == (Layers(), [])


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
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
    assert warning.startswith(f"{name} ")
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


@given(st.dictionaries(st.sampled_from(sorted(DOCUMENTED - {"STALLWATCH_POLICY_FILE"})), st.text()))
def test_no_environment_breaks_the_host(environ: dict[str, str]) -> None:
    assert isinstance(load(environ), Layers)


# Keywords


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
        ({"deadlines": Deadlines()}, ("deadlines", "did you mean")),
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


def test_keywords_win_over_variables_for_what_is_not_layered(policy_file: Files, tmp_path: Path) -> None:
    environ = policy_file("[default]\nidle = 3") | {"STALLWATCH_SPAN_BACKSTOP": "400"}
    other = tmp_path / "other.toml"
    other.write_text("[default]\nidle = 4\nspan_backstop = 500")
    layers = load(environ, policy_file=other, span_backstop=600)
    assert (layers.environment, layers.backstop) == (Policy.of(idle=4), 600.0)


def test_rules_in_code_come_after_those_of_the_file(policy_file: Files) -> None:
    mine = Rule(name="mine", policy=Policy.of(idle=2))
    layers = load(policy_file("[[rule]]\nname = 'file'\nidle = 1"), rules=iter([mine]))
    assert layers.rules == (Rule(name="file", policy=Policy.of(idle=1)), mine)


# The policy file

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


def test_a_policy_file_is_understood(warnings_of: Any, policy_file: Files) -> None:
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


def test_variables_win_over_the_files_defaults_and_rules_over_both(policy_file: Files) -> None:
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


def test_a_bad_variable_leaves_the_files_default(warnings_of: Any, policy_file: Files) -> None:
    layers, warnings = warnings_of(policy_file("[default]\nidle = 3") | {"STALLWATCH_IDLE_TIMEOUT": "abc"})
    assert layers.environment == Policy.of(idle=3)
    assert len(warnings) == 1


@pytest.mark.parametrize("text", ["", "# nothing\n", "rule = []\n", "[default]\n"])
def test_a_file_may_say_nothing(warnings_of: Any, policy_file: Files, text: str) -> None:
    assert warnings_of(policy_file(text)) == (Layers(), [])


def test_a_rule_without_a_name_is_named_by_its_model_or_number_never_by_its_address(
    policy_file: Files,
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
    warnings_of: Any, policy_file: Files, content: str | bytes, said: str
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
        ("idle = 3", ("idle", "did you mean")),
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
    warnings_of: Any, policy_file: Files, text: str, said: tuple[str, ...]
) -> None:
    environ = policy_file(text)
    layers, warnings = warnings_of(environ)
    assert layers == Layers()
    (warning,) = warnings
    for part in (environ["STALLWATCH_POLICY_FILE"], *said):
        assert part in warning


def test_only_the_bad_fields_of_the_defaults_are_left_out(warnings_of: Any, policy_file: Files) -> None:
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
    warnings_of: Any, policy_file: Files, rule: str, said: tuple[str, ...]
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


def test_the_module_gives_the_list_away() -> None:
    assert set(settings.__all__) == {"SETTINGS", "Setting", "load", "settings_table"}
