"""What a dashboard must be, as rules that name what is wrong; each is proven by a mistake planted by hand.

Of the rules of Grafana's public dashboard linter these are here, in words of our own: the data source is a variable,
and every panel's; query variables are multiple, have an "All", follow the time range and ask with valid names; a panel
has title, description, unit and queries; ``rate`` uses the scrape interval; selectors heed the variables; counters
are looked at only through their growth; the dashboard is not editable. Not here: the rules on LogQL (there are no
logs), and the ones that want an ``instance`` variable and selector: behind a collector an instance is a random id of a
process, so nobody could choose one, and series are compared by model. That queries parse is promtool's to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from dashboards import classic, uids
from support.promql import grouping_labels, named_series, problems, raw_counters

__all__ = ["RULES", "Board", "expressions", "panels"]

Board = dict[str, Any]

UNITS = {"short", "s", "percentunit", "cps", "cpm", "bytes", "x"}
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
TEMPO = {"type": "tempo", "uid": "${traces}"}
WIDTH = 24
UIDS = {uids.STREAMS, uids.SLO, uids.PIPELINE}
OVER_ALL = ("stat", "table")
"""Types of panels that show one value for the whole chosen time."""
JOBS = ("=~$job", "=~$collector", "=~$job|$collector")
MODELS = {"gen_ai_provider_name": "$provider", "gen_ai_request_model": "$model"}


def placed(board: Board) -> Iterator[dict[str, Any]]:
    """Yield every panel and row, those in closed rows included."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels") or []


def panels(board: Board) -> Iterator[dict[str, Any]]:
    """Yield every panel that is no row."""
    return (panel for panel in placed(board) if panel["type"] != "row")


def expressions(panel: dict[str, Any]) -> list[str]:
    """Return the PromQL of a panel."""
    return [target["expr"] for target in panel["targets"] if "expr" in target]


def every_key_is_known(board: Board) -> Iterator[str]:
    """A misspelt key is dropped on reading by the SDK, so it would be missing from what is written again."""
    classic.register_default_plugins()
    read = classic.models.Dashboard.from_json(json.loads(json.dumps(board)))
    shown: Any
    for shown in [*(read.annotations.list_val or []), *(read.links or [])]:
        # Absent in the file, and the SDK's default for what is absent is not absence.
        shown.placement = None
    again = json.loads(classic.JSONEncoder(sort_keys=True).encode(read))
    yield from _differences(board, again, "")


