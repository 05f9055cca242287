"""Heatmaps of a histogram: a row for each bucket, a cell for each point, darker where more fell into it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from dashboards.preview.asking import Told
from dashboards.preview.ink import Frame, drawing, room_for, text
from dashboards.preview.units import written

_PALE, _DARK = (254, 237, 222), (140, 45, 4)
_LEAST = 1e-9


def draw(panel: Mapping[str, Any], told: Told, frame: tuple[float, float], size: tuple[float, float]) -> str:
    """Return the cells of a panel; ``frame`` is the time shown, ``size`` the pixels there are."""
    rows = _own(told)
    while rows and not any(rows[-1][1].values()):
        rows.pop()
    unit = panel["options"]["yAxis"]["unit"]
    labels = ["over" if edge == float("inf") else written(edge, unit) for edge, _ in rows]
    place = Frame(width=size[0], height=size[1], left=room_for(labels), since=frame[0], until=frame[1])
    columns = sorted({at for _, row in rows for at in row})
    step = min((b - a for a, b in itertools.pairwise(columns)), default=frame[1] - frame[0])
    width = max(place.x(place.since + step) - place.x(place.since) - 0.5, 1.0)
    height = (place.y(0) - place.y(1)) / max(len(rows), 1)
    most = max((value for _, row in rows for value in row.values()), default=0.0)
    exponent = panel["options"]["color"]["exponent"]
    parts = [place.times()]
    every = math.ceil(13 / height)
    for number, ((_, row), label) in enumerate(zip(rows, labels, strict=True)):
        y = place.y(0) - height * (number + 1)
        if number % every == 0:
            parts.append(text(place.left - 6, y + height / 2 + 4, label, "end"))
        for at, value in row.items():
            if value > _LEAST and at >= place.since:
                x = min(place.x(at), place.width - place.right - width)
                parts.append(
                    f'<rect x="{x:.1f}" y="{y + 0.5:.1f}" width="{width:.1f}" height="{height - 1:.1f}" '
                    f'fill="{_colour((value / most) ** exponent)}"/>'
                )
    return drawing(size[0], size[1], "".join(parts))


def _own(told: Told) -> list[tuple[float, dict[float, float]]]:
    """Return what each bucket has of its own: the buckets of a histogram hold those below as well."""
    buckets = sorted((float(one.labels["le"]), dict(one.points)) for one in told.series if "le" in one.labels)
    own = []
    below: dict[float, float] = {}
    for edge, points in buckets:
        own.append((edge, {at: max(value - below.get(at, 0.0), 0.0) for at, value in points.items()}))
        below = points
    return own


def _colour(part: float) -> str:
    mixed = (round(pale + (dark - pale) * part) for pale, dark in zip(_PALE, _DARK, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)
