"""Sessions on other versions than those of ``make env``: ``nox --list``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

# Environments are made by scripts/make-env, from exact pins, and kept in .nox while these stay the same.
nox.options.default_venv_backend = "none"
nox.options.sessions = []


@nox.session
def matrix(session: nox.Session) -> None:
    """The test suite on every supported line: nox -s matrix -- [CELL ...] [--jobs N] [-- pytest arguments]"""
    session.run(sys.executable, "-m", "matrix", *session.posargs, external=True)


def beside(session: nox.Session, folder: str, pins: str) -> None:
    """Play ``tests/FOLDER`` once in each environment whose pins match; names pick some, the rest goes to pytest.

    ``NEIGHBOURS`` tells the tests which pins they are on.
    """
    from matrix.running import environment

    found = sorted((ROOT / "requirements").glob(pins))
    picked = [
        path
        for path in found
        if path.stem in session.posargs or path.stem.partition("-")[2] in session.posargs
    ]
    names = {name for path in picked for name in (path.stem, path.stem.partition("-")[2])}
    if not found:
        session.skip(f"there is no requirements/{pins}")
    for number, path in enumerate(picked or found, 1):
        session.log(f"{number} of {len(picked or found)}: {path.stem}")
        python = environment(ROOT / ".nox" / path.stem, path)
        arguments = [argument for argument in session.posargs if argument not in names]
        session.run(
            python,
            "-m",
            "pytest",
            "-q",
            f"tests/{folder}",
            *arguments,
            external=True,
            env={"NEIGHBOURS": str(path)},
        )


@nox.session
def frameworks(session: nox.Session) -> None:
    """Frameworks on the SDK, each in its environment: nox -s frameworks -- [langchain ...] [pytest arguments]"""
    beside(session, "frameworks", "framework-*.txt")


@nox.session
def neighbours(session: nox.Session) -> None:
    """Other instrumentors at work beside ours: nox -s neighbours -- [NAME ...] [pytest arguments]"""
    beside(session, "neighbours", "neighbour-*.txt")


@nox.session
def runtimes(session: nox.Session) -> None:
    """gevent and other runtimes: nox -s runtimes -- [pytest arguments]"""
    beside(session, "runtimes", "runtimes*.txt")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Properties of bytes and shapes under a fuzzer: nox -s fuzz -- [--minutes N] [--only TARGET] [--corpus FOLDER]"""
    from matrix.running import environment

    python = environment(ROOT / ".nox" / "fuzz", ROOT / "requirements" / "fuzz.txt")
    paths = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    session.run(python, "-W", "ignore", "-m", "fuzz.guided", *session.posargs, external=True, env=paths)


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