def panels_stand_apart_on_the_grid(board: Board) -> Iterator[str]:
    cells = [(panel["id"], panel["gridPos"]) for panel in placed(board)]
    for one, place in cells:
        if place["x"] < 0 or place["x"] + place["w"] > WIDTH:
            yield f"panel {one} leaves the grid"
    for (one, a), (other, b) in combinations(cells, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        if not (beside or below):
            yield f"panels {one} and {other} overlap"


def ids_are_unique_and_in_order(board: Board) -> Iterator[str]:
    ids = [panel.get("id") for panel in placed(board)]
    if ids != list(range(1, len(ids) + 1)):
        yield f"ids are {ids}"


def a_panel_has_a_title_and_asks_a_question(board: Board) -> Iterator[str]:
    for panel in panels(board):
        if not panel.get("title") or "?" not in panel.get("description", ""):
            yield f"panel {panel['id']} asks no question"


def a_panel_has_a_known_unit(board: Board) -> Iterator[str]:
    for panel in panels(board):
        unit = panel["fieldConfig"]["defaults"].get("unit")
        if unit not in UNITS:
            yield f"{panel['title']}: unit {unit!r}"


def the_data_source_is_the_chosen_one(board: Board) -> Iterator[str]:
    for panel in panels(board):
        for asked in [panel, *panel["targets"]]:
            if asked.get("datasource") not in (PROMETHEUS, TEMPO):
                yield f"{panel['title']}: data source {asked.get('datasource')}"


def a_panel_has_queries_with_legends(board: Board) -> Iterator[str]:
    for panel in panels(board):
        if not panel["targets"]:
            yield f"{panel['title']}: no queries"
        if len({target["refId"] for target in panel["targets"]}) < len(panel["targets"]):
            yield f"{panel['title']}: queries share a letter"
        if panel["type"] != "timeseries":
            continue
        if not panel["options"]["legend"]["showLegend"] or not panel["options"]["legend"]["calcs"]:
            yield f"{panel['title']}: no legend"
        if not all(target["legendFormat"] for target in panel["targets"]):
            yield f"{panel['title']}: a series without a name"


def a_single_value_is_reduced_to_the_last_one(board: Board) -> Iterator[str]:
    for panel in panels(board):
        if panel["type"] == "stat" and panel["options"]["reduceOptions"]["calcs"] != ["lastNotNull"]:
            yield f"{panel['title']}: reduces to {panel['options']['reduceOptions']['calcs']}"


def every_name_is_emitted(board: Board) -> Iterator[str]:
    for panel in panels(board):
        for expr in expressions(panel):
            yield from (f"{panel['title']}: {problem}" for problem in problems(expr))
    for annotation in board["annotations"]["list"]:
        yield from (f"{annotation['name']}: {problem}" for problem in problems(annotation["expr"]))


def a_legend_names_labels_that_are_left(board: Board) -> Iterator[str]:
    for panel in panels(board):
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
            for label in sorted(named - grouping_labels(target.get("expr", ""))):
                yield f"{panel['title']}: the legend names {label}, which the query has summed away"


def a_query_heeds_the_variables(board: Board) -> Iterator[str]:
    """Every selector heeds the job or the collector; on a board with models, those of streams the model as well."""
    by_model = "model" in {variable["name"] for variable in board["templating"]["list"]}
    for panel in panels(board):
        for named in (named for expr in expressions(panel) for named in named_series(expr)):
            if named.matchers.get("job") not in JOBS:
                yield f"{panel['title']}: {named.series} does not heed the job"
            if by_model and named.series != "ALERTS":
                for label, variable in MODELS.items():
                    if named.matchers.get(label) != f"=~{variable}":
                        yield f"{panel['title']}: {named.series} does not heed {variable}"


def a_window_is_the_scrape_intervals_or_the_chosen_range(board: Board) -> Iterator[str]:
    for panel in panels(board):
        for expr in expressions(panel):
            for function, window in re.findall(r"(\w+)\s*\([^()]*\[([^\]]+)\]", expr):
                over_all = window == "$__range" and panel["type"] in OVER_ALL
                looks_back = function == "present_over_time"
                if window != "$__rate_interval" and not over_all and not looks_back:
                    yield f"{panel['title']}: {function} over {window}"


def a_counter_is_seen_through_its_growth(board: Board) -> Iterator[str]:
    for panel in panels(board):
        for expr in expressions(panel):
            yield from (f"{panel['title']}: bare counter {name}" for name in raw_counters(expr))


def a_quantile_has_exemplars(board: Board) -> Iterator[str]:
    for panel in panels(board):
        for target in panel["targets"]:
            if (
                panel["type"] == "timeseries"
                and "histogram_quantile" in target["expr"]
                and not target["exemplar"]
            ):
                yield f"{panel['title']}: no exemplars"


def nothing_is_told_from_nought(board: Board) -> Iterator[str]:
    """A number is 0 before the first call; a ratio, which is of nothing then, has a text instead."""
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "stat" and defaults["unit"] != "percentunit":
            zero = panel["targets"][0]["expr"].endswith(("or vector(0)", "or vector(0))"))
            if not zero:
                yield f"{panel['title']}: shows nothing before the first call"
        elif panel["type"] != "heatmap" and not defaults.get("noValue"):
            yield f"{panel['title']}: no text for an empty answer"


def the_variables_are_those_of_ours(board: Board) -> Iterator[str]:
    first, *queried = [v for v in board["templating"]["list"] if v["name"] != "traces"]
    if (first["name"], first["label"], first["type"]) != ("datasource", "Data source", "datasource"):
        yield f"the first variable is {first['name']}"
    earlier: list[str] = []
    for variable in queried:
        name = variable["name"]
        if not (variable["multi"] and variable["includeAll"] and variable["allValue"] in (".+", ".*")):
            yield f"{name}: not several, or no All"
        if variable["refresh"] != 2:
            yield f"{name}: does not follow the time range"
        if variable["datasource"] != PROMETHEUS or not variable["label"]:
            yield f"{name}: no data source or label"
        expr, _, label = variable["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
        yield from (f"{name}: {problem}" for problem in problems(f"sum by ({label}) ({expr})"))
        if name in ("provider", "model"):
            yield from (f"{name}: not chained to {one}" for one in earlier if f"${one}" not in expr)
        earlier.append(name)


def links_lead_to_dashboards_and_variables_that_exist(board: Board) -> Iterator[str]:
    variables = {v["name"] for v in board["templating"]["list"]} | {"provider", "model"}
    for url in re.findall(r'"url": "([^"]+)"', json.dumps(board)):
        target, _, query = url.partition("?")
        if target.removeprefix("/d/") not in UIDS:
            yield f"no such dashboard: {target}"
        for variable in re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", query):
            if not variables & set(variable):
                yield f"no such variable: {variable}"


def it_has_a_stable_address_and_is_not_editable(board: Board) -> Iterator[str]:
    if board.get("uid") not in UIDS:
        yield f"uid {board.get('uid')}"
    if board.get("editable") is not False:
        yield "editable in place"
    if "version" in board or "id" in board:
        yield "carries a version or id of somebody's Grafana"
    if board.get("graphTooltip") != 1:
        yield "no shared crosshair"


def alerts_are_shown_and_the_other_dashboards_linked(board: Board) -> Iterator[str]:
    shown = {a["name"] for a in board["annotations"]["list"] if a["enable"] and "ALERTS" in a["expr"]}
    if shown != {"Pages", "Tickets"}:
        yield f"annotations are {sorted(shown)}"
    (link,) = board["links"]
    if not (link["keepTime"] and link["includeVars"] and link["tags"] == ["stallwatch"]):
        yield "no link to the others that keeps time and choices"


RULES: dict[str, Callable[[Board], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        every_key_is_known,
        panels_stand_apart_on_the_grid,
        ids_are_unique_and_in_order,
        a_panel_has_a_title_and_asks_a_question,
        a_panel_has_a_known_unit,
        the_data_source_is_the_chosen_one,
        a_panel_has_queries_with_legends,
        a_single_value_is_reduced_to_the_last_one,
        every_name_is_emitted,
        a_legend_names_labels_that_are_left,
        a_query_heeds_the_variables,
        a_window_is_the_scrape_intervals_or_the_chosen_range,
        a_counter_is_seen_through_its_growth,
        a_quantile_has_exemplars,
        nothing_is_told_from_nought,
        the_variables_are_those_of_ours,
        links_lead_to_dashboards_and_variables_that_exist,
        it_has_a_stable_address_and_is_not_editable,
        alerts_are_shown_and_the_other_dashboards_linked,
    )
}


def _differences(one: Any, other: Any, where: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if key not in one or key not in other:
                yield f"{where}.{key} is not known to the SDK"
            else:
                yield from _differences(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _differences(a, b, f"{where}[{place}]")
    elif one != other:
        yield f"{where} is read as {other!r}"
