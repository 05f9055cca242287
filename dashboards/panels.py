"""Panels with the house's conventions, and the grid they are laid on.

The SDK's defaults are not what a reader wants: its layout never looks ahead and runs off the grid, panels get no id
(links and annotations need stable ones), legends are hidden and a stat reduces to nothing. So everything a panel needs
is set here, once, and a panel is built only together with its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dashboards.classic import (
    common,
    dashboard,
    heatmap,
    heatmap_models,
    looks,
    models,
    prometheus,
    prometheus_models,
    stat,
    table,
    timeseries,
)

DATASOURCE = looks.DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel; ``legend`` is what its series are called, a column's name in a table."""

    expr: str
    legend: str
    exemplars: bool = False


@dataclass(slots=True)
class Grid:
    """Puts panels side by side and row under row; what does not fit is an error, never a silent overflow."""

    board: Any
    _x: int = 0
    _y: int = 0
    _height: int = 0
    _ids: int = field(default=0)

    def row(self, title: str) -> None:
        """Begin a row; its panels follow it, which keeps it open."""
        self._break()
        row = dashboard.Row(title).id(self._next_id()).grid_pos(models.GridPos(h=1, w=WIDTH, x=0, y=self._y))
        self.board.with_row(row)
        self._y += 1

    def add(self, panel: Any, width: int, height: int) -> None:
        """Put a panel to the right of the last one, or under it when the line is full."""
        if self._x + width > WIDTH:
            raise ValueError(f"width={width} is not allowed: {WIDTH - self._x} columns are left on this line")
        place = models.GridPos(h=height, w=width, x=self._x, y=self._y)
        self.board.with_panel(panel.id(self._next_id()).grid_pos(place))
        self._x += width
        self._height = max(self._height, height)
        if self._x == WIDTH:
            self._break()

    def _break(self) -> None:
        if self._x not in {0, WIDTH}:
            raise ValueError(f"a line ends after {self._x} columns: fill all {WIDTH}")
        self._x, self._y, self._height = 0, self._y + self._height, 0

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids


def number(title: str, description: str, query: Query, unit: str, *, empty: str = "0", decimals: int | None = None) -> Any:
    """Return a single present value."""
    panel = (
        _common(stat.Panel(), title, description, unit)
        .no_value(empty)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
        .graph_mode(looks.BigValueGraphMode.AREA)
        .color_mode(looks.BigValueColorMode.NONE)
        .with_target(_range_query(query, "A"))
    )
    return panel if decimals is None else panel.decimals(decimals)


def lines(
    title: str, description: str, queries: list[Query], unit: str, *, stacked: bool = False, top: float | None = None
) -> Any:
    """Return curves over time with a legend that shows their last and highest values."""
    legend = (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(looks.LegendDisplayMode.TABLE)
        .placement(looks.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    panel = (
        _common(timeseries.Panel(), title, description, unit)
        .no_value("No traffic")
        .min(0)
        .legend(legend)
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
        .fill_opacity(30 if stacked else 8)
        .show_points(looks.VisibilityMode.NEVER)
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL))
    if top is not None:
        panel = panel.max(top)
    for letter, query in zip("ABCDEF", queries, strict=False):
        panel = panel.with_target(_range_query(query, letter))
    return panel


def heat(title: str, description: str, expr: str, unit: str) -> Any:
    """Return a heatmap of a histogram's buckets."""
    query = (
        _query(expr, "A").range().format(prometheus_models.PromQueryFormat.HEATMAP).legend_format("{{le}}").exemplar(True)
    )
    axis = heatmap.YAxisConfig().unit(unit).axis_placement(looks.AxisPlacement.LEFT)
    scheme = (
        heatmap.HeatmapColorOptions()
        .mode(heatmap_models.HeatmapColorMode.SCHEME)
        .scheme("Oranges")
        .scale(heatmap_models.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
    )
    return (
        _common(heatmap.Panel(), title, description, unit)
        .calculate(False)
        .y_axis(axis)
        .color(scheme)
        .cell_gap(1)
        .show_legend()
        .with_target(query)
    )


def rows(title: str, description: str, labels: dict[str, str], columns: list[tuple[Query, str]], sort: str) -> Any:
    """Return a table with one line per combination of ``labels`` (name to heading) and a column per query.

    Each query comes with the unit of its column; the line with the highest value of the column ``sort`` comes first.
    """
    panel = (
        _common(table.Panel(), title, description, "short")
        .no_value("No traffic")
        .sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
    )
    names = dict(labels)
    for letter, (query, unit) in zip("ABCDEFGH", columns, strict=False):
        names[f"Value #{letter}"] = query.legend
        panel = panel.with_target(
            _query(query.expr, letter).instant().format(prometheus_models.PromQueryFormat.TABLE).legend_format("")
        ).override_by_name(query.legend, [models.DynamicConfigValue(id_val="unit", value=unit)])
    order = {name: place for place, name in enumerate(names)}
    return panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={})).with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names},
        )
    )


def _common(panel: Any, title: str, description: str, unit: str) -> Any:
    return panel.title(title).description(description).unit(unit).datasource(DATASOURCE)


def _query(expr: str, letter: str) -> Any:
    return prometheus.Dataquery().expr(expr).ref_id(letter).datasource(DATASOURCE)


def _range_query(query: Query, letter: str) -> Any:
    return _query(query.expr, letter).range().legend_format(query.legend).exemplar(query.exemplars)
