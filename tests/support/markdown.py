"""Reading the documentation: its pages, and the code blocks that are marked for running."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Block", "anchors", "blocks", "links", "prose"]

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("dashboards/*.md")],
    key=lambda page: page.as_posix(),
)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_RUNNABLE = re.compile(r"<!-- runnable(?: with ([\w.]+))?(?:: (.*?))? -->\n\Z")
_PRINTS = re.compile(r"\A\n<!-- prints -->\n```text\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A code block marked ``<!-- runnable -->``, or ``<!-- runnable with MODULE -->`` where ``needs`` is installed.

    After a colon stands what the gateway does for a model name (``gpt-4o=silent``). ``prints`` is what a block of text
    marked ``<!-- prints -->`` says right after it.
    """

    page: Path
    line: int
    language: str
    code: str
    model: str | None
    scenario: str | None
    prints: str | None
    needs: str | None = None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page that are to be run."""
    text = page.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        mark = _RUNNABLE.search(text, 0, fence.start())
        if mark is None:
            continue
        model, _, scenario = (mark[2] or "").partition("=")
        told = _PRINTS.match(text[fence.end() :])
        line = text.count("\n", 0, fence.start()) + 1
        prints = None if told is None else told[1]
        yield Block(page, line, fence[1], fence[2], model or None, scenario or None, prints, mark[1])


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
