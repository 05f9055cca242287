"""The preview: a page that shows every panel of a dashboard, stands by itself, and does not pretend to be Grafana."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import pytest
from dashboards.preview import __main__ as command
from dashboards.preview import cells, curves, page, photograph, units
from dashboards.preview.asking import Series, Source, Told

from dashboards import probe

BOARDS = probe.shipped()
MOMENT = probe.Moment(until=1_000_000.0)
UGLY = """<b>&"'{m}"""
Points = list[tuple[float, float]]


class Answers(BaseHTTPRequestHandler):
    """Answers as a Prometheus does, with the same few series for every query, with none, or with a refusal."""

    series: tuple[dict[str, str], ...] = ()
    refusal: str | None = None

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if self.refusal is not None:
            self._send(400, {"status": "error", "error": self.refusal})
        elif path == "/api/v1/query_exemplars":
            told = [{"exemplars": [{"timestamp": 999_000.0, "value": "0.7"}]}] if self.series else []
            self._send(200, {"data": told})
        elif path == "/api/v1/query":
            rows = [{"metric": one, "value": [1e6, "0.25"]} for one in self.series]
            self._send(200, {"data": {"resultType": "vector", "result": rows}})
        else:
            start, end, step = (float(query[name][0]) for name in ("start", "end", "step"))
            times = [start + step * number for number in range(int((end - start) / step) + 1)]
            rows = [
                {"metric": one, "values": [[at, str(number + at % 7)] for at in times]}
                for number, one in enumerate(self.series)
            ]
            self._send(200, {"data": {"resultType": "matrix", "result": rows}})

    def _send(self, status: int, told: Any) -> None:
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: object, **__: object) -> None:
        """Say nothing."""


@contextmanager
def prometheus(*series: dict[str, str], refusal: str | None = None) -> Iterator[str]:
    told = type("Told", (Answers,), {"series": series, "refusal": refusal})
    with ThreadingHTTPServer(("127.0.0.1", 0), told) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


TRAFFIC = tuple(
    {
        "le": edge,
        "gen_ai_request_model": UGLY,
        "gen_ai_provider_name": "openai",
        "alertname": "LLMx",
        "job": UGLY,
    }
    for edge in ("0.5", "1", "+Inf")
)


def drawn(name: str, *series: dict[str, str], refusal: str | None = None) -> str:
    with prometheus(*series, refusal=refusal) as url:
        return page.draw(BOARDS[name], Source(url, BOARDS[name], MOMENT))


def titles(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        yield from (one["title"] for one in [panel, *(panel.get("panels") or [])])


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("series", [TRAFFIC, ()], ids=["traffic", "nothing"])
def test_a_page_shows_every_panel_and_says_that_it_is_not_grafana(
    name: str, series: tuple[dict[str, str], ...]
) -> None:
    told = "".join(ET.fromstring(drawn(name, *series)).itertext())
    for title in titles(BOARDS[name]):
        assert title in told
    assert "Preview, not Grafana" in told


@pytest.mark.parametrize("name", BOARDS)
def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing(name: str) -> None:
    written = drawn(name, *TRAFFIC)
    assert re.findall(r"(?i)\b(?:src|href)\s*=|url\(|@import|<script|<link|https?:", written) == []


@pytest.mark.parametrize("name", BOARDS)
def test_what_labels_hold_is_text_and_no_markup(name: str) -> None:
    written = drawn(name, *TRAFFIC)
    assert UGLY in "".join(ET.fromstring(written).itertext())
    assert "<b>&" not in written


def test_panels_stand_where_the_dashboard_puts_them() -> None:
    board = BOARDS["LLM streams"]
    sections = ET.fromstring(drawn("LLM streams", *TRAFFIC)).findall(".//section")
    wanted = [panel["gridPos"] for panel in board["panels"] if panel["type"] != "row"]
    assert len(sections) == len(wanted)
    for section, place in zip(sections, wanted, strict=True):
        style = dict(part.split(":") for part in section.get("style", "").split(";"))
        assert style["left"] == f"{place['x'] * page.COLUMN + page.GAP}px"
        assert style["width"] == f"{place['w'] * page.COLUMN - page.GAP}px"
    lowest = max(place["y"] + place["h"] for place in wanted)
    assert page.height(board) >= page.HEAD + lowest * page.ROW


def test_where_nothing_is_there_a_panel_says_what_it_says_in_grafana() -> None:
    told = "".join(ET.fromstring(drawn("LLM streams")).itertext())
    for said in ("No traffic", "No rules, or no traffic", "None"):
        assert said in told


def test_a_query_that_is_refused_is_told_in_its_panel() -> None:
    told = "".join(ET.fromstring(drawn("LLM streams", refusal="1:3: parse error <eof>")).itertext())
    assert "HTTP 400: 1:3: parse error <eof>" in told


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [
        (0, "short", "0"),
        (22.94, "short", "22.9"),
        (1450, "short", "1.45 K"),
        (-3.4, "percentunit", "-340%"),
        (0.01234, "percentunit", "1.23%"),
        (0, "s", "0 s"),
        (0.0025, "s", "2.5 ms"),
        (12.84, "s", "12.8 s"),
        (90, "s", "1.5 min"),
        (0.4, "cps", "0.4 c/s"),
        (12, "cpm", "12 c/m"),
        (2**26, "bytes", "64 MiB"),
        (14.4, "x", "14.4x"),
    ],
)
def test_numbers_are_written_in_their_units(value: float, unit: str, told: str) -> None:
    assert units.written(value, unit) == told


