"""The page: every panel of a dashboard at its place on the grid, under a head that says what this is and is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from dashboards.preview import cells, curves, sheets
from dashboards.preview.asking import Mark, Source, Told

COLUMN, ROW, GAP = 66, 36, 8
"""Pixels of the grid; Grafana's own proportions."""
WIDTH = 24 * COLUMN + GAP
HEAD = 74
TITLE = 26
LEGEND_SHARE = 0.35
"""Most of a panel's height that its legend may take."""

_STYLE = """
body{margin:0;background:#f3f5f7;color:#26303a;font:13px/1.3 "DejaVu Sans",Verdana,sans-serif}
header{padding:12px 8px 0 8px;height:62px;box-sizing:border-box}
header b{font-size:19px}
header span{color:#5b6672}
header em{font-style:normal;font-weight:bold;color:#fff;background:#8a5a00;border-radius:3px;padding:2px 7px}
main{position:relative}
section,h2{position:absolute;box-sizing:border-box;margin:0;overflow:hidden}
section{background:#fff;border:1px solid #dfe3e8;border-radius:3px;padding:0 7px}
h2{font-size:14px;line-height:30px}
h3{margin:0;font-size:12px;line-height:26px;height:26px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
svg{display:block;font-family:inherit}
.number{position:absolute;left:0;right:0;bottom:0;top:26px;text-align:center;font-size:30px;padding-top:18px}
section>svg+.number{padding-top:10px}
.nothing{color:#7b8794;text-align:center;padding-top:30px;font-size:20px}
.number.nothing{font-size:22px}
.fault{color:#c8473d;padding:8px}
table{border-collapse:collapse;width:100%}
.legend{table-layout:fixed;font-size:11px;line-height:17px}
.legend td{width:76px;text-align:right;padding:0;color:#5b6672}
.legend th{font-weight:normal;text-align:left;padding:0;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.legend i{display:inline-block;width:12px;height:3px;margin:0 6px 3px 0}
.sheet th,.sheet td{text-align:left;padding:4px 8px;border-bottom:1px solid #e4e7eb;white-space:nowrap}
.sheet td.missing{color:#7b8794}
.sheet td.figure{font-variant-numeric:tabular-nums}
"""


def draw(board: Mapping[str, Any], source: Source) -> str:
    """Return the whole page; it needs nothing from elsewhere."""
    marks = [mark for annotation in board["annotations"]["list"] for mark in source.marks(annotation)]
    parts = [_placed(panel, source, marks) for panel in board["panels"]]
    title = escape(board["title"])
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"/><title>{title}: a preview</title>'
        f"<style>{_STYLE}</style></head><body>{_head(board, source)}"
        f'<main style="width:{WIDTH}px;height:{height(board) - HEAD}px">{"".join(parts)}</main></body></html>\n'
    )


def height(board: Mapping[str, Any]) -> int:
    """Return how high the page is, in pixels."""
    lowest: int = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    return HEAD + ROW * lowest + GAP


def _head(board: Mapping[str, Any], source: Source) -> str:
    until = source.moment.until or 0.0
    form = "%Y-%m-%d %H:%M:%S"
    since, end = (
        datetime.fromtimestamp(at, UTC).strftime(form) for at in (until - source.moment.span, until)
    )
    return (
        f"<header><b>{escape(board['title'])}</b> &#160; <em>Preview, not Grafana</em><br/>"
        "<span>Drawn by dashboards/preview from the dashboard's JSON and the answers of a Prometheus, "
        f"{since} to {end} UTC. Grafana looks different.</span></header>"
    )


def _placed(panel: Mapping[str, Any], source: Source, marks: Sequence[Mark]) -> str:
    place = panel["gridPos"]
    x, y = place["x"] * COLUMN + GAP, place["y"] * ROW
    width, high = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    box = f'style="left:{x}px;top:{y}px;width:{width}px;height:{high}px"'
    title = escape(panel["title"])
    if panel["type"] == "row":
        inside = [one["title"] for one in panel.get("panels") or []]
        closed = f" (closed; in it: {escape(', '.join(inside))})" if inside else ""
        return f"<h2 {box}>{title}{closed}</h2>"
    told = source.panel(panel)
    content = _content(panel, told, source, marks, (width - 16.0, high - TITLE - 6.0))
    return f'<section {box} title="{escape(panel["description"])}"><h3>{title}</h3>{content}</section>'


def _content(
    panel: Mapping[str, Any], told: Told, source: Source, marks: Sequence[Mark], size: tuple[float, float]
) -> str:
    if told.fault is not None:
        return f'<div class="fault">{escape(told.fault)}</div>'
    if panel["type"] == "stat":
        return sheets.number(panel, told, size)
    if panel["type"] == "table":
        return sheets.table(panel, told)
    if not told.series:
        return sheets.nothing(panel)
    until = source.moment.until or 0.0
    frame = (until - source.moment.span, until)
    if panel["type"] == "heatmap":
        return cells.draw(panel, told, frame, size)
    lines = min((len(told.series) + 1) * sheets.LINE, size[1] * LEGEND_SHARE)
    drawn = curves.draw(panel, told, marks, frame, (size[0], size[1] - lines))
    return drawn + sheets.legend(panel, told, lines)
