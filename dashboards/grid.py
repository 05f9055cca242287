"""Where panels stand: rows of lines on Grafana's grid, and stable numbers.

The SDK's own layout never looks ahead and runs off the grid, and its panels get no id, which links and alerts need. So
a panel is put on a board only together with its place. Ids follow the order of reading: a panel added in the middle
renumbers those after it, which changes links to single panels; add at the end of a board where you can.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from dashboards.classic import dashboard, models

WIDTH = 24
"""Columns of Grafana's grid."""


class Grid:
    """Lays out lines of panels under the titles of rows, and numbers them in order."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self._y = 0
        self._ids = itertools.count(1)

    def row(self, title: str) -> None:
        """Begin a row; its lines follow it, which keeps it open."""
        self._board.with_row(self._row(title))

    def line(self, height: int, *panels: Any, widths: Sequence[int] = ()) -> None:
        """Add a line of panels, of equal width unless ``widths`` says otherwise.

        Raises ValueError when they do not fill the grid.
        """
        for panel in self._placed(height, panels, widths):
            self._board.with_panel(panel)

    def folded(self, title: str, height: int, *panels: Any) -> None:
        """Add a row that is closed at first and holds one line of panels, so that nothing of it is asked for."""
        row = self._row(title).collapsed(True)
        for panel in self._placed(height, panels, ()):
            row = row.with_panel(panel)
        self._board.with_row(row)

    def _row(self, title: str) -> Any:
        place = models.GridPos(h=1, w=WIDTH, x=0, y=self._y)
        self._y += 1
        return dashboard.Row(title).id(next(self._ids)).grid_pos(place)

    def _placed(self, height: int, panels: Sequence[Any], widths: Sequence[int]) -> list[Any]:
        wide = list(widths) or [WIDTH // len(panels)] * len(panels)
        if sum(wide) != WIDTH or len(wide) != len(panels):
            raise ValueError(
                f"{len(panels)} panels of widths {wide} are not allowed: give as many widths as panels, {WIDTH} in all"
            )
        placed, x = [], 0
        for panel, width in zip(panels, wide, strict=True):
            place = models.GridPos(h=height, w=width, x=x, y=self._y)
            placed.append(panel.id(next(self._ids)).grid_pos(place))
            x += width
        self._y += height
        return placed
