"""The page of surfaces lists what the tests play, and what each release lacks."""

from __future__ import annotations

import re
from pathlib import Path

import openai
import pytest

from surfaces import rows
from surfaces.all_surfaces import LACKING, SURFACES, cells
from surfaces.test_identity import ALLOWED, CHANGED_FUNCTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "surfaces.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """Return the rows of the first table after a heading, without its head."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_lists_every_surface_with_what_it_guards() -> None:
    told = {name: row[1] for row in table("What is guarded") for name in names(row[0])}
    assert told == {surface.name: surface.guards for surface in SURFACES}


def test_the_page_names_what_each_release_lacks() -> None:
    told = {row[0].strip("`"): tuple(names(row[1])) for row in table("What a release lacks")}
    assert told == LACKING


def test_this_release_lacks_what_is_said() -> None:
    lacking = LACKING.get(openai.__version__)
    if lacking is None:
        pytest.skip(f"nothing is said of {openai.__version__}")
    with openai.OpenAI(api_key="sk-test") as client:
        assert tuple(surface.name for surface in SURFACES if not surface.offered(client)) == lacking


def test_the_page_says_how_much_is_compared() -> None:
    pairs = len(cells())
    assert f"{len(SURFACES)} surfaces, {pairs} with both drivers" in PAGE
    counted = (len(rows.SAME), len(rows.WITH_RETRIES), len(rows.STALLS) + len(rows.QUIET))
    assert "{} rows, {} more with retries, {} of stalls and endings".format(*counted) in PAGE


def test_the_page_tells_every_difference_that_is_allowed() -> None:
    told = {row[0]: set(names(row[1])) for row in table("What can be told apart")}
    assert set(told) == set(ALLOWED)
    assert told["stream"] == {"_iterator"}
    assert told["response"] == {"stream"}
    assert told["request"] == {"extensions"}
    assert told["function"] == {"__signature__", "inspect.getsource", "inspect.getfile"}
    for name in CHANGED_FUNCTIONS:
        assert f"`{name}`" in PAGE
