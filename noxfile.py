"""Sessions on other versions than those of ``make env``: ``nox --list``."""

from __future__ import annotations

import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent))

# Environments are made by scripts/make-env, from exact pins, and kept in .nox while these stay the same.
nox.options.default_venv_backend = "none"
nox.options.sessions = []


@nox.session
def matrix(session: nox.Session) -> None:
    """The test suite on every supported line: nox -s matrix -- [CELL ...] [--jobs N] [-- pytest arguments]"""
    session.run(sys.executable, "-m", "matrix", *session.posargs, external=True)


SMOKE = (
    "tests/sdk",
    "tests/stories/test_stalls.py",
    "tests/stories/test_retries.py",
    "tests/stories/test_surfaces.py",
)
"""What is played on a release that nobody has tried yet; ``tests/sdk`` has the missing seams too."""


@nox.session(venv_backend="venv")
def newest(session: nox.Session) -> None:
    """The newest openai on PyPI, unpinned: is every seam there, and do streams, stalls and retries work on it?"""
    session.install("--quiet", "--no-deps", "-r", "requirements/dev.txt")
    session.install("--quiet", "--upgrade", "openai")
    # Without its dependencies: a release beyond the range of pyproject.toml is to be tried, not refused.
    session.install("--quiet", "--no-deps", "--no-build-isolation", "--editable", ".")
    session.run("python", "-m", "matrix.contract")
    session.run("python", "-m", "pytest", "-q", *(session.posargs or SMOKE))
