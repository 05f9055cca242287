"""What is set, what of it is understood, and which limits a call gets of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stallwatch
from stallwatch.cli.doctor.examination import examine
from stallwatch.cli.doctor.limits import Asked, limits, resolved_for, settings
from stallwatch.cli.doctor.report import Finding, Level
from support.findings import by_key
from support.telemetry import instrumented

FILE = """
[default]
total = 60

[[rule]]
name = "good"
model = "big-*"
idle = 7

[[rule]]
name = "bad"
idel = 7
"""


def test_a_setting_that_is_understood_is_ok_and_one_that_is_not_is_a_problem() -> None:
    found = by_key(
        settings(
            {
                "STALLWATCH_IDLE_TIMEOUT": "soon",
                "STALLWATCH_TOTAL_TIMEOUT": "2m",
                "STALLWATCH_TOTLE_TIMEOUT": "1",
                "STALLWATCH_GAPS": " ",
                "OTHER": "x",
            }
        )
    )
    assert len(found) == 4
    bad = found["variable.STALLWATCH_IDLE_TIMEOUT"]
    assert (bad.level, bad.value, bad.data["understood"]) == (Level.PROBLEM, "soon", False)
    assert "120 s" in bad.detail
    assert "'500ms'" in bad.advice
    assert found["variable.STALLWATCH_TOTAL_TIMEOUT"].level is Level.OK
    unknown = found["variable.STALLWATCH_TOTLE_TIMEOUT"]
    assert (unknown.level, "did you mean STALLWATCH_TOTAL_TIMEOUT?" in unknown.advice) == (
        Level.PROBLEM,
        True,
    )
    assert found["variable.STALLWATCH_GAPS"].level is Level.NOTE


def test_the_policy_file_is_told_with_what_is_wrong_in_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    found = by_key(settings({"STALLWATCH_POLICY_FILE": str(path)}))["policy-file"]
    assert (found.level, found.value) == (Level.PROBLEM, str(path))
    assert "idel is not a setting" in found.detail
    assert "1 rule and a [default]" in found.detail
    assert found.data["rules"] == ["good"]
    path.write_text(FILE.replace("idel", "idle"))
    found = by_key(settings({"STALLWATCH_POLICY_FILE": str(path)}))["policy-file"]
    assert (found.level, found.detail) == (Level.OK, "2 rules and a [default]")


def test_a_policy_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    found = by_key(settings({"STALLWATCH_POLICY_FILE": str(tmp_path / "no.toml")}))
    assert found["policy-file"].level is Level.PROBLEM
    assert found["variable.STALLWATCH_POLICY_FILE"].level is Level.OK


def _limits(environ: dict[str, str], **asked: Any) -> dict[str, Finding]:
    what = Asked(**asked)
    return by_key(limits(resolved_for(None, environ, what), environ, what))


def test_each_limit_is_told_with_the_layer_that_decided_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(FILE.replace("idel", "thinking"))
    environ = {"STALLWATCH_POLICY_FILE": str(path), "STALLWATCH_FIRST_TOKEN_TIMEOUT": "9"}
    found = _limits(environ, model="big-one", client_policy=stallwatch.Policy.of(connect=3))
    told = {key: (finding.value, finding.detail) for key, finding in found.items()}
    assert told["idle"] == ("7 s", "rule:good")
    assert told["total"] == ("60 s", "file")
    assert told["first_token"] == ("9 s", "environment")
    assert told["connect"] == ("3 s", "client")
    assert told["gaps"] == ("all", "built-in")
    assert found["decided-by"].value == "built-in < environment < rule:good < rule:bad < client"


WAITS = {
    "as built in": ({}, 2, Level.OK, 960.0),
    "a client that retries no more": ({}, 0, Level.OK, 240.0),
    "nothing bounds it": (
        {"STALLWATCH_TOTAL_TIMEOUT": "0", "STALLWATCH_FIRST_TOKEN_TIMEOUT": "0"},
        2,
        Level.WARNING,
        None,
    ),
}


@pytest.mark.parametrize(("environ", "retries", "level", "seconds"), WAITS.values(), ids=WAITS.keys())
def test_the_longest_wait_is_told(
    environ: dict[str, str], retries: int, level: Level, seconds: float | None
) -> None:
    found = _limits(environ, model="gpt-4o", max_retries=retries)["longest.first_token"]
    assert (found.level, found.data["seconds"]) == (level, seconds)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_mode_that_ends_nothing_is_one_warning(mode: str) -> None:
    found = _limits({"STALLWATCH_MODE": mode}, model="m")
    assert [key for key, finding in found.items() if finding.level is not Level.OK] == ["mode"]


def test_what_an_instrumented_program_has_set_in_code_counts() -> None:
    with instrumented(idle=4):
        found = by_key(next(s for s in examine(model="m").sections if s.key == "policy"))
    assert (found["idle"].value, found["idle"].detail) == ("4 s", "code")
