"""The page on classification has the table of the code, and explains every word of a verdict."""

from __future__ import annotations

import re

import pytest

from stallwatch.core import classify
from stallwatch.core.words import Diagnosis, FailureKind
from stallwatch.runtime import failures
from support.markdown import ROOT, prose

PAGE = ROOT / "docs" / "classification.md"


def part(name: str) -> str:
    """Return what stands between the marks of a generated part."""
    found = re.search(
        rf"<!-- {name}: begin -->\n\n(.*?)\n\n<!-- {name}: end -->",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("name", "table"),
    [("classification", classify.classification_table), ("classification-codes", classify.code_table)],
)
def test_the_tables_are_those_of_the_code(name: str, table: object) -> None:
    assert callable(table)
    assert part(name) == table(), "run python -m docs.generate"


@pytest.mark.parametrize("words", [FailureKind, Diagnosis])
def test_every_kind_and_diagnosis_is_explained(words: type[FailureKind | Diagnosis]) -> None:
    explained = re.findall(r"^\| `(\w+)` \|", prose(PAGE), re.MULTILINE)
    assert {word.value for word in words} <= set(explained)


def test_every_transport_code_of_our_own_is_named() -> None:
    ours = {code for _, code in (failures._BY_CLASS | failures._BY_LIBRARY_CLASS).values()}  # type: ignore[operator]
    named = set(re.findall(r"`([A-Z_]+)`", prose(PAGE)))
    assert {code for code in ours if not code.startswith("E")} <= named


def test_the_numbers_in_the_text_are_those_of_the_code() -> None:
    text = " ".join(prose(PAGE).split())
    assert failures._LEVELS == 4
    assert "**Down the causes**, four deep" in text
    assert all(classify._ERROR_STATUS.fullmatch(str(status)) for status in (400, 599))
    assert not any(classify._ERROR_STATUS.fullmatch(str(status)) for status in (399, 600))
