"""Curves over time: stacked or not, with limits drawn across, exemplars, and the moments at which alerts fired."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.preview.asking import Mark, Series, Told
from dashboards.preview.ink import FAINT, NAMED, Frame, coloured, drawing, line, room_for, text
from dashboards.preview.units import written

Points = Sequence[tuple[float, float]]
EXEMPLARS = 60
"""Drawn at most; Grafana thins them as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A series as it is drawn: its points lie on a floor, which is that of those below where curves are stacked."""

    colour: str
    points: Points
    floor: Mapping[float, float]
    filled: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What the vertical axis shows: from, to, and the values that are written beside it."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def part(self, value: float) -> float:
        """Return how high a value lies, from 0 to 1, cut off at the edges."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def draw(
    panel: Mapping[str, Any],
    told: Told,
    marks: Sequence[Mark],
    frame: tuple[float, float],
    size: tuple[float, float],
) -> str:
    """Return a panel's curves; ``frame`` is the time shown, ``size`` the pixels there are."""
    defaults = panel["fieldConfig"]["defaults"]
    layers = list(_layers(panel, told.series))
    scale = _scale([value for layer in layers for _, value in layer.points], defaults)
    labels = [written(tick, defaults["unit"]) for tick in scale.ticks]
    place = Frame(width=size[0], height=size[1], left=room_for(labels), since=frame[0], until=frame[1])
    parts = [place.times()]
    for tick, label in zip(scale.ticks, labels, strict=True):
        y = place.y(scale.part(tick))
        parts += [
            line(place.left, y, place.width - place.right, y, FAINT),
            text(place.left - 6, y + 4, label, "end"),
        ]
    step = _step(told.series)
    for layer in layers:
        parts += [_run(layer, run, scale, place) for run in _unbroken(layer.points, step)]
    parts += _limits(defaults, scale, place)
    parts += _exemplars(told.exemplars, scale, place)
    for mark in marks:
        if place.since <= mark.at <= place.until:
            x, colour = place.x(mark.at), NAMED.get(mark.colour, mark.colour)
            parts.append(line(x, place.top, x, place.height - place.bottom, colour, "4 3"))
    return drawing(size[0], size[1], "".join(parts))


def _layers(panel: Mapping[str, Any], series: Sequence[Series]) -> Iterator[Layer]:
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    below: dict[float, float] = {}
    for one, colour in zip(series, coloured(panel, [one.name for one in series]), strict=True):
        floor = dict(below) if stacked else {}
        points = [(at, value + floor.get(at, 0.0)) for at, value in one.points if math.isfinite(value)]
        below.update(points)
        yield Layer(colour=colour, points=points, floor=floor, filled=custom.get("fillOpacity", 0) / 100)


def _scale(values: Sequence[float], defaults: Mapping[str, Any]) -> Scale:
    low = defaults.get("min", min(values, default=0.0))
    high = defaults.get("max", max(values, default=1.0))
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / 4
    step = _STEPS.get(defaults["unit"], _decimal)(rough)
    bottom = low if "min" in defaults else math.floor(low / step) * step
    top = high if "max" in defaults else math.ceil(high / step - 1e-9) * step
    first = math.ceil(bottom / step - 1e-9)
    ticks = [number * step for number in range(first, first + 12) if number * step <= top + step * 1e-6]
    return Scale(low=bottom, high=top, ticks=tuple(ticks))


def _decimal(rough: float) -> float:
    base = 10.0 ** math.floor(math.log10(rough))
    return next(base * factor for factor in (1, 2, 5, 10) if base * factor >= rough)


def _binary(rough: float) -> float:
    return 2.0 ** math.ceil(math.log2(rough))


def _timely(rough: float) -> float:
    """Return a step of whole minutes and hours; Grafana divides seconds by ten, and writes 16.7 min."""
    steps = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
    return _decimal(rough) if rough <= 10 else next((step for step in steps if step >= rough), 7200.0)


_STEPS: dict[str, Callable[[float], float]] = {"bytes": _binary, "s": _timely}


def _step(series: Sequence[Series]) -> float:
    gaps = [b[0] - a[0] for one in series for a, b in itertools.pairwise(one.points)]
    return min(gaps, default=1.0)


def _unbroken(points: Points, step: float) -> Iterator[Points]:
    """Yield the runs without a missing point: where nothing was measured nothing is drawn."""
    run: list[tuple[float, float]] = []
    for point in points:
        if run and point[0] - run[-1][0] > 1.5 * step:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def _run(layer: Layer, run: Points, scale: Scale, place: Frame) -> str:
    tops = [(place.x(at), place.y(scale.part(value))) for at, value in run]
    if len(run) == 1:
        return f'<circle cx="{tops[0][0]:.1f}" cy="{tops[0][1]:.1f}" r="2" fill="{layer.colour}"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in tops)
    floors = [(place.x(at), place.y(scale.part(layer.floor.get(at, 0.0)))) for at, _ in reversed(run)]
    area = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*tops, *floors])
    return (
        f'<polygon points="{area}" fill="{layer.colour}" fill-opacity="{layer.filled:g}"/>'
        f'<polyline points="{path}" fill="none" stroke="{layer.colour}" stroke-width="1.3"/>'
    )


def _limits(defaults: Mapping[str, Any], scale: Scale, place: Frame) -> Iterator[str]:
    """Yield the thresholds that lie within what is shown; the axis is not stretched for them."""
    if defaults.get("custom", {}).get("thresholdsStyle", {}).get("mode") != "dashed":
        return
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is not None and scale.low <= step["value"] <= scale.high:
            y = place.y(scale.part(step["value"]))
            yield line(place.left, y, place.width - place.right, y, NAMED[step["color"]], "6 4")


def _exemplars(found: Points, scale: Scale, place: Frame) -> Iterator[str]:
    shown = [one for one in sorted(found) if place.since <= one[0] <= place.until]
    for at, value in shown[:: max(1, len(shown) // EXEMPLARS)]:
        x, y = place.x(at), place.y(scale.part(value))
        yield f'<path d="M{x:.1f},{y - 3:.1f} l3,3 l-3,3 l-3,-3 z" fill="#fff" stroke="#2f6fb3" stroke-width="1"/>'
