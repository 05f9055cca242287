"""A policy file or a variable can set what is listed and nothing else: it runs, reads and blocks nothing."""

from __future__ import annotations

import ast
import builtins
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import stallwatch
from stallwatch.known_settings import SETTINGS
from stallwatch.settings import load

SOURCES = sorted(Path(stallwatch.__file__).parent.rglob("*.py"))

EVIL = (
    "__import__('os').system('touch {mark}')",
    "$(touch {mark})",
    "`touch {mark}`",
    "!!python/object/apply:os.system ['touch {mark}']",
    "cos\nsystem\n(S'touch {mark}'\ntR.",
    "os:system",
    "../../../../etc/passwd",
    "file:///etc/passwd",
    "\0",
)


def _loaded(environ: dict[str, str]) -> Any:
    """Load in a thread that may be given up."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(load(environ)), daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "loading does not end"
    return found[0]


@pytest.mark.parametrize("kind", ["fifo", "zero", "random", "folder", "huge", "terminal"])
def test_what_is_no_ordinary_file_is_one_warning(kind: str, tmp_path: Path, warnings_of: Any) -> None:
    path = tmp_path / "policy.toml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        path.write_bytes(b"# " + b"x" * (1 << 20))
    else:
        path = Path({"zero": "/dev/zero", "random": "/dev/urandom", "terminal": "/dev/tty"}[kind])
    before = load({})
    layers, warnings = warnings_of({"STALLWATCH_POLICY_FILE": str(path)})
    assert layers == before
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    _loaded({"STALLWATCH_POLICY_FILE": str(path)})


def test_a_link_to_an_ordinary_file_is_followed(tmp_path: Path, warnings_of: Any) -> None:
    """As orchestrators mount configuration."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "policy.toml").write_text("[default]\nidle = 7\n", encoding="utf-8")
    (tmp_path / "policy.toml").symlink_to(tmp_path / "data" / "policy.toml")
    layers, warnings = warnings_of({"STALLWATCH_POLICY_FILE": str(tmp_path / "policy.toml")})
    assert (layers.environment.deadlines.idle, warnings) == (7, [])


@pytest.mark.parametrize("text", EVIL)
def test_nothing_in_a_file_or_variable_is_run(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    evil = text.format(mark=mark)
    ran: list[str] = []
    names = (
        "os.system",
        "subprocess.Popen",
        "exec",
        "os.exec",
        "os.posix_spawn",
        "pickle.find_class",
        "import",
    )

    def hook(event: str, arguments: Any) -> None:
        if watching and event in names and threading.get_ident() == here:
            ran.append(f"{event} {arguments}")

    here, watching = threading.get_ident(), False
    sys.addaudithook(hook)
    path = tmp_path / "policy.toml"
    load({})
    watching = True
    try:
        for setting in SETTINGS:
            if setting.variable is not None and "\0" not in evil:
                load({setting.variable: evil})
            path.write_text(
                f"[default]\n{setting.keyword} = {evil!r}\n[[rule]]\nmodel = {evil!r}\nname = {evil!r}\n"
                f"base_url = {evil!r}\nidle = 1\n",
                encoding="utf-8",
            )
            load({"STALLWATCH_POLICY_FILE": str(path)})
        path.write_text(evil, encoding="utf-8")
        load({"STALLWATCH_POLICY_FILE": str(path)})
    finally:
        watching = False
    assert [each for each in ran if "encodings" not in each] == []
    assert not mark.exists()


def test_no_source_calls_what_runs_or_unpickles_text() -> None:
    """Apart from the demo, which runs the program it shows."""
    wrong = []
    forbidden = {"eval", "exec", "compile", "__import__"}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in forbidden:
                wrong.append(f"{path.name}:{node.lineno} {node.func.id}")
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                wrong += [
                    f"{path.name}:{node.lineno} {name}"
                    for name in names
                    if name.partition(".")[0] in ("pickle", "marshal", "shelve", "yaml", "runpy")
                ]
    assert wrong == []
    assert forbidden <= set(dir(builtins))


def test_a_program_starts_whatever_the_variables_say(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    values = {
        setting.variable: EVIL[0].format(mark=tmp_path / "mark") for setting in SETTINGS if setting.variable
    }
    program = "import stallwatch; stallwatch.OpenAIInstrumentor().instrument(); print('started')"
    for path in (str(fifo), "/dev/zero"):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **values, "STALLWATCH_POLICY_FILE": path},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (ran.returncode, ran.stdout.strip()) == (0, "started"), ran.stderr
    assert not (tmp_path / "mark").exists()
