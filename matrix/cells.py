"""The cells of the matrix: a set of exact pins, a Python, and the HTTP library that clients are given."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CELLS", "ROOT", "Cell", "interpreter"]

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination; ``about`` says what it stands for."""

    name: str
    about: str
    pins: str
    python: str = "3.11"
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def requirements(self) -> Path:
        """The file of its exact pins."""
        return ROOT / "requirements" / f"{self.pins}.txt"

    @property
    def home(self) -> Path:
        """Its virtual environment."""
        return ROOT / ".nox" / f"{self.pins}-{self.python}"

    def pinned(self, package: str) -> str | None:
        """Return the version its pins name, or None where the package is not among them."""
        found = re.search(
            rf"^{re.escape(package)}==(\S+)$",
            self.requirements.read_text("utf-8"),
            re.MULTILINE | re.IGNORECASE,
        )
        return None if found is None else found[1]


CELLS: dict[str, Cell] = {
    cell.name: cell
    for cell in (
        Cell(name="oldest", about="the oldest supported release of everything", pins="oldest"),
        Cell(
            name="oldest-sdk",
            about="the oldest SDK with the newest OpenTelemetry and wrapt",
            pins="openai-oldest",
        ),
        Cell(name="openai-1", about="the last 1.x", pins="openai-1"),
        Cell(name="openai-2", about="the last 2.x", pins="openai-2"),
        Cell(name="newest", about="the newest release of everything", pins="dev"),
        Cell(
            name="openai-3-on-httpx",
            about="the newest SDK, a client of httpx passed in to every client",
            pins="openai-3-on-httpx",
            environment={"TESTS_HTTP_LIBRARY": "httpx"},
        ),
        Cell(name="python-3.12", about="the newest on Python 3.12", pins="dev", python="3.12"),
        Cell(name="python-3.13", about="the newest on Python 3.13", pins="dev", python="3.13"),
    )
}
"""From the oldest to the newest."""


def interpreter(version: str) -> str | None:
    """Return a Python of this version (``3.12``), from the path or from pyenv, or None."""
    for found in _candidates(version):
        # What pyenv puts on the path is a shim, there whether or not the version is switched on.
        if "shims" not in Path(found).parts:
            return found
    return None


def _candidates(version: str) -> Iterator[str]:
    for folder in os.get_exec_path():
        found = shutil.which(f"python{version}", path=folder)
        if found is not None:
            yield found
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from (str(each) for each in sorted(versions.glob(f"{version}.*/bin/python"), reverse=True))
