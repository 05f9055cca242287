"""The compatibility page tells of every cell of the matrix, as it is pinned, and of a part as a part."""

from __future__ import annotations

import pytest
from matrix import results
from matrix.cells import CELLS

from docs import compatibility_tables


@pytest.mark.parametrize("name", CELLS)
def test_the_page_tells_of_every_cell_as_it_is_pinned(name: str) -> None:
    found = results.recorded().get(name)
    row = next(line for line in compatibility_tables.cells().splitlines() if line.startswith(f"| `{name}`:"))
    assert ("not run yet" in row) is (found is None)
    if found is None:
        return
    for package in results.PACKAGES:
        assert found["versions"].get(package) == CELLS[name].pinned(package), "run make matrix"
    assert found["python"].startswith(f"{CELLS[name].python}.")


def test_a_part_of_the_suite_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {**results.recorded()}
    name = next(iter(found))
    found[name] = {**found[name], "selection": ["tests/sdk"]}
    monkeypatch.setattr(compatibility_tables, "recorded", lambda: found)
    row = next(line for line in compatibility_tables.cells().splitlines() if line.startswith(f"| `{name}`:"))
    assert "of `tests/sdk` only" in row
