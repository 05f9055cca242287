"""The pages hang together, and their generated parts are those of the code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from docs import generate
from support.markdown import PAGES, ROOT, anchors, links, prose

GENERATED = sorted((ROOT / "docs").glob("*.md"))


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", GENERATED, ids=named)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    present = page.read_text(encoding="utf-8")
    assert generate.filled(present) == present, "run python -m docs.generate"


def test_charts_are_of_the_figures_beside_them() -> None:
    for picture, wanted in generate.pictures().items():
        assert picture.read_text(encoding="utf-8") == wanted, "run python -m docs.generate"


def test_every_generated_part_stands_on_one_page() -> None:
    used = Counter(part for page in GENERATED for part in generate.parts_of(page.read_text(encoding="utf-8")))
    assert used == dict.fromkeys(generate.PARTS, 1)


def test_every_page_of_the_documentation_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in links(page):
            path = target.partition("#")[0]
            if path.endswith(".md") and "://" not in path:
                waiting.append((page.parent / path).resolve())
    assert set(GENERATED) <= reached


@pytest.mark.parametrize("page", GENERATED, ids=named)
def test_a_page_has_one_title(page: Path) -> None:
    assert sum(line.startswith("# ") for line in prose(page).splitlines()) == 1


def test_a_part_nobody_makes_is_an_error() -> None:
    with pytest.raises(KeyError):
        generate.filled("<!-- nonsense: begin -->\n<!-- nonsense: end -->")
