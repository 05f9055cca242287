"""Each promise names tests that exist, and every page that promises something is in the list."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from support.markdown import PAGES, ROOT, links, prose

PAGE = ROOT / "docs" / "guarantees.md"
TESTS = ROOT / "tests"

PROMISES = (
    "No silent wait is unbounded",
    "A healthy call is never cut",
    "The user's cancel always wins",
    "Nothing is delivered twice",
    "Observation cannot hurt",
    "Exactly one span per call",
    "Cheap",
)
"""Those that everything else serves, in their order."""

WORDS = re.compile(r"\b(?:never|always|guarantee[sd]?)\b", re.IGNORECASE)

NO_PROMISES = {
    "CHANGELOG.md": "what was new when",
    "CONTRIBUTING.md": "for those who work on it",
    "runbooks.md": "what operators do",
    "guarantees.md": "the list itself",
    "strength.md": "what was measured",
    "scale.md": "of other programs",
    "collector.md": "of a collector's configuration, tried by e2e",
    "frameworks.md": "what frameworks do",
    "testing-your-app.md": "of the gateway, which tests itself",
    "doctor.md": "what a command prints",
}
"""Pages that use the words without making promises of the product's own; why."""


def rows() -> list[list[str]]:
    """The rows of all tables: promise, page, tests."""
    lines = [line for line in prose(PAGE).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "promise" and not set(row[0]) <= {"-"}]


@cache
def cases_in(path: Path) -> frozenset[str]:
    """The names of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    )


def gone(node: str) -> bool:
    """Whether a test that is named does not exist."""
    file, _, name = node.partition("::")
    path = TESTS / file
    return not path.is_file() or not (name in cases_in(path) if name else cases_in(path))


def test_every_row_is_whole_and_names_tests_that_exist() -> None:
    for row in rows():
        assert len(row) == 3, row
        named = re.findall(r"`([^`]+)`", row[2])
        assert named, row
        assert [node for node in named if gone(node)] == []


def test_the_tests_named_for_security_exist() -> None:
    named = re.findall(r"`([a-z]+/test_[^`]+)`", prose(ROOT / "SECURITY.md"))
    assert len(named) > 15
    assert [node for node in named if gone(node)] == []


@pytest.mark.parametrize("node", ["stories/test_stalls.py::test_no_such_thing", "stories/test_nothing.py"])
def test_a_test_that_is_gone_is_noticed(node: str) -> None:
    assert gone(node)


def test_no_promise_is_made_twice() -> None:
    promises = [row[0] for row in rows()]
    assert len(promises) == len(set(promises))
    assert len(promises) > 35


def test_the_promises_are_the_headings() -> None:
    headings = re.findall(r"^## (.+)$", prose(PAGE), re.MULTILINE)
    assert tuple(headings) == PROMISES


def test_every_page_that_promises_something_is_named_in_a_row() -> None:
    named = {(PAGE.parent / target).resolve() for target in links(PAGE)}
    promising = {page for page in PAGES if WORDS.search(prose(page)) and page.name not in NO_PROMISES}
    assert promising - named == set()


def test_the_exceptions_are_pages_that_use_the_words() -> None:
    using = {page.name for page in PAGES if WORDS.search(prose(page))}
    assert set(NO_PROMISES) - using - {"guarantees.md"} == set()


def test_what_the_readme_says_it_never_does_is_held() -> None:
    """Each row of the README's table has words of its own on the page."""
    readme = prose(ROOT / "README.md").partition("| it does | it never does |")[2].partition("\n\n")[0]
    never = [line.strip("|").split(" | ")[1].strip() for line in readme.strip().splitlines()[1:]]
    assert len(never) == len(HELD)
    text = prose(PAGE).lower()
    for words, line in zip(HELD, never, strict=True):
        for word in words:
            assert word in line.lower(), (word, line)
            assert word in text, word


HELD = (
    ("slow reader", "blocked", "thinks in silence"),
    ("stalled stream", "look"),
    ("you hold",),
    ("answers", "keys"),
    ("timeout of yours", "observe"),
    ("twice", "retries"),
    ("attempt",),
)
"""Words that stand both in a row of the README's table and on the page of guarantees."""
