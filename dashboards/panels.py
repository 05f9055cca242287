"""Panels with the house's conventions, and the grid they are laid on.

The SDK's defaults are not what a reader wants: its layout never looks ahead and runs off the grid, panels get no id
(links and annotations need stable ones), legends are hidden and a stat reduces to nothing. So everything a panel needs
is set here, once, and a panel is built only together with its place.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
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


class Grid:
    """Lays out lines of panels of equal width under the titles of rows, and numbers them in order."""

    def __init__(self, board: Any) -> None:
        self._board = board
        self._y = 0
        self._ids = itertools.count(1)

    def row(self, title: str) -> None:
        """Begin a row; its lines follow it, which keeps it open."""
        row = dashboard.Row(title).id(next(self._ids))
        self._board.with_row(row.grid_pos(models.GridPos(h=1, w=WIDTH, x=0, y=self._y)))
        self._y += 1

    def line(self, height: int, *panels: Any) -> None:
        """Add a line of panels; raises ValueError when their number does not divide the grid."""
        width, rest = divmod(WIDTH, len(panels))
        if rest:
            raise ValueError(f"{len(panels)} panels are not allowed: give a number that divides {WIDTH}")
        for place, panel in enumerate(panels):
            position = models.GridPos(h=height, w=width, x=place * width, y=self._y)
            self._board.with_panel(panel.id(next(self._ids)).grid_pos(position))
        self._y += height


def number(title: str, description: str, query: Query, unit: str) -> Any:
    """Return a present value over its own recent past."""
    return (
        _number(title, description, unit)
        .graph_mode(looks.BigValueGraphMode.AREA)
        .with_target(_range_query(query, "A"))
    )


def share(title: str, description: str, query: Query) -> Any:
    """Return one share over the whole chosen time; without traffic there is none."""
    return (
        _number(title, description, "percentunit")
        .decimals(2)
        .no_value("No traffic")
        .graph_mode(looks.BigValueGraphMode.NONE)
        .with_target(_query(query.expr, "A").instant().legend_format(query.legend))
    )


def lines(
    title: str,
    description: str,
    queries: list[Query],
    unit: str,
    *,
    stacked: bool = False,
    top: float | None = None,
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
        .tooltip(
            common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING)
        )
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
    query = _query(expr, "A").range().format(prometheus_models.PromQueryFormat.HEATMAP)
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
        .with_target(query.legend_format("{{le}}").exemplar(True))
    )


def rows(
    title: str, description: str, labels: dict[str, str], columns: list[tuple[Query, str]], sort: str
) -> Any:
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
            _query(query.expr, letter)
            .instant()
            .format(prometheus_models.PromQueryFormat.TABLE)
            .legend_format("")
        ).override_by_name(query.legend, [models.DynamicConfigValue(id_val="unit", value=unit)])
    order = {name: place for place, name in enumerate(names)}
    return panel.with_transformation(
        models.DataTransformerConfig(id_val="merge", options={})
    ).with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names},
        )
    )


def _number(title: str, description: str, unit: str) -> Any:
    return (
        _common(stat.Panel(), title, description, unit)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False))
        .color_mode(looks.BigValueColorMode.NONE)
    )


def _common(panel: Any, title: str, description: str, unit: str) -> Any:
    return panel.title(title).description(description).unit(unit).datasource(DATASOURCE)


def _query(expr: str, letter: str) -> Any:
    return prometheus.Dataquery().expr(expr).ref_id(letter).datasource(DATASOURCE)


def _range_query(query: Query, letter: str) -> Any:
    return _query(query.expr, letter).range().legend_format(query.legend).exemplar(query.exemplars)
