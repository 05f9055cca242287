"""Tables and charts say what the figures say, and hide nothing."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from benchmarks.alternating import Spread, added
from benchmarks.variants import OURS, PEERS, VARIANTS

from benchmarks import charts, tables, targets

TASKS = {
    "chunk stream call": ("sync", "async", "waiting"),
    "latency": ("sync latency", "async latency"),
    "held waiting": ("memory",),
    "p50 p99 most closing": ("lone async", "lone sync", "200 threads"),
    "p50 p99 most closing cpu": ("1000 expire", "2000 expire", "5000 expire"),
    "core threads timers tasks": ("10000 rest",),
    "1 10 100": ("by chunks", "by open streams", "by attempts", "by models"),
}


def made_up() -> dict[str, Any]:
    """Figures such as a whole run finds: every variant is a little dearer than the one before."""
    cells = {
        name: {"is": [60.0 + number] * 4, "adds": [float(number)] * 4} for number, name in enumerate(VARIANTS)
    }
    return {
        "python": "3.11.7",
        "system": "Linux",
        "imports": {"import": [20.0] * 4},
        "versions": {name: {"openai": "2.0" if "2.x" in name else "3.0"} for name in VARIANTS},
        "figures": {
            task: dict.fromkeys(figures.split(), cells) for figures, tasks in TASKS.items() for task in tasks
        },
    }


KEPT = made_up()


def test_every_variant_and_every_target_is_told_of() -> None:
    assert set(KEPT["figures"]["sync"]["chunk"]) == set(VARIANTS)
    assert set(KEPT["versions"]) == set(VARIANTS)
    assert len(targets.rows(KEPT)) == len(targets.TARGETS)
    for name in (*OURS, *PEERS):
        assert VARIANTS[name].what in tables.costs(KEPT)
        assert VARIANTS[name].what in tables.shares(KEPT)


def test_what_a_peer_was_measured_on_is_told_where_it_is_something_else() -> None:
    found = made_up()
    assert " on openai " not in tables.versions(found)
    found["versions"]["logfire"] = {"openai": "2.9", "unknown": "1"}
    assert "Logfire on openai 2.9." in tables.versions(found)


def test_a_missed_target_is_called_missed() -> None:
    target = targets.Target("a thing", 10, "µs", lambda found: float(found["value"]))
    assert target.row({"value": 10})[3] == "met"
    assert target.row({"value": 10.1})[3] == "**missed**"


def test_a_target_is_told_as_a_share_of_the_sdks_own_time_too() -> None:
    found = {"value": 12, "figures": {"sync": {"chunk": {"bare": {"is": [120.0]}}}}}
    target = targets.Target("a thing", 6.4, "µs", lambda found: float(found["value"]), ("sync", "chunk"))
    assert target.row(found)[3:] == ["**missed**", "10 % of a chunk", "10 %"]


def test_without_peers_only_what_compares_with_them_is_left_out() -> None:
    found = without(KEPT, PEERS)
    assert len(targets.rows(found)) == len(targets.rows(KEPT)) - 2
    assert tables.printed(found)


def test_a_peer_is_compared_with_the_sdk_it_runs_on() -> None:
    rounds = {"bare": [{"chunk": 60.0}], "bare 2.x": [{"chunk": 50.0}], "openlit": [{"chunk": 70.0}]}
    assert added(rounds, "openlit", "chunk", VARIANTS["openlit"].against).median == 20


def test_rounds_are_compared_with_those_beside_them() -> None:
    rounds = {"bare": [{"chunk": 60.0}, {"chunk": 120.0}], "all": [{"chunk": 70.0}, {"chunk": 130.0}]}
    assert added(rounds, "all", "chunk") == Spread(10, 10, 10, 10)


def test_figures_that_are_kept_fill_all_tables() -> None:
    if (found := tables.kept()) is None:
        pytest.skip("no figures are kept yet")
    assert set(found["versions"]) == set(VARIANTS)
    assert len(targets.rows(found)) == len(targets.TARGETS)
    assert tables.printed(found)


@pytest.mark.parametrize("name", tables.pictures(KEPT))
def test_charts_are_pictures_in_their_bounds(name: str) -> None:
    root = ET.fromstring(tables.pictures(KEPT)[name])
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    space = "{http://www.w3.org/2000/svg}"
    assert len(list(root.iter(f"{space}text"))) > 10
    for shape in root.iter(f"{space}rect"):
        assert 0 <= float(shape.get("x", "0")) + float(shape.attrib["width"]) <= width
        assert 0 <= float(shape.get("y", "0")) + float(shape.attrib["height"]) <= height


def test_a_bar_is_as_long_as_its_value() -> None:
    found = [charts.Bar(str(value), value, value, value, ours=True) for value in (-1.0, 5.0, 10.0)]
    space = "{http://www.w3.org/2000/svg}"
    root = ET.fromstring(charts.bars("title", found))
    lengths = [float(one.attrib["width"]) for one in root.iter(f"{space}rect")][1:]
    assert lengths[0] == 0
    assert math.isclose(lengths[1] * 2, lengths[2], rel_tol=0.01)


def test_crowds_that_were_left_out_leave_no_rows() -> None:
    found = KEPT | {
        "figures": {k: v for k, v in KEPT["figures"].items() if k not in {"5000 expire", "10000 rest"}}
    }
    assert "5,000" not in tables.lateness(found)
    assert "left out" in tables.resting(found)
    assert not any("0,000" in row[0] for row in targets.rows(found))


def without(found: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return found | {
        "figures": {
            task: {
                figure: {name: cells for name, cells in by_variant.items() if name not in names}
                for figure, by_variant in figures.items()
            }
            for task, figures in found["figures"].items()
        },
        "versions": {name: told for name, told in found["versions"].items() if name not in names},
    }
