"""The matrix: its cells are what their pin files say, and what is told of a run is what pytest reported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from matrix import __main__ as command
from matrix import cells, results, running
from matrix.cells import CELLS, ROOT, Cell

REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))

SUITE = """
import pytest
def test_good(): pass
def test_bad(): assert False
@pytest.fixture
def broken(): raise RuntimeError
def test_error(broken): pass
@pytest.mark.parametrize("n", [1, 2])
def test_left_out(n): pytest.skip("not here")
@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.stem)
def test_requirement_files_hold_exact_pins_and_nothing_else(path: Path) -> None:
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line)] == []
    names = [re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in lines]
    assert len(names) == len(set(names))


def test_the_cells_are_the_lines_that_are_promised() -> None:
    sdks = {name: cell.pinned("openai") for name, cell in CELLS.items()}
    assert sdks["oldest"] == sdks["oldest-sdk"]
    assert (sdks["oldest"] or "").startswith("1.66.")
    assert (sdks["openai-1"] or "").startswith("1.")
    assert (sdks["openai-2"] or "").startswith("2.")
    assert sdks["newest"] == sdks["openai-3-on-httpx"] == sdks["python-3.13"]
    for name in ("oldest", "oldest-sdk", "openai-1", "openai-2"):
        assert CELLS[name].pinned("httpx2") is None
        assert CELLS[name].pinned("httpx")
    assert CELLS["newest"].pinned("httpx") is None, (
        "the newest line must be played without the legacy library"
    )
    assert CELLS["openai-3-on-httpx"].pinned("httpx")


def test_the_classifiers_name_the_pythons_of_the_cells() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert {cell.python for cell in CELLS.values()} == set(re.findall(r"Python :: (3\.\d+)\"", text))


def test_a_report_is_read_as_pytest_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, report = tmp_path / "test_it.py", tmp_path / "report.xml"
    suite.write_text(SUITE)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit2", f"--junitxml={report}", suite],
        cwd=tmp_path,
        check=False,
        capture_output=True,
    )
    cell = Cell(name="this", about="", pins="dev")
    monkeypatch.setattr(Cell, "home", property(lambda _: Path(sys.prefix)))
    result = results.read(cell, report, ["tests/one"])
    assert (result.passed, result.failed, result.skipped) == (1, 2, 3)
    assert result.failures == ["test_it.py::test_bad", "test_it.py::test_error"]
    assert result.skips == {"known": 1, "not here": 2}
    assert result.selection == ["tests/one"]
    assert result.versions["openai"]
    assert result.python == ".".join(map(str, sys.version_info[:3]))


UNSTEADY = """
import pathlib
def test_unsteady():
    mark = pathlib.Path(__file__).with_suffix(".mark")
    if not mark.exists():
        mark.touch()
        raise AssertionError
def test_bad(): assert False
def test_good(): pass
"""


def test_what_fails_is_played_again_and_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text(UNSTEADY)
    (tmp_path / ".nox").mkdir()
    monkeypatch.setattr(running, "ROOT", tmp_path)
    monkeypatch.setattr(running, "environment", lambda *_: Path(sys.executable))
    monkeypatch.setattr(Cell, "home", property(lambda _: Path(sys.prefix)))
    said: list[str] = []
    kept: list[results.Result] = []
    cell = Cell(name="this", about="", pins="dev")
    (result,) = running.play([cell], [], 1, said.append, kept.append)
    assert result is not None
    assert kept == [result]
    assert (result.passed, result.again, result.failed) == (2, 1, 1)
    assert result.failures == ["test_it.py::test_bad"]
    # Where it takes long, said is also where it stands.
    assert any("2 passed, 1 of them at a later try, 1 failed, 0 skipped" in line for line in said)
    assert said[-1] == "this: FAILED test_it.py::test_bad"


def test_a_result_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    for cell, passed in (("b", 1), ("a", 2), ("gone", 3), ("b", 4)):
        results.record(_result(cell, passed), ["a", "b"] if cell != "gone" else ["gone", "a", "b"], data)
    assert [(name, found["passed"]) for name, found in results.recorded(data).items()] == [("a", 2), ("b", 4)]


def _result(cell: str, passed: int) -> results.Result:
    return results.Result(
        cell=cell,
        date="2026-01-01",
        commit="0",
        python="3.11.0",
        system="Linux",
        versions={},
        passed=passed,
        failed=0,
        skipped=0,
        minutes=1.0,
    )


def test_a_shim_is_not_taken_for_a_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim, real = tmp_path / "shims" / "python3.12", tmp_path / "versions" / "3.12.4" / "bin" / "python"
    for path in (shim, real):
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert cells.interpreter("3.12") == str(real)
    assert cells.interpreter("3.99") is None


def test_a_python_that_is_missing_fails_its_cell_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    none = Cell(name="none", about="", pins="dev", python="3.99")
    assert running.play([none, none], [], 2, said.append, lambda _: None) == [None, None]
    assert said == ["none could not be run: there is no Python 3.99 here"] * 2


def test_cells_and_arguments_of_pytest_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    known = command._arguments(["oldest", "newest", "--jobs", "2", "--", "tests/stories", "-k", "idle"])
    assert (known.cells, known.jobs, known.selection) == (
        ["oldest", "newest"],
        2,
        ["tests/stories", "-k", "idle"],
    )
    assert command._arguments(["--", "-x"]).selection == ["-x"]
    with pytest.raises(SystemExit):
        command._arguments(["oldst"])
    assert "no such cell: oldst" in capsys.readouterr().err
