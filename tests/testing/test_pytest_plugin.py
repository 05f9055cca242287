"""The fixture, in a pytest run of its own, as a new user would have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

USER_TEST = """
import urllib.request

def test_it(stall_gateway):
    assert urllib.request.urlopen(stall_gateway.base_url + "/models").status == 200
    assert stall_gateway.ledger().requests[0].path == "/v1/models"
"""


def _pytest(directory: Path, *arguments: str) -> str:
    plugin = ["-p", "stallwatch_pytest", "-p", "no:cacheprovider", "-W", "error"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "--rootdir", str(directory), *arguments, str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env=environment,
        cwd=directory,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_fixture_gives_a_running_gateway(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(USER_TEST)
    assert "1 passed" in _pytest(tmp_path, "-q")


def test_the_fixture_explains_itself(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(USER_TEST)
    listing = _pytest(tmp_path, "--fixtures", "-v")
    assert "stall_gateway" in listing
    assert "OpenAI-compatible server that misbehaves on purpose" in listing
