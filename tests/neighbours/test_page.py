"""The table of docs/neighbours.md names every tool that was played, in the version it was played in."""

from __future__ import annotations

from pathlib import Path

from neighbours.tools import BELOW, TOOLS

ROOT = Path(__file__).parents[2]


def _pins() -> dict[str, set[str]]:
    pins: dict[str, set[str]] = {}
    for path in (ROOT / "requirements").glob("neighbour-*.txt"):
        for line in path.read_text().splitlines():
            name, exact, version = line.partition("==")
            if exact:
                pins.setdefault(name.lower(), set()).add(version)
    return pins


def _rows() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "neighbours.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| ")
    ]
    return {row[0]: row[1:] for row in rows[2:]}


def test_every_tool_has_its_row_with_the_version_that_is_pinned() -> None:
    pins, rows = _pins(), _rows()
    names = {tool.name: tool.distribution for tool in TOOLS} | {"OpenTelemetry HTTPX": BELOW.distribution}
    assert set(rows) == set(names)
    for name, distribution in names.items():
        assert {rows[name][0]} == pins[distribution], name
        assert set(rows[name][1].split(", ")) <= pins["openai"], name


def test_what_the_page_says_is_lost_is_what_the_stories_expect() -> None:
    always = {name for name, row in _rows().items() if row[3].endswith("always")}
    never_early = {
        tool.name
        for tool in TOOLS
        if not any(
            tool.early(story, api, is_async)
            for story in ("streamed", "left", "closed", "cancelled", "broken")
            for api in ("chat", "responses")
            for is_async in (True, False)
        )
    }
    assert always == never_early
