"""The committed dashboards: made by the generator, and free of what the rules on dashboards find."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grafana_foundation_sdk", reason="the dashboard SDK is not installed")

from dashboards import generate, grid, objective, panels
from support import board_rules
from support.board_rules import RULES, Board
from support.promql import problems

FOLDER = Path(__file__).parents[2] / "dashboards"
NAMES = ["llm-streams", "idle-timeout-slo", "pipeline-health"]
BOARDS: dict[str, Board] = {
    name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES
}


def test_generating_again_gives_the_committed_bytes() -> None:
    written = generate.files(objective.Objective())
    assert {path.name for path in FOLDER.glob("*.json")} == {
        name for name in written if name.endswith(".json")
    }
    for name, text in written.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, (
            f"{name}: run python -m dashboards.generate"
        )


def test_a_check_tells_of_a_file_that_differs_and_leaves_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--folder", str(tmp_path)]) == 0
    assert generate.main(["--folder", str(tmp_path), "--check"]) == 0
    (tmp_path / "rules.yml").write_text("edited by hand\n", encoding="utf-8")
    assert generate.main(["--folder", str(tmp_path), "--check"]) == 1
    assert (tmp_path / "rules.yml").read_text(encoding="utf-8") == "edited by hand\n"
    assert "differs" in capsys.readouterr().out


def test_addresses_given_to_the_generator_are_those_in_every_alert(tmp_path: Path) -> None:
    addresses = ["--runbooks", "https://wiki.example.org/a/", "--grafana", "https://grafana.example.org/"]
    assert generate.main(["--folder", str(tmp_path), *addresses]) == 0
    text = (tmp_path / "rules.yml").read_text(encoding="utf-8")
    assert text.count("https://wiki.example.org/a#llm") == text.count("https://grafana.example.org/d/")
    assert "example.com" not in text


def test_an_objective_that_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--target", "0.5"]) == 2
    assert "target=0.5 is not allowed" in capsys.readouterr().err


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", NAMES)
def test_the_committed_dashboards_follow_every_rule(name: str, rule: str) -> None:
    assert list(RULES[rule](BOARDS[name])) == []


# The rules themselves: each finds a mistake that is planted by hand.


def first(board: Board, kind: str = "timeseries") -> Any:
    return next(panel for panel in board_rules.panels(board) if panel["type"] == kind)


def target(board: Board, kind: str = "timeseries") -> Any:
    return first(board, kind)["targets"][0]


def replaced(board: Board, old: str, new: str) -> None:
    changed = json.loads(json.dumps(board).replace(old, new))
    assert changed != board, f"{old} is not in the dashboard"
    board.clear()
    board.update(changed)


MISTAKES: list[tuple[str, str, Callable[[Board], object]]] = [
    ("a misspelt key", "every_key_is_known", lambda b: first(b)["options"].update(legnd={})),
    (
        "a panel moved over its neighbour",
        "panels_stand_apart_on_the_grid",
        lambda b: first(b)["gridPos"].update(x=first(b)["gridPos"]["x"] + 1),
    ),
    ("a panel off the grid", "panels_stand_apart_on_the_grid", lambda b: first(b)["gridPos"].update(w=25)),
    (
        "a panel as high as two lines",
        "panels_stand_apart_on_the_grid",
        lambda b: first(b)["gridPos"].update(h=20),
    ),
    ("two panels of one id", "ids_are_unique_and_in_order", lambda b: first(b).update(id=1)),
    ("no description", "a_panel_has_a_title_and_asks_a_question", lambda b: first(b).update(description="")),
    ("a deleted unit", "a_panel_has_a_known_unit", lambda b: first(b)["fieldConfig"]["defaults"].pop("unit")),
    (
        "a unit that Grafana does not have",
        "a_panel_has_a_known_unit",
        lambda b: first(b)["fieldConfig"]["defaults"].update(unit="seconds"),
    ),
    (
        "somebody's own data source",
        "the_data_source_is_the_chosen_one",
        lambda b: target(b).update(datasource={"type": "prometheus", "uid": "P1"}),
    ),
    ("no queries", "a_panel_has_queries_with_legends", lambda b: first(b).update(targets=[])),
    (
        "a hidden legend",
        "a_panel_has_queries_with_legends",
        lambda b: first(b)["options"]["legend"].update(showLegend=False),
    ),
    (
        "a stat of nothing",
        "a_single_value_is_reduced_to_the_last_one",
        lambda b: first(b, "stat")["options"]["reduceOptions"].update(calcs=[]),
    ),
    (
        "a wrong metric name",
        "every_name_is_emitted",
        lambda b: replaced(b, "stallwatch_stream", "stallwatch_flow"),
    ),
    (
        "a wrong label name",
        "every_name_is_emitted",
        lambda b: target(b).update(expr='sum by (tenant) (up{job=~"$job"})'),
    ),
    (
        "a legend of a label that is gone",
        "a_legend_names_labels_that_are_left",
        lambda b: target(b).update(legendFormat="{{tenant}}"),
    ),
    ("a query of all jobs", "a_query_heeds_the_variables", lambda b: target(b).update(expr="sum(up)")),
    (
        "a window of somebody's own",
        "a_window_is_the_scrape_intervals_or_the_chosen_range",
        lambda b: target(b).update(expr='sum(rate(stallwatch_streams_total{job=~"$job"}[5m]))'),
    ),
    (
        "a bare counter",
        "a_counter_is_seen_through_its_growth",
        lambda b: target(b).update(expr='sum(stallwatch_streams_total{job=~"$job"})'),
    ),
    (
        "a quantile without exemplars",
        "a_quantile_has_exemplars",
        lambda b: target(b).update(expr="histogram_quantile(0.9, x)", exemplar=False),
    ),
    (
        "a number that is absent before the first call",
        "nothing_is_told_from_nought",
        lambda b: replaced(b, " or vector(0)", ""),
    ),
    (
        "no text for nothing",
        "nothing_is_told_from_nought",
        lambda b: first(b)["fieldConfig"]["defaults"].pop("noValue"),
    ),
    (
        "a variable of one value",
        "the_variables_are_those_of_ours",
        lambda b: b["templating"]["list"][1].update(multi=False),
    ),
    (
        "a variable that asks a wrong name",
        "the_variables_are_those_of_ours",
        lambda b: b["templating"]["list"][1].update(query="label_values(strems, job)"),
    ),
    (
        "a link to nowhere",
        "links_lead_to_dashboards_and_variables_that_exist",
        lambda b: b["links"][0].update(url="/d/elsewhere"),
    ),
    (
        "a link with a misspelt variable",
        "links_lead_to_dashboards_and_variables_that_exist",
        lambda b: b["links"][0].update(url="/d/stallwatch-llm-streams?var-modell=x"),
    ),
    (
        "a dashboard to be edited in place",
        "it_has_a_stable_address_and_is_not_editable",
        lambda b: b.update(editable=True),
    ),
    (
        "no alerts",
        "alerts_are_shown_and_the_other_dashboards_linked",
        lambda b: b["annotations"].update(list=[]),
    ),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("rule", "plant"), [pytest.param(rule, plant, id=what) for what, rule, plant in MISTAKES]
)
def test_a_mistake_planted_by_hand_is_found(name: str, rule: str, plant: Callable[[Board], object]) -> None:
    board = copy.deepcopy(BOARDS[name])
    plant(board)
    assert list(RULES[rule](board)) != []


def test_every_rule_is_proven_by_a_mistake() -> None:
    assert {rule for _, rule, _ in MISTAKES} == set(RULES)


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("sum(stallwatch_stream_total)", "no such series: stallwatch_stream_total"),
        ('rate(stallwatch_streams_total{outcome="x"}[5m])', "stallwatch_streams_total has no label outcome"),
        ('stallwatch_streams_total{stallwatch_outcome="timeout"}', "stallwatch_outcome is never 'timeout'"),
        ("sum by (tenant) (stallwatch_streams_active)", "no series here has the label tenant"),
        ("stallwatch_stall_wait_bucket", "no such series: stallwatch_stall_wait_bucket"),
        (
            'rate({__name__=~"otelcol_exporter_sent_span(_total)?"}[5m])',
            "no such series: otelcol_exporter_sent_span",
        ),
        ("up / stallwatch_strems_active offset 1h", "no such series: stallwatch_strems_active"),
        ('{__name__="otelcol_process_uptime", exporter="a"}', "otelcol_process_uptime has no label exporter"),
    ],
)
def test_the_check_of_names_finds_a_planted_mistake(expr: str, problem: str) -> None:
    assert problems(expr) == [problem]


def test_the_grid_refuses_what_does_not_fill_it() -> None:
    class Nothing:
        def with_panel(self, panel: object) -> None: ...

    question = panels.number("a", "b?", panels.Query("c", "d"), "s")
    with pytest.raises(
        ValueError, match=r"5 panels of widths .* are not allowed: give as many widths as panels, 24"
    ):
        grid.Grid(Nothing()).line(4, *[question] * 5)
