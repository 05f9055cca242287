"""Panels with the house's conventions: a question as description, a unit, a legend, a state for "nothing there".

The SDK's defaults are not what a reader wants: legends are hidden, and a stat reduces to nothing. So everything a
panel needs is set here, once. Places and ids are the grid's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
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
    tempo,
    tempo_models,
    timeseries,
)

DATASOURCE = looks.DataSourceRef(type_val="prometheus", uid="${datasource}")
TRACES = looks.DataSourceRef(type_val="tempo", uid="${traces}")

NOTHING = "No traffic"
"""What stands where a ratio or a quantile has nothing to be of."""
NOT_RECORDED = "No rules, or no traffic"
"""The same for what the recording rules work out."""
NONE = "None"
"""The same for what nobody misses."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel; ``legend`` is what its series are called, a column's name in a table."""

    expr: str
    legend: str
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """Where a click on a value leads."""

    title: str
    url: str

    def override(self) -> models.DynamicConfigValue:
        """Return it as a field's property."""
        return models.DynamicConfigValue(id_val="links", value=[{"title": self.title, "url": self.url}])


def number(title: str, description: str, query: Query, unit: str) -> Any:
    """Return a present value over its own recent past."""
    return (
        _number(title, description, unit)
        .graph_mode(looks.BigValueGraphMode.AREA)
        .with_target(_range_query(query, "A"))
    )


def share(
    title: str,
    description: str,
    query: Query,
    *,
    bad_from: float | None = None,
    bad_below: float | None = None,
    empty: str = NOTHING,
) -> Any:
    """Return one share, now or over the whole chosen time; without traffic there is none.

    Coloured only against an objective: red from ``bad_from`` on, or below ``bad_below``.
    """
    panel = (
        _number(title, description, "percentunit")
        .decimals(2)
        .no_value(empty)
        .graph_mode(looks.BigValueGraphMode.NONE)
        .with_target(_query(query.expr, "A").instant().legend_format(query.legend))
    )
    if bad_from is not None:
        panel = panel.thresholds(_steps(("green", None), ("red", bad_from)))
    elif bad_below is not None:
        panel = panel.thresholds(_steps(("red", None), ("green", bad_below)))
    else:
        return panel
    return panel.color_mode(looks.BigValueColorMode.VALUE)


def lines(
    title: str,
    description: str,
    queries: Sequence[Query],
    unit: str,
    *,
    stacked: bool = False,
    top: float | None = None,
    signed: bool = False,
    marks: Sequence[float] = (),
    link: Link | None = None,
    colours: Mapping[str, str] | None = None,
    empty: str = NOTHING,
) -> Any:
    """Return curves over time with a legend that shows their last and highest values; ``marks`` are drawn across.

    The highest comes first, or the lowest now of what is ``signed``.
    ``colours`` go by the series' names, for values of which everybody knows whether they are good news.
    """
    panel = (
        _common(timeseries.Panel(), title, description, unit)
        .no_value(empty)
        .legend(_legend(lowest_first=signed))
        .tooltip(
            common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING)
        )
        .fill_opacity(30 if stacked else 8)
        # A ratio of rare events has single points between gaps, and without this they are not drawn.
        .show_points(looks.VisibilityMode.AUTO)
    )
    if not signed:
        panel = panel.min(0)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL))
    if top is not None:
        panel = panel.max(top)
    if marks:
        style = common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED)
        steps = [("green", None), *(("orange", mark) for mark in marks[:-1]), ("red", marks[-1])]
        panel = panel.thresholds(_steps(*steps)).thresholds_style(style)
    if link is not None:
        panel = panel.override_by_regexp(".*", [link.override()])
    for name, colour in (colours or {}).items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel = panel.override_by_name(name, [models.DynamicConfigValue(id_val="color", value=fixed)])
    for letter, query in zip(ascii_uppercase, queries, strict=False):
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
        .cell_values(heatmap.CellValues().unit("cps"))
        .cell_gap(1)
        .show_legend()
        .with_target(query.legend_format("{{le}}").exemplar(True))
    )


def rows(
    title: str,
    description: str,
    labels: Mapping[str, str],
    columns: Sequence[tuple[Query, str]],
    *,
    sort: str,
    links: Mapping[str, Link] | None = None,
    missing: Mapping[str, str] | None = None,
    empty: str = NOTHING,
) -> Any:
    """Return a table with one line per combination of ``labels`` (name to heading) and a column per query.

    Each query comes with the unit of its column; the line with the highest value of the column ``sort`` comes first.
    ``links`` go by heading; so does ``missing``, what a cell without a value says if not what an empty table does.
    """
    panel = (
        _common(table.Panel(), title, description, "short")
        .no_value(empty)
        .sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
    )
    names = dict(labels)
    for letter, (query, unit) in zip(ascii_uppercase, columns, strict=False):
        names["Value" if len(columns) == 1 else f"Value #{letter}"] = query.legend
        panel = panel.with_target(
            _query(query.expr, letter)
            .instant()
            .format(prometheus_models.PromQueryFormat.TABLE)
            .legend_format("")
        ).override_by_name(query.legend, [models.DynamicConfigValue(id_val="unit", value=unit)])
    for heading, link in (links or {}).items():
        panel = panel.override_by_name(heading, [link.override()])
    for heading, said in (missing or {}).items():
        panel = panel.override_by_name(heading, [models.DynamicConfigValue(id_val="noValue", value=said)])
    order = {name: place for place, name in enumerate(names)}
    return panel.with_transformation(
        models.DataTransformerConfig(id_val="merge", options={})
    ).with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names},
        )
    )


def traces(title: str, description: str, traceql: str) -> Any:
    """Return a table of the traces that a TraceQL query finds; a click on one opens it."""
    query = (
        tempo.Dataquery()
        .ref_id("A")
        .query_type("traceql")
        .query(traceql)
        .limit(20)
        .table_type(tempo_models.SearchTableType.TRACES)
    )
    panel = table.Panel().title(title).description(description).unit("short").no_value("None kept")
    return panel.datasource(TRACES).with_target(query.datasource(TRACES))


def _legend(*, lowest_first: bool) -> Any:
    legend = (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(looks.LegendDisplayMode.TABLE)
        .placement(looks.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    # Many series are nought, because counters are preset; those that matter come first.
    return legend.sort_by("Last *" if lowest_first else "Max").sort_desc(not lowest_first)


def _steps(*steps: tuple[str, float | None]) -> Any:
    levels = [models.Threshold(color=colour, value=value) for colour, value in steps]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(levels)


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
