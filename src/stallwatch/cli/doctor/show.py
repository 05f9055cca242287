"""The report for people: with colours on a terminal, as aligned text into a pipe or where rich is not there."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from stallwatch.cli.doctor.report import Finding, Level, Report, Section
from stallwatch.cli.extras import importable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

__all__ = ["plain", "rendered", "show", "summary"]

_MARKS = {Level.OK: "✓", Level.NOTE: "·", Level.WARNING: "!", Level.PROBLEM: "✗"}
_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_LEAST_TITLE, _MOST_TITLE = 24, 42
_MOST_VALUE = 34
_LEAST_DETAIL = 24
_WIDEST = 120


def show(report: Report) -> None:
    """Print the report."""
    width = min(shutil.get_terminal_size((_WIDEST, 0)).columns, _WIDEST)
    if sys.stdout.isatty() and importable("rich"):
        from rich.console import Console

        Console(width=width).print(rendered(report, width))
    else:
        print("\n".join(plain(report, width)))


def plain(report: Report, width: int = _WIDEST) -> Iterator[str]:
    """Yield the lines."""
    for section in report.sections:
        yield section.title
        if section.lead:
            yield from textwrap.wrap(section.lead, width, initial_indent="  ", subsequent_indent="  ")
        columns = _columns(section, width - len("  problem  "))
        for finding in section.findings:
            yield from _plain_lines(finding, columns)
        yield ""
    yield from summary(report)


def _columns(section: Section, room: int) -> tuple[int, int, int]:
    """Return how wide titles, values and details are; two spaces stand between them."""
    titles = max((len(finding.title) for finding in section.findings), default=0)
    values = max((len(finding.value) for finding in section.findings), default=0)
    title = max(_LEAST_TITLE, min(titles, _MOST_TITLE))
    value = min(values, _MOST_VALUE)
    detail = room - title - value - 4
    if detail < _LEAST_DETAIL:
        # A narrow terminal: everything but the titles shrinks alike.
        title = min(title, _LEAST_TITLE)
        value = min(value, max((room - title - 4) // 2, 8))
        detail = max(room - title - value - 4, 8)
    return title, value, detail


def _plain_lines(finding: Finding, columns: tuple[int, int, int]) -> Iterator[str]:
    details = _wrapped(finding.detail, columns[2])
    if finding.advice:
        first, *rest = _wrapped(finding.advice, columns[2] - 3)
        details += [f"-> {first}", *(f"   {line}" for line in rest)]
    rows = zip_longest(
        _wrapped(finding.title, columns[0]), _wrapped(finding.value, columns[1]), details, fillvalue=""
    )
    level = f"{finding.level:<7}"
    for title, value, detail in rows:
        yield f"  {level}  {title:<{columns[0]}}  {value:<{columns[1]}}  {detail}".rstrip()
        level = " " * len(level)


def _wrapped(text: str, width: int) -> list[str]:
    # A number and its unit stay together.
    joined = re.sub(r"(?<=\d) (?=m?s\b)", "\0", text)
    return [line.replace("\0", " ") for line in textwrap.wrap(joined, width, break_on_hyphens=False)]


def summary(report: Report) -> Iterator[str]:
    """Yield the end: how much is wrong, and where."""
    problems, warnings = report.at(Level.PROBLEM), report.at(Level.WARNING)
    if not problems and not warnings:
        yield "Nothing is wrong."
        return
    yield f"{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}:"
    for section, finding in (*problems, *warnings):
        yield f"  {finding.level:<7}  {section.title}: {finding.title} {finding.value}"


def _counted(found: list[tuple[Section, Finding]], what: str) -> str:
    return f"{len(found) or 'no'} {what}{'' if len(found) == 1 else 's'}"


def rendered(report: Report, width: int = _WIDEST) -> RenderableType:
    """Return the report for a terminal."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for section in report.sections:
        parts.append(Padding(Text(section.title, style="bold underline"), (1, 0, 0, 0)))
        if section.lead:
            parts.append(Padding(Text(section.lead, style="italic"), (0, 0, 0, 2)))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=1)
        for columns in _columns(section, width - len("  ✓  ")):
            grid.add_column(width=columns, overflow="fold")
        for finding in section.findings:
            mark = Text(_MARKS[finding.level], style=_STYLES[finding.level])
            value = Text(finding.value, style=_STYLES[finding.level] if _is_bad(finding) else "bold")
            grid.add_row(mark, Text(finding.title), value, _detail(finding))
        parts.append(Padding(grid, (0, 0, 0, 2)))
    return Group(*parts, "", *_end(report))


def _is_bad(finding: Finding) -> bool:
    return finding.level in (Level.WARNING, Level.PROBLEM)


def _detail(finding: Finding) -> Text:
    from rich.text import Text

    text = Text(finding.detail, style="" if _is_bad(finding) else "dim")
    if finding.advice:
        text.append("\n" if finding.detail else "").append(
            f"→ {finding.advice}", style=_STYLES[finding.level]
        )
    return text


def _end(report: Report) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    style = _STYLES[report.worst] if report.worst in (Level.WARNING, Level.PROBLEM) else "bold green"
    first, *rest = summary(report)
    yield Text(first, style=style)
    for line in rest:
        text = Text(line.strip())
        for level in (Level.WARNING, Level.PROBLEM):
            text.highlight_regex(rf"^{level}\b", _STYLES[level])
        yield Padding(text, (0, 0, 0, 2))
