"""``stallwatch policy``: what it says is what a call would get."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from stallwatch.cli.main import main
from stallwatch.cli.policy import bounds, explain
from stallwatch.resolution import resolve
from stallwatch.settings import load

FILE = """
[default]
total = 60

[[rule]]
name = "patient"
model = "big-*"
first_token = 500

[[rule]]
name = "route"
base_url = "*internal*"
idle = 7
mode = "observe"
"""


WITH_RICH = pytest.param(
    True, id="rich", marks=pytest.mark.skipif(importlib.util.find_spec("rich") is None, reason="needs rich")
)


@pytest.fixture(autouse=True, params=[WITH_RICH, pytest.param(False, id="plain")])
def with_rich(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is the same with rich and without."""
    if not request.param:
        monkeypatch.setitem(sys.modules, "rich", None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    return path


def _told(environ: dict[str, str], model: str, base_url: str | None = None) -> dict[str, tuple[str, str]]:
    resolved = resolve(load(environ), model=model, base_url=base_url)
    variables = load(environ, policy_file=os.devnull).environment
    return {line.name: (line.value, line.decided_by) for line in explain(resolved, variables)}


def test_each_limit_names_the_layer_that_decided_it(file: Path) -> None:
    environ = {
        "STALLWATCH_POLICY_FILE": str(file),
        "STALLWATCH_IDLE_TIMEOUT": "0",
        "STALLWATCH_FIRST_TOKEN_TIMEOUT": "9",
    }
    told = _told(environ, "big-model", "http://internal/v1")
    assert told["first_token"] == ("500 s", "rule:patient")
    assert told["idle"] == ("7 s", "rule:route")
    assert told["mode"] == ("observe", "rule:route")
    assert told["total"] == ("60 s", "file")
    assert told["connect"] == ("5 s", "built-in")
    assert _told(environ, "small")["idle"] == ("off", "environment")
    assert _told(environ, "small")["first_token"] == ("9 s", "environment")
    assert _told({**environ, "STALLWATCH_TOTAL_TIMEOUT": "50"}, "small")["total"] == ("50 s", "environment")


def test_a_silent_thinker_gets_the_longer_built_in() -> None:
    told = _told({}, "gpt-5")
    assert told["first_token"] == ("300 s", "built-in (hidden reasoning)")
    assert told["idle"] == ("120 s", "built-in")


def test_the_command_prints_it(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STALLWATCH_POLICY_FILE", str(file))
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["policy", "--model", "big-[model]"]) == 0
    text = capsys.readouterr().out
    assert "big-[model]" in text
    (line,) = [line for line in text.splitlines() if line.startswith("first_token")]
    assert line.split()[1:4] == ["500", "s", "rule:patient"]


@pytest.mark.parametrize(
    "url", ["http://internal/v1", "http://internal/v1/", "http://user:pass@internal/v1?key=x#f"]
)
def test_a_rule_sees_the_address_as_it_does_in_a_call(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[[rule]]\nname = "exact"\nbase_url = "http://internal/v1"\nidle = 7\n')
    monkeypatch.setenv("STALLWATCH_POLICY_FILE", str(path))
    assert main(["policy", "--model", "m", "--base-url", url]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("idle")]
    assert line.split()[1:4] == ["7", "s", "rule:exact"]


def test_what_is_wrong_with_the_environment_is_told_once(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("STALLWATCH_POLICY_FILE", str(file))
    monkeypatch.setenv("STALLWATCH_IDLE_TIMEOUT", "soon")
    assert main(["policy", "--model", "m"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("total")]
    assert line.split()[1:4] == ["60", "s", "file"]
    assert [record.message.partition("=")[0] for record in caplog.records] == [
        "stallwatch: STALLWATCH_IDLE_TIMEOUT"
    ]


def test_an_effort_that_does_not_exist_is_refused_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["policy", "--model", "m", "--effort", "hihg"])
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert "hihg" in told
    assert all(effort in told for effort in ("none", "minimal", "low", "medium", "high"))


WORST = {
    "as built in": ({}, ["960 s", "240 s", "3600 s"], "3 attempts"),
    "no retries": ({"STALLWATCH_MAX_RETRIES": "0"}, ["240 s", "240 s", "3600 s"], "a single attempt"),
    "no total": ({"STALLWATCH_TOTAL_TIMEOUT": "0"}, ["960 s", "240 s", "for ever"], "3 attempts"),
    "observing": ({"STALLWATCH_MODE": "observe"}, ["for ever"] * 3, "3 attempts"),
}


@pytest.mark.parametrize(("environ", "waits", "tries"), WORST.values(), ids=WORST.keys())
def test_it_says_how_long_a_caller_can_wait(environ: dict[str, str], waits: list[str], tries: str) -> None:
    told = list(bounds(resolve(load(environ), model="gpt-4o", base_url=None)))
    assert [bound.wait for bound in told] == waits
    assert tries in told[0].meaning


def test_the_command_prints_how_long_a_caller_can_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["policy", "--model", "o3"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "2040 s  until progress or an error, 3 attempts and the pauses between them" in lines
    assert "3600 s  in all" in lines
