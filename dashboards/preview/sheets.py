"""What a panel says in figures: a stat's one number, the legend under curves, a table's lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dashboards.preview.asking import Series, Told
from dashboards.preview.ink import NAMED, Frame, coloured, drawing
from dashboards.preview.units import written

LINE = 17
"""Pixels that a line of a legend takes."""


def number(panel: Mapping[str, Any], told: Told, size: tuple[float, float]) -> str:
    """Return a stat: its last value, over its recent past if it has one to show."""
    defaults = panel["fieldConfig"]["defaults"]
    values = [value for one in told.series for _, value in one.points if math.isfinite(value)]
    if not values:
        return f'<div class="number nothing">{escape(defaults.get("noValue", "No data"))}</div>'
    colour = "inherit"
    if panel["options"]["colorMode"] == "value":
        colour = _reached(defaults["thresholds"]["steps"], values[-1])
    shown = escape(written(values[-1], defaults["unit"], defaults.get("decimals")))
    past = _past(told.series[0], size) if panel["options"]["graphMode"] == "area" else ""
    return f'{past}<div class="number" style="color:{colour}">{shown}</div>'


def nothing(panel: Mapping[str, Any]) -> str:
    """Return what a panel says when its queries have no answer."""
    return f'<div class="nothing">{escape(panel["fieldConfig"]["defaults"].get("noValue", "No data"))}</div>'


def legend(panel: Mapping[str, Any], told: Told, room: float) -> str:
    """Return the legend of curves in its order as far as there is room, and how many lines had none."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    order = panel["options"]["legend"]
    ranked = []
    for one, colour in zip(told.series, coloured(panel, [one.name for one in told.series]), strict=True):
        values = [value for _, value in one.points if math.isfinite(value)]
        if values:
            cells = "".join(f"<td>{escape(written(value, unit))}</td>" for value in (values[-1], max(values)))
            told_of = f'<tr><th><i style="background:{colour}"></i>{escape(one.name)}</th>{cells}</tr>'
            ranked.append((max(values) if order["sortBy"] == "Max" else values[-1], told_of))
    ranked.sort(key=lambda line: line[0], reverse=order["sortDesc"])
    lines = [told_of for _, told_of in ranked]
    fit = max(1, int(room / LINE) - 1)
    more = f"<tr><th>{len(lines) - fit + 1} more</th></tr>" if len(lines) > fit else ""
    shown = lines[: fit - 1] if more else lines
    return f'<table class="legend"><tr><th></th><td>Last</td><td>Max</td></tr>{"".join(shown)}{more}</table>'


def table(panel: Mapping[str, Any], told: Told) -> str:
    """Return a table's lines, merged by their labels, with the names, order and units that the panel gives."""
    organised: dict[str, Any] = next(
        (one["options"] for one in panel["transformations"] if one["id"] == "organize"), {}
    )
    names: Mapping[str, str] = organised.get("renameByName", {})
    several = len(panel["targets"]) > 1
    lines: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for one in told.series:
        line = lines.setdefault(tuple(sorted(one.labels.items())), dict(one.labels))
        line[f"Value #{one.letter}" if several else "Value"] = one.points[-1][1]
    columns = sorted(
        (name for name in names if any(name in line for line in lines.values())),
        key=organised.get("indexByName", {}).__getitem__,
    )
    if not columns:
        return nothing(panel)
    units, missing = _overrides(panel, "unit"), _overrides(panel, "noValue")
    empty = panel["fieldConfig"]["defaults"].get("noValue", "")
    ordered = _sorted(list(lines.values()), panel["options"].get("sortBy", ()), names)
    head = "".join(f"<th>{escape(names[column])}</th>" for column in columns)
    cells = (
        [
            _cell(line.get(column), units.get(names[column], "short"), missing.get(names[column], empty))
            for column in columns
        ]
        for line in ordered
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return f'<table class="sheet"><tr>{head}</tr>{body}</table>'


def _cell(value: str | float | None, unit: str, missing: str) -> str:
    if value is None:
        return f'<td class="missing">{escape(missing)}</td>'
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    return f'<td class="figure">{escape(written(value, unit))}</td>'


def _overrides(panel: Mapping[str, Any], what: str) -> dict[str, str]:
    """Return what the panel says of single columns, by their headings."""
    return {
        override["matcher"]["options"]: one["value"]
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == what
    }


def _sorted(
    lines: list[dict[str, Any]], order: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> list[dict[str, Any]]:
    for one in order:
        column = next((name for name, shown in names.items() if shown == one["displayName"]), "")
        known = [line for line in lines if column in line]
        unknown = [line for line in lines if column not in line]
        lines = sorted(known, key=lambda line: line[column], reverse=bool(one.get("desc"))) + unknown
    return lines


def _reached(steps: Sequence[Mapping[str, Any]], value: float) -> str:
    reached = [step["color"] for step in steps if step["value"] is None or step["value"] <= value]
    return NAMED[reached[-1]]


def _past(one: Series, size: tuple[float, float]) -> str:
    if len(one.points) < 2:
        return ""
    values = [value for _, value in one.points]
    low, high = min(values), max(values)
    place = Frame(
        width=size[0],
        height=size[1],
        left=0,
        right=0,
        bottom=0,
        top=size[1] * 0.55,
        since=one.points[0][0],
        until=one.points[-1][0],
    )
    points = [
        f"{place.x(at):.1f},{place.y((value - low) / ((high - low) or 1)):.1f}" for at, value in one.points
    ]
    floor = f"{size[0]:.1f},{size[1]:.1f} 0,{size[1]:.1f}"
    return drawing(size[0], size[1], f'<polygon points="{" ".join(points)} {floor}" fill="#d9e5f2"/>')
