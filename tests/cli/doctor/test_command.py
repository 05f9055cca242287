"""``stallwatch doctor`` as a command: exit codes, forms of output, and environments that lack something."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stallwatch.cli.doctor import examination
from stallwatch.cli.doctor.report import Level
from stallwatch.cli.doctor.show import rendered
from stallwatch.cli.main import main
from stallwatch.governing import patched
from stallwatch.version import __version__

SECTIONS = ["versions", "seams", "others", "telemetry", "settings", "policy", "network"]


def test_a_healthy_environment_is_0_and_a_problem_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exit_code"] == 0
    monkeypatch.setenv("STALLWATCH_IDLE_TIMEOUT", "soon")
    assert main(["doctor", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["worst"], told["exit_code"]) == ("problem", 1)
    assert patched() == []


USAGE = {
    "a probe without a model": (["--probe", "--base-url", "http://h/v1"], "needs --model"),
    "an address without a scheme": (["--base-url", "user:sentinel@host/v1"], "http://HOST"),
    "an address of another kind": (["--base-url", "ftp://user:sentinel@host"], "http://HOST"),
    "an effort that does not exist": (["--effort", "hihg"], "medium"),
}


@pytest.mark.parametrize(("arguments", "told"), USAGE.values(), ids=USAGE.keys())
def test_what_is_not_understood_is_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["doctor", *arguments])
    except SystemExit as left:
        code = int(left.code or 0)
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert told in said.err
    assert "sentinel" not in said.err


def test_the_json_has_stable_sections_and_no_word_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--model", "gpt-4o", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told.keys() == {"format", "stallwatch", "worst", "exit_code", "sections"}
    assert list(told["sections"]) == SECTIONS
    for section in told["sections"].values():
        for finding in section["findings"]:
            assert finding.keys() == {"key", "level", "title", "value", "detail", "advice", "data"}
            assert bool(finding["advice"]) is (finding["level"] in ("warning", "problem"))


def test_what_is_wrong_with_the_environment_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STALLWATCH_IDLE_TIMEOUT", "soon")
    monkeypatch.setenv("COLUMNS", "100")
    main(["doctor"])
    told = capsys.readouterr()
    assert told.out.count("not understood") == 1
    assert told.out.rstrip().endswith("What is set: STALLWATCH_IDLE_TIMEOUT soon") or "1 problem" in told.out
    assert (told.err, caplog.messages) == ("", [])


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_picture_for_a_terminal_fits_and_has_every_finding(width: int) -> None:
    console = pytest.importorskip("rich.console")
    out = io.StringIO()
    report = examination.examine(model="gpt-4o")
    console.Console(file=out, width=width, color_system=None).print(rendered(report, width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(out.getvalue().split())
    for section, finding in report.all():
        assert section.title in words
        if finding.level in (Level.WARNING, Level.PROBLEM):
            assert "→" in words
    assert all(len(line) <= width for line in lines)


# In processes of their own


def _run(*arguments: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    program = (
        f"{code}\nfrom stallwatch.cli.main import main\nraise SystemExit(main({['doctor', *arguments]!r}))"
    )
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "COLUMNS": "120",
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_it_needs_neither_rich_nor_the_otel_sdk(form: list[str]) -> None:
    hide = (
        "import sys\n"
        "for name in ('rich', 'opentelemetry.sdk', 'opentelemetry.distro', 'opentelemetry.exporter'):\n"
        "    sys.modules[name] = None\n"
    )
    done = _run("--model", "gpt-4o", "--probe", *form, code=hide)
    assert (done.returncode, done.stderr) == (0, "")
    if form:
        told = json.loads(done.stdout)["sections"]
        assert {finding["level"] for finding in told["probe"]["findings"]} <= {"ok", "warning"}
    else:
        assert "stall in mid-answer, async" in done.stdout


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo terminal")
def test_on_a_terminal_it_comes_in_colours() -> None:
    pytest.importorskip("rich")
    import pty

    master, slave = pty.openpty()
    program = "from stallwatch.cli.main import main\nraise SystemExit(main(['doctor', '--model', 'm']))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=slave, stderr=slave) as process:
        os.close(slave)
        told = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                # How Linux tells that nobody holds the other side any more.
                break
            if not piece:
                break
            told += piece
    os.close(master)
    assert process.returncode == 0
    text = told.decode()
    assert "\x1b[" in text
    assert "✓" in text
    assert "Which limits a call gets, and why" in text


LAUNCHER = shutil.which("opentelemetry-instrument", path=str(Path(sys.executable).parent))


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A search path on which stallwatch is installed, whatever the environment of the tests is."""
    info = tmp_path / f"stallwatch-{__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: stallwatch\nVersion: {__version__}\n"
        "Requires-Dist: openai>=1.66,<4\nRequires-Dist: wrapt>=1.17,<3\n"
    )
    (info / "entry_points.txt").write_text(
        "[opentelemetry_instrumentor]\nstallwatch = stallwatch.instrumentor:OpenAIInstrumentor\n"
    )
    return os.pathsep.join([str(tmp_path), *filter(None, sys.path)])


@pytest.mark.skipif(LAUNCHER is None, reason="needs opentelemetry-instrument")
def test_under_the_launcher_it_sees_what_the_launcher_has_set_up(installed: str) -> None:
    assert LAUNCHER is not None
    env = {
        **os.environ,
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "STALLWATCH_IDLE_TIMEOUT": "33",
        "PYTHONPATH": installed,
    }
    command = [LAUNCHER, sys.executable, "-m", "stallwatch.cli", "doctor", "--json", "--probe"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    told = {
        key: {finding["key"]: finding for finding in section["findings"]}
        for key, section in json.loads(done.stdout)["sections"].items()
    }
    assert done.returncode == 0, done.stdout
    assert told["versions"]["stallwatch"]["level"] == "ok"
    assert told["telemetry"]["entry-point"]["level"] == "ok"
    assert told["seams"]["instrumented"]["data"]["by"] == "opentelemetry-instrument"
    assert told["telemetry"]["tracer-provider"]["data"]["exporters"] == ["ConsoleSpanExporter"]
    assert told["policy"]["idle"]["value"] == "33 s"
    # stdout was one JSON document: the probe's spans went to no exporter.
    assert told["probe"]["probe.silent.sync"]["data"]["outcome"] == "stalled"


@pytest.mark.skipif(LAUNCHER is None, reason="needs opentelemetry-instrument")
def test_under_a_launcher_that_leaves_it_out_it_says_so_and_why(installed: str) -> None:
    assert LAUNCHER is not None
    env = {
        **os.environ,
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "stallwatch",
        "PYTHONPATH": installed,
    }
    command = [LAUNCHER, sys.executable, "-m", "stallwatch.cli", "doctor", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    problems = {
        finding["key"]
        for section in json.loads(done.stdout)["sections"].values()
        for finding in section["findings"]
        if finding["level"] == "problem"
    }
    assert (done.returncode, problems) == (1, {"instrumented", "disabled"})
