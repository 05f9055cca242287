"""Every query of every dashboard, asked of a real Prometheus: with days of traffic behind it, and with nothing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboards.preview import page
from dashboards.preview.asking import Source

from dashboards import objective, probe, recordings
from support import history, prometheus, promtool

RULES = Path(__file__).parents[2] / "dashboards" / "rules.yml"
BOARDS = sorted(probe.shipped())

pytestmark = [promtool.installed, prometheus.installed, pytest.mark.slow]

RECORDED_WITHIN = 30.0
DAYS_BACK = history.DAYS
WINDOW = f"{4 * history.STEP}s"


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus.running(tmp_path_factory.mktemp("nothing"), rules=RULES) as url:
        yield url


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("traffic")
    with (folder / "history.om").open("w", encoding="utf-8") as file:
        file.writelines(history.openmetrics(int(time.time())))
    promtool.run("tsdb", "create-blocks-from", "openmetrics", "--quiet", "history.om", "data", folder=folder)
    recorded_since(folder, DAYS_BACK)
    with prometheus.running(folder, rules=RULES) as url:
        until = time.monotonic() + RECORDED_WITHIN
        while time.monotonic() < until and not value(
            url, "count(model:stallwatch_stalled_streams:budget_left)"
        ):
            time.sleep(0.2)
        yield url


def recorded_since(folder: Path, days: int) -> None:
    """Let the rules have been loaded for days: what they read from counters is recorded for all of them."""
    rules = [
        {"record": one.name, "expr": one.expr}
        for one in recordings.recordings(objective.Objective())
        if one.name in (recordings.streams(recordings.BASE), recordings.stalled(recordings.BASE))
    ]
    (folder / "base.yml").write_text(
        json.dumps({"groups": [{"name": "base", "rules": rules}]}), encoding="utf-8"
    )
    now = int(time.time())
    with prometheus.running(folder) as url:
        since = ["--start", str(now - days * 86400), "--end", str(now), "--eval-interval", "1m"]
        promtool.run(
            "tsdb",
            "create-blocks-from",
            "rules",
            "--url",
            url,
            "--output-dir",
            "data",
            *since,
            "base.yml",
            folder=folder,
        )


def value(url: str, expr: str) -> float | None:
    """Return the value of an expression; None when it is nothing."""
    board = {
        "title": "own",
        "templating": {"list": []},
        "annotations": {"list": []},
        "panels": [
            {"type": "stat", "title": "own", "targets": [{"expr": expr, "refId": "A", "instant": True}]}
        ],
    }
    (answer,) = probe.ask(url, board)
    assert answer.fault is None, answer
    return answer.values[0] if answer.values else None


@pytest.mark.parametrize("board", BOARDS)
def test_with_traffic_every_query_has_finite_data(traffic: str, board: str) -> None:
    answers = probe.ask(traffic, probe.shipped()[board], probe.Moment(window=WINDOW))
    assert [str(answer) for answer in answers if answer.fault] == []
    silent = {"Tickets"}
    assert {answer.where for answer in answers if not answer.series} <= silent


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(
    "chosen",
    [
        {"job": "app", "provider": "openai", "model": r"o/3:x\\.1"},
        {"job": "(app|batch)", "provider": "(deepseek|openai)", "model": r"(_OTHER|o/3:x\\.1)"},
        {"job": "app", "collector": "collectors"},
    ],
    ids=["one", "several", "a job"],
)
def test_a_choice_is_answered_as_grafana_writes_it(traffic: str, board: str, chosen: dict[str, str]) -> None:
    answers = probe.ask(traffic, probe.shipped()[board], probe.Moment(window=WINDOW, values=chosen))
    assert [str(answer) for answer in answers if answer.fault] == []
    empty = {answer.where for answer in answers if not answer.series}
    # Models past the cap are another model, and the target that is down is another job.
    assert empty <= {"Tickets", "Streams of models past the cap A", "Targets that Prometheus cannot scrape A"}


@pytest.mark.parametrize("board", BOARDS)
def test_with_nothing_there_is_nought_or_nothing_and_no_error(nothing: str, board: str) -> None:
    answers = probe.ask(nothing, probe.shipped()[board])
    assert [str(answer) for answer in answers if answer.fault] == []
    told = {answer.where: answer.values for answer in answers if answer.series}
    assert set(told.values()) == {(0.0,)}
    ratios = {answer.where for answer in answers if answer.single and not answer.series}
    assert ratios <= {
        "Stalled, of all that ended A",
        "Tried again, of all attempts A",
        "Budget left, worst model A",
        "Streams without a stall A",
        "Fullest queue A",
    }


@pytest.mark.parametrize("board", BOARDS)
def test_the_preview_draws_every_panel(traffic: str, board: str) -> None:
    shown = probe.shipped()[board]
    written = page.draw(shown, Source(traffic, shown, probe.Moment(window=WINDOW)))
    assert 'class="fault"' not in written
    assert not re.search(r'class="(number )?nothing"', written)
    drawn = [panel for panel in shown["panels"] if panel["type"] in ("timeseries", "heatmap")]
    assert written.count("<svg") >= len(drawn)


def test_the_long_windows_see_the_days_before(traffic: str) -> None:
    """Of 302 streams 2 stalled, for four days; three of them fit into the longest window."""
    share = 0.002 / 0.302
    who = '{job="app", gen_ai_request_model="_OTHER"}'
    for window in ("1h", "6h", "3d"):
        assert value(traffic, f"model:stallwatch_stalled_streams:ratio{window}{who}") == pytest.approx(
            share, 0.02
        )
    streams = value(traffic, f"model:stallwatch_streams:increase3d{who}")
    assert streams == pytest.approx(0.302 * 3 * 86400, 0.02)
    left = value(traffic, f"model:stallwatch_stalled_streams:budget_left{who}")
    assert left == pytest.approx(1 - share / 0.01, 0.02)


def test_the_probe_tells_what_has_no_answer(nothing: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main([nothing]) == 0
    told = capsys.readouterr().out
    assert "LLM streams: panel Open streams A: 1 series" in told
    assert "LLM streams: panel Time to first token A: nothing" in told
    assert told.endswith(" with a fault\n")


def test_the_probe_finds_faults(nothing: str) -> None:
    board = {
        "title": "wrong",
        "templating": {"list": []},
        "annotations": {"list": []},
        "panels": [
            {
                "type": "stat",
                "title": "wrong",
                "targets": [
                    {"expr": "sum(", "refId": "A", "instant": True},
                    {"expr": "vector(0) / 0", "refId": "B", "instant": True},
                ],
            }
        ],
    }
    unread, nan = probe.ask(nothing, board)
    assert unread.fault is not None
    assert unread.fault.startswith("HTTP 400: ")
    assert nan.fault == "nan among the values"


def test_a_prometheus_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main(["http://127.0.0.1:9"]) == 2
    assert "probe: " in capsys.readouterr().err
