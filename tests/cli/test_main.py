"""The command line: help, version, and one clear sentence when an extra is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallwatch.cli.demo import child_env
from stallwatch.cli.extras import CannotRun
from stallwatch.cli.main import main
from stallwatch.version import __version__


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("demo", "gateway", "policy", "doctor"))


@pytest.mark.parametrize(
    "command", [[], ["demo"], ["gateway"], ["policy"], ["doctor"]], ids=lambda command: str(command[:1])
)
@pytest.mark.parametrize("width", [50, 80, 100])
def test_help_fits_the_terminal(
    command: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_the_lines_of_an_epilog_stay_apart_and_indented(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    text = capsys.readouterr().out
    assert "exit code:\n  0  every guarded run did what it should\n  1  one did not" in text
    _, _, collector = text.partition("with a collector:\n")
    assert len(collector.splitlines()) > 5
    assert all(line.startswith("  ") for line in collector.splitlines())


def test_without_a_command_the_help_is_shown_and_the_code_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: stallwatch" in capsys.readouterr().out


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"stallwatch {__version__}\n"


def test_without_rich_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert main(["demo"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("stallwatch: rich is not installed: pip install rich")
    assert len(told.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_help_needs_neither_rich_nor_the_otel_sdk() -> None:
    # Taken away, and not only looked for: some versions of the HTTP library import rich where it is there.
    code = (
        "import sys\n"
        "for name in ('rich', 'opentelemetry.sdk', 'opentelemetry.proto'): sys.modules[name] = None\n"
        "from stallwatch.cli.main import main\nmain(['demo', '--help'])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: stallwatch demo" in done.stdout


def test_an_output_that_cannot_be_written_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    runner = pytest.importorskip("stallwatch.cli.demo.runner")
    monkeypatch.setattr(runner, "check_runnable", lambda: "opentelemetry-instrument")
    monkeypatch.setattr("stallwatch.cli.demo.command.need", lambda *_: None)
    assert main(["demo", "--output", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_launcher_and_the_entry_point_are_looked_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = pytest.importorskip("stallwatch.cli.demo.runner")
    monkeypatch.setattr(runner, "which", lambda _: None)
    with pytest.raises(CannotRun, match="opentelemetry-instrument is not installed: pip install"):
        runner.check_runnable()


def test_the_programs_get_nothing_of_the_users_that_could_bend_or_leak() -> None:
    around = {
        "PATH": "/bin",
        "OPENAI_API_KEY": "a-real-key",
        "OPENAI_ORG_ID": "org",
        "https_proxy": "http://proxy",
        "OTEL_SDK_DISABLED": "true",
        "OTEL_SERVICE_NAME": "shop",
        "OTEL_RESOURCE_ATTRIBUTES": "team=a",
        "STALLWATCH_MODE": "off",
    }
    bare = child_env.bare_env("http://gateway/v1", around)
    assert (bare["PATH"], bare["OPENAI_API_KEY"], bare["OPENAI_BASE_URL"]) == (
        "/bin",
        "demo",
        "http://gateway/v1",
    )
    guarded = child_env.guarded_env(
        "http://gateway/v1", scene="healthy", sink="http://sink", policy_file=Path("p.toml"), environ=around
    )
    assert guarded["OTEL_SERVICE_NAME"] == "shop"
    assert guarded["OTEL_RESOURCE_ATTRIBUTES"] == "team=a,stallwatch.demo.scene=healthy"
    assert guarded["STALLWATCH_IDLE_TIMEOUT"] == "1.2s"
    assert not {"OPENAI_ORG_ID", "https_proxy", "OTEL_SDK_DISABLED", "STALLWATCH_MODE"} & guarded.keys()
    assert not any(name.startswith("STALLWATCH_") for name in bare)
