"""The committed dashboard: made by the generator, laid out on the grid, and asking only for what is measured."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from support.promql import problems

pytest.importorskip("grafana_foundation_sdk", reason="the dashboard SDK is not installed")

from dashboards import classic, generate, llm_streams, panels, rules

FOLDER = Path(__file__).parents[2] / "dashboards"
BOARD: dict[str, Any] = json.loads((FOLDER / "llm-streams.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = BOARD["panels"]
WITH_DATA = [panel for panel in PANELS if panel["type"] != "row"]
UNITS = {"short", "s", "percentunit", "cps", "cpm"}


def titles(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def test_generating_again_gives_the_committed_bytes() -> None:
    for name, text in generate.files(rules.Objective()).items():
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


def test_the_sdk_knows_every_key_of_the_file() -> None:
    """A misspelt key is dropped on reading, so it would be missing from what is written again."""
    classic.register_default_plugins()
    read = classic.models.Dashboard.from_json(BOARD)
    for annotation in read.annotations.list_val:
        # Absent in the file, and the SDK's default for what is absent is not absence.
        annotation.placement = None
    again = classic.JSONEncoder(sort_keys=True).encode(read)
    assert json.loads(again) == BOARD


def test_no_two_panels_overlap_and_none_leaves_the_grid() -> None:
    cells = {panel["id"]: panel["gridPos"] for panel in PANELS}
    for place in cells.values():
        assert place["x"] + place["w"] <= 24
    for (one, a), (other, b) in combinations(cells.items(), 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart or below, f"panels {one} and {other} overlap"


def test_every_panel_has_an_id_of_its_own() -> None:
    assert sorted(panel["id"] for panel in PANELS) == list(range(1, len(PANELS) + 1))


@pytest.mark.parametrize("panel", WITH_DATA, ids=titles)
def test_a_panel_asks_a_question_in_known_units_of_the_chosen_source(panel: dict[str, Any]) -> None:
    assert "?" in panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    if panel["type"] == "timeseries":
        assert panel["options"]["legend"]["showLegend"]
        assert all(target["legendFormat"] for target in panel["targets"])
    if panel["type"] == "stat":
        assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]


@pytest.mark.parametrize("panel", WITH_DATA, ids=titles)
def test_every_name_in_a_panels_queries_is_in_the_catalogue(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert problems(target["expr"]) == []


@pytest.mark.parametrize("panel", WITH_DATA, ids=titles)
def test_a_panels_queries_heed_every_variable_and_the_scrape_interval(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expr = target["expr"]
        assert expr.count('job=~"$job"') == expr.count('=~"$provider"') == expr.count('=~"$model"') > 0
        assert "[$__rate_interval]" in expr or "[$__range]" in expr or "[" not in expr


def test_single_values_are_zero_before_the_first_call_and_ratios_are_absent() -> None:
    for panel in WITH_DATA:
        if panel["type"] == "stat":
            (target,) = panel["targets"]
            ratio = panel["fieldConfig"]["defaults"]["unit"] == "percentunit"
            assert target["expr"].endswith("or vector(0)") is not ratio
            assert not ratio or panel["fieldConfig"]["defaults"]["noValue"] == "No traffic"


def test_quantiles_show_exemplars() -> None:
    for panel in WITH_DATA:
        if panel["type"] == "timeseries":
            for target in panel["targets"]:
                assert target["exemplar"] or "histogram_quantile" not in target["expr"], panel["title"]


def test_the_variables_are_chained_and_follow_the_time_range() -> None:
    variables = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "provider", "model"]
    assert variables["datasource"]["label"] == "Data source"
    for name, earlier in (("job", ()), ("provider", ("$job",)), ("model", ("$job", "$provider"))):
        variable = variables[name]
        assert variable["multi"]
        assert variable["includeAll"]
        assert variable["refresh"] == 2
        assert variable["allValue"] in {".+", ".*"}
        expr, _, label = variable["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
        assert problems(f"sum by ({label}) ({expr})") == []
        assert all(choice in variable["query"] for choice in earlier)


def test_it_cannot_be_edited_in_place_and_has_a_stable_address() -> None:
    assert BOARD["editable"] is False
    assert BOARD["uid"] == llm_streams.UID
    assert "version" not in BOARD
    assert f"/d/{llm_streams.UID}" in json.dumps(PANELS[-1])


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("sum(stallwatch_stream_total)", "no such series: stallwatch_stream_total"),
        ('rate(stallwatch_streams_total{outcome="x"}[5m])', "stallwatch_streams_total has no label outcome"),
        ('stallwatch_streams_total{stallwatch_outcome="timeout"}', "stallwatch_outcome is never 'timeout'"),
        ("sum by (tenant) (stallwatch_streams_active)", "no series here has the label tenant"),
        ("stallwatch_stall_wait_bucket", "no such series: stallwatch_stall_wait_bucket"),
    ],
)
def test_the_check_of_names_finds_a_planted_mistake(expr: str, problem: str) -> None:
    assert problems(expr) == [problem]


def test_the_grid_refuses_what_does_not_fit() -> None:
    class Board:
        def with_panel(self, panel: object) -> None: ...

        def with_row(self, row: object) -> None: ...

    grid = panels.Grid(Board())
    question = panels.number("a", "b?", panels.Query("c", "d"), "s")
    with pytest.raises(ValueError, match="5 panels are not allowed: give a number that divides 24"):
        grid.line(4, *[question] * 5)
