"""One scene as a drawing: the bare run above the guarded one, on the same axis of seconds.

Each run has a strip for each of its requests and a bar. A strip is the server's: a mark per piece it sent, and the
moment it saw the connection go. The bar is the program's: a mark per chunk it got, the waits in between, its own
pauses, and the end. A call with several attempts has a strip for each, with what became of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from stallwatch.cli.demo.attempts import AttemptRecord, attempts_of
from stallwatch.cli.demo.marks import BAR_HEIGHT, check, cross, inside, mark, tick, titled
from stallwatch.cli.demo.record import End, Exchange, RunRecord, SceneRecord
from stallwatch.cli.demo.scenes import LIMIT, Scene
from stallwatch.cli.demo.wording import ending
from stallwatch.core.words import RaceResult

__all__ = ["Axis", "axis_for", "timeline"]

WIDTH = 1080
_LEFT = 158
_RIGHT = 16
_TOP = 8
_BOTTOM = 50
_STRIP = 14
"""From the top of a lane to its first strip."""
_NEXT_STRIP = 24
_BAR = 18
"""From the last strip to the bar."""

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


@dataclass(frozen=True, slots=True)
class _Lane:
    """Where a run is drawn; downwards from ``top``."""

    run: RunRecord
    top: int

    @property
    def strips(self) -> tuple[int, ...]:
        count = max(len(self.run.exchanges), 1)
        return tuple(self.top + _STRIP + _NEXT_STRIP * number for number in range(count))

    @property
    def bar(self) -> int:
        return self.strips[-1] + _BAR

    @property
    def bottom(self) -> int:
        return self.bar + BAR_HEIGHT + 10


def axis_for(records: Sequence[SceneRecord]) -> Axis:
    """Return an axis long enough for every run, and half a second more for what would have gone on."""
    last = max((run.ended_at for record in records for run in (record.bare, record.guarded)), default=1.0)
    return Axis(math.ceil(last * 2 - 0.1) / 2 + 0.5)


def timeline(record: SceneRecord, axis: Axis) -> str:
    """Return the scene as an inline SVG."""
    bare = _Lane(record.bare, _TOP)
    guarded = _Lane(record.guarded, bare.bottom)
    height = guarded.bottom + _BOTTOM
    label = f"{record.scene.title}. Bare SDK: {ending(record.bare)}. Guarded: {ending(record.guarded)}."
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">']
    parts += _grid(axis, height)
    parts += _run(bare, axis)
    parts += _deadlines(record.scene, guarded, axis)
    parts += _run(guarded, axis)
    parts.append("</svg>")
    return "\n".join(parts)


def _grid(axis: Axis, height: int) -> Iterator[str]:
    bottom = height - 22
    for half in range(int(axis.end * 2) + 1):
        at = half / 2
        x = axis.x(at)
        yield f'<line class="grid{"" if half % 2 else " whole-second"}" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>'
        if half % 2 == 0:
            yield f'<text class="tick" x="{x}" y="{height - 7}">{at:g} s</text>'


def _run(lane: _Lane, axis: Axis) -> Iterator[str]:
    run, bar = lane.run, lane.bar
    middle = bar + BAR_HEIGHT / 2
    yield f'<text class="lane" x="8" y="{middle + 4}">{"guarded" if run.guarded else "bare SDK"}</text>'
    yield f'<text class="strip" x="{_LEFT - 8}" y="{middle + 4}">program</text>'
    yield from _strips(lane, axis)
    yield from _waits(run, axis, bar)
    yield from _pauses(run, axis, bar)
    for number, got in enumerate(run.got, start=1):
        what = repr(got.text) if got.text else f"finish reason {got.finish}" if got.finish else "no content"
        title = f"program got chunk {number} at {got.at:.3f} s: {what}"
        yield titled(tick(axis.x(got.at), bar, BAR_HEIGHT, hollow=not (got.text or got.finish)), title)
    yield from _words(run, axis, bar)
    yield from _end(run, axis, middle)


def _strips(lane: _Lane, axis: Axis) -> Iterator[str]:
    run = lane.run
    exchanges = run.exchanges or (Exchange(at=0.0, model=""),)
    attempts = {attempt.number: attempt for attempt in attempts_of(run)}
    for number, (exchange, y) in enumerate(zip(exchanges, lane.strips, strict=True), start=1):
        attempt = attempts.get(number)
        name, begin = "server", 0.0
        if len(exchanges) > 1:
            name, begin = f"attempt {number}" if attempt is None else attempt.name, exchange.at
        until = run.ended_at if exchange.closed_at is None else exchange.closed_at
        yield f'<text class="strip" x="{_LEFT - 8}" y="{y + 4}">{escape(name)}</text>'
        yield f'<line class="base" x1="{axis.x(begin)}" y1="{y}" x2="{axis.x(until)}" y2="{y}"/>'
        if len(exchanges) > 1:
            asked = f"server got the request of attempt {number} at {begin:.3f} s: {exchange.model}"
            yield titled(mark("asked", axis.x(begin), y), asked)
        for sent in exchange.sent:
            if sent.kind in ("done", "end"):
                continue
            shape = _SHAPES.get(sent.kind, "token")
            title = f"server sent at {sent.at:.3f} s: {_SENT_WORDS.get(sent.kind, sent.kind)}"
            yield titled(mark(shape, axis.x(sent.at), y), title)
        yield from _close(run, exchange, axis, y)
        if len(exchanges) > 1 and attempt is not None:
            yield from _fate(attempt, attempt is attempts[max(attempts)], axis.x(until), y)


def _waits(run: RunRecord, axis: Axis, bar: int) -> Iterator[str]:
    for begin, end in run.waits():
        if end - begin < _SHOWN_WAIT:
            continue
        still = run.end is End.STILL_WAITING and end == run.ended_at
        x, to = axis.x(begin), axis.x(axis.end if still else end)
        kind = "wait on" if still else "wait"
        shape = f'<rect class="{kind}" x="{x}" y="{bar}" width="{round(to - x, 1)}" height="{BAR_HEIGHT}"/>'
        yield titled(shape, f"waiting for the server from {begin:.3f} s to {end:.3f} s: {end - begin:.3f} s")


def _words(run: RunRecord, axis: Axis, bar: int) -> Iterator[str]:
    """Yield what is written into the bar; drawn last, so that marks do not cover it."""
    for begin, end in run.waits():
        if end - begin >= _ROOM_FOR_TEXT:
            yield inside("on-wait", f"waiting {end - begin:.2f} s", (axis.x(begin) + axis.x(end)) / 2, bar)
    for pause in run.pauses:
        middle = axis.x(pause.at + pause.seconds / 2)
        yield inside("on-pause", f"not reading for {pause.seconds:g} s", middle, bar)


def _pauses(run: RunRecord, axis: Axis, bar: int) -> Iterator[str]:
    for pause in run.pauses:
        x, to = axis.x(pause.at), axis.x(pause.at + pause.seconds)
        shape = (
            f'<rect class="pause" x="{x}" y="{bar}" width="{round(to - x, 1)}" height="{BAR_HEIGHT}" '
            'fill="url(#hatch)"/>'
        )
        yield titled(shape, f"the program does not read for {pause.seconds:g} s, from {pause.at:.3f} s")


def _end(run: RunRecord, axis: Axis, middle: float) -> Iterator[str]:
    x = axis.x(run.ended_at)
    match run.end:
        case End.COMPLETED:
            yield titled(check(x + 9, middle), f"completed at {run.ended_at:.3f} s")
            yield f'<text class="end ok" x="{x + 22}" y="{middle + 4}">completed, {run.ended_at:.2f} s</text>'
        case End.STILL_WAITING:
            yield f'<text class="end on" x="{axis.x(axis.end) - 6}" y="{middle + 4}" text-anchor="end">…and on</text>'
        case _:
            what = ending(run)
            title = what if run.failure is None else f"{what}: {run.failure.message}"
            yield titled(cross(x, middle), title)
            yield f'<text class="end cut" x="{x + 14}" y="{middle + 4}">{escape(what)}</text>'


def _close(run: RunRecord, exchange: Exchange, axis: Axis, y: int) -> Iterator[str]:
    at = exchange.closed_at
    if at is None:
        return
    if run.end is End.STILL_WAITING:
        title = f"the server saw the close at {at:.3f} s, only because the demo ended the program"
    else:
        title = f"the server saw the close at {at:.3f} s ({exchange.closed_how})"
    x = axis.x(at)
    yield titled(mark("close", x, y), title)
    if run.end is End.TIMEOUT and len(run.exchanges) == 1:
        yield f'<text class="end seen" x="{x + 14}" y="{y + 4}">server saw the close, {at:.2f} s</text>'


def _fate(attempt: AttemptRecord, is_last: bool, x: float, y: int) -> Iterator[str]:
    """Yield what became of an attempt; of the last only that it won, because the bar tells the rest."""
    if is_last:
        if attempt.race == RaceResult.WINNER:
            yield f'<text class="end ok" x="{x + 14}" y="{y + 4}">won the race</text>'
        return
    closed = None if attempt.exchange is None else attempt.exchange.closed_at
    seen = "" if closed is None else f'<tspan class="seen"> · server saw the close, {closed:.2f} s</tspan>'
    yield f'<text class="end cut" x="{x + 14}" y="{y + 4}">{escape(attempt.fate())}{seen}</text>'


def _deadlines(scene: Scene, lane: _Lane, axis: Axis) -> Iterator[str]:
    for at, text in _limits(scene, lane.run):
        x, bottom = axis.x(at), lane.bottom
        yield f'<line class="deadline" x1="{x}" y1="{lane.top + 2}" x2="{x}" y2="{bottom + 10}"/>'
        yield f'<text class="limit" x="{x + 5}" y="{bottom + 9}">{escape(text)}</text>'


def _limits(scene: Scene, run: RunRecord) -> Iterator[tuple[float, str]]:
    began = 0.0 if run.span is None else run.span.began
    if scene.must_be_cut:
        last = run.last_progress()
        doubled = f" ({scene.limit:g} s, doubled by signs of life)" if scene.allowed != scene.limit else ""
        since = "since the last token" if last else "since the call began"
        yield max(last, began) + scene.allowed, f"deadline: {scene.allowed:g} s {since}{doubled}"
    elif scene.hedge is not None:
        yield began + scene.hedge, f"hedge: due after {scene.hedge:g} s without a token"
    elif scene.must_recover:
        yield began + scene.allowed, f"deadline: {scene.allowed:g} s since the attempt began"
    elif scene.limit != LIMIT:
        yield LIMIT, f"{LIMIT:g} s: other models' limit"
        yield scene.limit, f"{scene.limit:g} s: its limit"
