"""Renews the example on the doctor's page: ``python -m docs.doctor_example``, from the project's root.

The command of the example is run with the variables that the page sets. What differs from machine to machine (versions,
other tools, exporters) stays as the page has it.
"""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from stallwatch.cli.main import main

__all__ = ["OF_THE_MACHINE", "PAGE", "WIDTH", "Example", "alike", "example", "kept", "printed", "sections"]

PAGE = Path(__file__).parent / "doctor.md"
WIDTH = 112
OF_THE_MACHINE = (
    "Versions",
    "Who else instruments the SDK",
    "Where spans and metrics go",
    "What listens where spans and metrics go",
)
_BLOCK = re.compile(r"(<!-- doctor -->\n```console\n)(.*?)(```)", re.DOTALL)


@dataclass(frozen=True)
class Example:
    """What the page sets, runs and shows."""

    environ: dict[str, str]
    command: list[str]
    output: str


def example() -> Example:
    """Return the example of the page."""
    block = _BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert block is not None
    lines = block[2].splitlines()
    exports = [line.removeprefix("$ export ").split() for line in lines if line.startswith("$ export ")]
    (command,) = [line.split()[3:] for line in lines if line.startswith("$ stallwatch doctor")]
    environ = dict(pair.split("=", 1) for pairs in exports for pair in pairs)
    return Example(environ, command, "\n".join(line for line in lines if not line.startswith("$")))


def printed(shown: Example) -> str:
    """Run the command and return what it prints; the environment must hold the example's variables."""
    out = io.StringIO()
    with redirect_stdout(out):
        main(["doctor", *shown.command])
    return out.getvalue()


def sections(text: str) -> dict[str, str]:
    """Return the sections by their titles; the last is the summary."""
    return dict(part.partition("\n")[::2] for part in re.split(r"\n\n", text.strip()))


def kept(shown: str, new: str) -> str:
    """Return ``new``, with the sections that are of the machine, and the summary, as they are in ``shown``."""
    theirs, ours = sections(shown), sections(new)
    *titles, _ = ours
    *before, summary = theirs
    # A section that only some machines have stays where it is.
    missing = [title for title in before if title in OF_THE_MACHINE and title not in titles]
    for title in missing:
        titles.insert(before.index(title), title)
    parts = [(title, (theirs if title in OF_THE_MACHINE else ours)[title]) for title in titles]
    return "\n\n".join(f"{title}\n{text}" for title, text in [*parts, (summary, theirs[summary])])


def alike(text: str) -> str:
    """Blur measured times, and the one name that early releases of the SDK have another for."""
    return re.sub(r"\d+\.\d\d s", "#.## s", text).replace("_sleep_for_retry", "_retry_request  ")


def renew() -> None:
    """Run the example and write down what it prints, where that has changed."""
    shown = example()
    os.environ.update(shown.environ, COLUMNS=str(WIDTH))
    output = kept(shown.output, printed(shown))

    if alike(output) == alike(shown.output):
        return

    def renewed(block: re.Match[str]) -> str:
        commands = "".join(f"{line}\n" for line in block[2].splitlines() if line.startswith("$"))
        return f"{block[1]}{commands}{output}\n{block[3]}"

    PAGE.write_text(_BLOCK.sub(renewed, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    renew()
