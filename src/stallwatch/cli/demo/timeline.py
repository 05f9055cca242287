"""One scene as a drawing: the bare run above the guarded one, on the same axis of seconds.

Each run has two strips. The upper one is the server's: a mark per piece it sent, and the moment it saw the connection
go. The lower one is the program's: a mark per chunk it got, the waits in between, its own pauses, and the end. Every
kind of mark has a shape of its own, so that nothing depends on colour. Colours are CSS classes of the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from stallwatch.cli.demo.record import End, RunRecord, SceneRecord
from stallwatch.cli.demo.scenes import LIMIT, Scene
from stallwatch.cli.demo.wording import ending

__all__ = ["Axis", "axis_for", "glyph", "timeline"]

WIDTH = 1080
_LEFT = 158
_RIGHT = 16
_LANE = 68
_TOP = 8
_BOTTOM = 50
_SERVER = 14
_BAR = 32
_BAR_HEIGHT = 26

_SHOWN_WAIT = 0.15
"""Seconds; shorter waits are the spaces between the marks."""

_ROOM_FOR_TEXT = 0.55

_HEARTBEATS = frozenset({"heartbeat", "role", "usage"})
_SHAPES = {"comment": "comment", "headers": "headers", **dict.fromkeys(_HEARTBEATS, "empty")}
_SENT_WORDS = {
    "headers": "200, response head",
    "role": "role, no text yet",
    "token": "token",
    "comment": "keepalive comment",
    "heartbeat": "chunk without content",
    "finish": "finish reason",
    "usage": "token usage",
    "done": "[DONE]",
    "end": "end of the body",
}


@dataclass(frozen=True, slots=True)
class Axis:
    """The axis all scenes share."""

    end: float

    def x(self, at: float) -> float:
        """Return where this moment is drawn."""
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * min(max(at, 0.0), self.end) / self.end, 1)


def axis_for(records: Sequence[SceneRecord]) -> Axis:
    """Return an axis long enough for every run, and half a second more for what would have gone on."""
    last = max((run.ended_at for record in records for run in (record.bare, record.guarded)), default=1.0)
    return Axis(math.ceil(last * 2 - 0.1) / 2 + 0.5)


def timeline(record: SceneRecord, axis: Axis) -> str:
    """Return the scene as an inline SVG."""
    height = _TOP + 2 * _LANE + _BOTTOM
    label = f"{record.scene.title}. Bare SDK: {ending(record.bare)}. Guarded: {ending(record.guarded)}."
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">']
    parts += _grid(axis, height)
    parts += _lane(record.bare, axis, _TOP)
    parts += _deadlines(record, axis, _TOP + _LANE)
    parts += _lane(record.guarded, axis, _TOP + _LANE)
    parts.append("</svg>")
    return "\n".join(parts)


def glyph(shape: str) -> str:
    """Return one mark by itself, for the legend."""
    if shape in ("chunk", "hollow-chunk", "wait", "pause", "cut", "whole", "deadline"):
        inner = {
            "chunk": _tick(12, 3, 14, hollow=False),
            "hollow-chunk": _tick(12, -2, 24, hollow=True),
            "wait": '<rect class="wait" x="1" y="3" width="22" height="14"/>',
            "pause": '<rect class="pause" x="1" y="3" width="22" height="14" fill="url(#hatch)"/>',
            "cut": _cross(12, 10),
            "whole": _check(12, 10),
            "deadline": '<line class="deadline" x1="12" y1="1" x2="12" y2="19"/>',
        }[shape]
    else:
        inner = _mark(shape, 12, 14 if shape == "headers" else 10)
    return f'<svg class="glyph" viewBox="0 0 24 20" aria-hidden="true">{inner}</svg>'


def _grid(axis: Axis, height: int) -> Iterator[str]:
    bottom = height - 22
    for half in range(int(axis.end * 2) + 1):
        at = half / 2
        x = axis.x(at)
        yield f'<line class="grid{"" if half % 2 else " whole-second"}" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>'
        if half % 2 == 0:
            yield f'<text class="tick" x="{x}" y="{height - 7}">{at:g} s</text>'


def _lane(run: RunRecord, axis: Axis, top: int) -> Iterator[str]:
    name = "guarded" if run.guarded else "bare SDK"
    server, bar = top + _SERVER, top + _BAR
    middle = bar + _BAR_HEIGHT / 2
    yield f'<text class="lane" x="8" y="{middle + 4}">{name}</text>'
    yield f'<text class="strip" x="{_LEFT - 8}" y="{server + 4}">server</text>'
    yield f'<text class="strip" x="{_LEFT - 8}" y="{middle + 4}">program</text>'
    yield f'<line class="base" x1="{_LEFT}" y1="{server}" x2="{axis.x(_connected_until(run))}" y2="{server}"/>'
    yield from _waits(run, axis, bar)
    yield from _pauses(run, axis, bar)
    for sent in run.sent:
        if sent.kind in ("done", "end"):
            continue
        shape = _SHAPES.get(sent.kind, "token")
        title = f"server sent at {sent.at:.3f} s: {_SENT_WORDS.get(sent.kind, sent.kind)}"
        yield _titled(_mark(shape, axis.x(sent.at), server), title)
    for number, got in enumerate(run.got, start=1):
        what = repr(got.text) if got.text else f"finish reason {got.finish}" if got.finish else "no content"
        title = f"program got chunk {number} at {got.at:.3f} s: {what}"
        yield _titled(_tick(axis.x(got.at), bar, _BAR_HEIGHT, hollow=not (got.text or got.finish)), title)
    yield from _words(run, axis, bar)
    yield from _end(run, axis, middle)
    yield from _close(run, axis, server)


def _connected_until(run: RunRecord) -> float:
    return run.ended_at if run.server_closed_at is None else run.server_closed_at


def _waits(run: RunRecord, axis: Axis, bar: int) -> Iterator[str]:
    for begin, end in run.waits():
        if end - begin < _SHOWN_WAIT:
            continue
        still = run.end is End.STILL_WAITING and end == run.ended_at
        x, to = axis.x(begin), axis.x(axis.end if still else end)
        kind = "wait on" if still else "wait"
        shape = f'<rect class="{kind}" x="{x}" y="{bar}" width="{round(to - x, 1)}" height="{_BAR_HEIGHT}"/>'
        yield _titled(shape, f"waiting for the server from {begin:.3f} s to {end:.3f} s: {end - begin:.3f} s")


def _words(run: RunRecord, axis: Axis, bar: int) -> Iterator[str]:
    """Yield what is written into the bar; drawn last, so that marks do not cover it."""
    for begin, end in run.waits():
        if end - begin >= _ROOM_FOR_TEXT:
            yield _inside("on-wait", f"waiting {end - begin:.2f} s", (axis.x(begin) + axis.x(end)) / 2, bar)
    for pause in run.pauses:
        middle = axis.x(pause.at + pause.seconds / 2)
        yield _inside("on-pause", f"not reading for {pause.seconds:g} s", middle, bar)


def _pauses(run: RunRecord, axis: Axis, bar: int) -> Iterator[str]:
    for pause in run.pauses:
        x, to = axis.x(pause.at), axis.x(pause.at + pause.seconds)
        shape = (
            f'<rect class="pause" x="{x}" y="{bar}" width="{round(to - x, 1)}" height="{_BAR_HEIGHT}" '
            'fill="url(#hatch)"/>'
        )
        yield _titled(shape, f"the program does not read for {pause.seconds:g} s, from {pause.at:.3f} s")


def _end(run: RunRecord, axis: Axis, middle: float) -> Iterator[str]:
    x = axis.x(run.ended_at)
    match run.end:
        case End.COMPLETED:
            yield _titled(_check(x + 9, middle), f"completed at {run.ended_at:.3f} s")
            yield f'<text class="end ok" x="{x + 22}" y="{middle + 4}">completed, {run.ended_at:.2f} s</text>'
        case End.STILL_WAITING:
            yield f'<text class="end on" x="{axis.x(axis.end) - 6}" y="{middle + 4}" text-anchor="end">…and on</text>'
        case _:
            what = ending(run)
            title = what if run.failure is None else f"{what}: {run.failure.message}"
            yield _titled(_cross(x, middle), title)
            yield f'<text class="end cut" x="{x + 14}" y="{middle + 4}">{escape(what)}</text>'


def _close(run: RunRecord, axis: Axis, server: int) -> Iterator[str]:
    at = run.server_closed_at
    if at is None:
        return
    x = axis.x(at)
    if run.end is End.STILL_WAITING:
        title = f"the server saw the close at {at:.3f} s, only because the demo ended the program"
    else:
        title = f"the server saw the close at {at:.3f} s ({run.server_closed_how})"
    yield _titled(_mark("close", x, server), title)
    if run.end is End.TIMEOUT:
        yield f'<text class="end seen" x="{x + 14}" y="{server + 4}">server saw the close, {at:.2f} s</text>'


def _deadlines(record: SceneRecord, axis: Axis, top: int) -> Iterator[str]:
    for at, text in _limits(record.scene, record.guarded):
        x, bottom = axis.x(at), top + _LANE
        yield f'<line class="deadline" x1="{x}" y1="{top + 2}" x2="{x}" y2="{bottom + 10}"/>'
        yield f'<text class="limit" x="{x + 5}" y="{bottom + 9}">{escape(text)}</text>'


def _limits(scene: Scene, run: RunRecord) -> Iterator[tuple[float, str]]:
    if scene.must_be_cut:
        began = 0.0 if run.span is None else run.span.began
        last = run.last_progress()
        doubled = f" ({scene.limit:g} s, doubled by signs of life)" if scene.allowed != scene.limit else ""
        since = "since the last token" if last else "since the call began"
        yield max(last, began) + scene.allowed, f"deadline: {scene.allowed:g} s {since}{doubled}"
    elif scene.limit != LIMIT:
        yield LIMIT, f"{LIMIT:g} s: other models' limit"
        yield scene.limit, f"{scene.limit:g} s: its limit"


def _mark(shape: str, x: float, y: float) -> str:
    match shape:
        case "comment":
            return f'<circle class="comment" cx="{x}" cy="{y}" r="4"/>'
        case "empty":
            return f'<path class="empty" d="M{x} {y - 5.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>'
        case "headers":
            return f'<path class="headers" d="M{x} {y + 4}v-16h8l-2.5 3l2.5 3h-8"/>'
        case "close":
            return f'<path class="close" d="M{x - 6} {y - 6}h12l-6 11z"/>'
        case _:
            return f'<circle class="token" cx="{x}" cy="{y}" r="3.6"/>'


def _tick(x: float, top: float, height: float, *, hollow: bool) -> str:
    if hollow:
        return f'<rect class="hollow" x="{x - 2}" y="{top + 6}" width="4" height="{height - 12}"/>'
    return f'<rect class="chunk" x="{x - 1.25}" y="{top}" width="2.5" height="{height}"/>'


def _cross(x: float, y: float) -> str:
    return f'<path class="cross" d="M{x - 7} {y - 7}l14 14M{x - 7} {y + 7}l14 -14"/>'


def _check(x: float, y: float) -> str:
    return f'<path class="check" d="M{x - 6} {y}l4.5 5.5l8 -11"/>'


def _inside(ground: str, text: str, x: float, bar: int) -> str:
    return f'<text class="inside {ground}" x="{round(x, 1)}" y="{bar + _BAR_HEIGHT / 2 + 4}">{escape(text)}</text>'


def _titled(shape: str, title: str) -> str:
    return f"<g>{shape}<title>{escape(title)}</title></g>"