def test_every_unit_of_every_panel_can_be_written() -> None:
    text = json.dumps(list(BOARDS.values()))
    used = set(re.findall(r'"unit": "(\w+)"', text)) | set(
        re.findall(r'"id": "unit", "value": "(\w+)"', text)
    )
    assert len(used) > 4
    for unit in used:
        assert units.written(1234.5, unit)


def curve(points: Points, name: str = "a", **labels: str) -> Series:
    return Series(letter="A", name=name, labels=labels, points=tuple(points))


def panel(**custom: Any) -> dict[str, Any]:
    return {"fieldConfig": {"defaults": {"unit": "short", "min": 0, "custom": custom}, "overrides": []}}


def test_a_curve_breaks_where_nothing_was_measured_and_a_lonely_point_is_a_dot() -> None:
    told = Told(series=(curve([(0, 1), (10, 2), (20, 1), (60, 3), (70, 2), (100, 5)]),))
    svg = ET.fromstring(curves.draw(panel(), told, [], (0, 100), (400, 200)))
    assert [len(line.get("points", "").split()) for line in svg.findall("polyline")] == [3, 2]
    assert len(svg.findall("circle")) == 1


def test_stacked_curves_lie_on_each_other() -> None:
    told = Told(series=(curve([(0, 1), (10, 1)]), curve([(0, 2), (10, 3)], "b")))
    svg = ET.fromstring(curves.draw(panel(stacking={"mode": "normal"}), told, [], (0, 10), (400, 200)))
    first, second = (
        [point.split(",") for point in line.get("points", "").split()] for line in svg.findall("polyline")
    )
    assert float(second[0][1]) < float(first[0][1])
    floor = svg.findall("polygon")[1].get("points", "").split()[-2:]
    assert sorted(floor) == sorted(",".join(point) for point in first)


def test_a_heatmap_shows_what_each_bucket_has_of_its_own() -> None:
    heat = {"options": {"yAxis": {"unit": "s"}, "color": {"exponent": 0.5}}}
    told = Told(
        series=(
            curve([(0, 5), (10, 5)], le="+Inf"),
            curve([(0, 2), (10, 0)], le="1"),
            curve([(0, 2), (10, 5)], le="10"),
        )
    )
    svg = ET.fromstring(cells.draw(heat, told, (0, 20), (400, 200)))
    assert len(svg.findall("rect")) == 3
    assert {"1 s", "10 s", "over"} <= {text.text for text in svg.findall("text")}


def test_the_command_writes_a_page_for_each_dashboard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photograph, "NAMES", ())
    with prometheus(*TRAFFIC) as url:
        assert command.main([url, "--output", str(tmp_path / "new")]) == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        f"{path.stem}.html" for path in probe.HERE.glob("*.json")
    }
    assert "no Chromium was found" in capsys.readouterr().err


def test_a_prometheus_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["http://127.0.0.1:9", "--output", str(tmp_path), "--pages-only"]) == 2
    assert "preview: " in capsys.readouterr().err
