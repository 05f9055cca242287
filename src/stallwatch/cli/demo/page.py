"""The demo as one HTML page that needs nothing else: styles and drawings are inside, and there are no scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from importlib import resources
from string import Template

from stallwatch.catalogue import Attr
from stallwatch.cli.demo.attempts import attempts_of
from stallwatch.cli.demo.marks import glyph
from stallwatch.cli.demo.record import Demonstration, End, EventRecord, RunRecord, SceneRecord
from stallwatch.cli.demo.scenes import POLICY_FILE
from stallwatch.cli.demo.timeline import Axis, axis_for, timeline
from stallwatch.cli.demo.wording import (
    NOTHING,
    attribute,
    close_seen,
    closed,
    completed,
    ending,
    phase,
    seconds,
    source_note,
    still_waiting,
    verdict,
    wire,
)

__all__ = ["page"]

_LEAD = (
    "A plain OpenAI program streamed answers from a gateway that misbehaves on purpose: once bare, once under "
    "opentelemetry-instrument with stallwatch's limits at one hundredth of the built-in ones (1.2 s for 120 s). "
    "Two programs have a second route under the guard. "
    "Hover over any mark for its time and content."
)

_LEGEND = (
    ("headers", "server sent the 200"),
    ("token", "token"),
    ("asked", "server got an attempt's request"),
    ("empty", "chunk without content"),
    ("comment", "keepalive comment"),
    ("close", "server saw the connection close"),
    ("chunk", "program got text"),
    ("hollow-chunk", "program got an empty chunk"),
    ("wait", "program waits for the server"),
    ("pause", "program is not reading"),
    ("deadline", "deadline"),
    ("cut", "aborted with ETIMEDOUT"),
    ("whole", "completed"),
)

_COLUMNS = (
    "scenario",
    "bare SDK",
    "guarded",
    "phase",
    "wire",
    "first token",
    "longest gap",
    "chunks",
    "attempts",
    "outcome",
    "server saw close",
    "as it should",
)
_CONSTANT = frozenset({Attr.OPERATION, Attr.PROVIDER})
_NUMBERS = frozenset({"first token", "longest gap", "chunks", "attempts", "server saw close"})
_WORDS = frozenset({"phase", "wire", "outcome", "value"})


def page(demo: Demonstration) -> str:
    """Return the page."""
    axis = axis_for(demo.scenes)
    template = Template(
        resources.files("stallwatch.cli.demo").joinpath("page.html").read_text(encoding="utf-8")
    )
    return template.substitute(
        lead=escape(_LEAD),
        tiles="\n".join(_tiles(demo)),
        legend="\n".join(f"<li>{glyph(shape)}{escape(text)}</li>" for shape, text in _LEGEND),
        scenes="\n".join(_scene(record, axis) for record in demo.scenes),
        table="\n".join(_table(demo.scenes)),
        source=escape(source_note(demo)),
        metrics="\n".join(_metrics(demo)),
        setting=escape(_setting(demo)),
        versions=escape("; ".join([_versions(demo), *demo.notes])),
    )


def _tiles(demo: Demonstration) -> Iterator[str]:
    dead, recovered, alive = demo.dead, demo.recovered, demo.healthy
    hung = dead + recovered
    cut = sum(record.guarded.end is End.TIMEOUT for record in dead)
    if hung:
        yield _tile(
            f"{still_waiting(hung)} of {len(hung)}",
            "failing calls in which the bare SDK was still waiting when the demo ended it",
        )
    if dead:
        yield _tile(
            f"{cut} of {len(dead)}",
            "dead streams the guard ended, each with a typed timeout and its reason on the span",
        )
    if recovered:
        yield _tile(
            f"{completed(recovered)} of {len(recovered)}",
            "failing calls saved by a further attempt: a retry, a fallback, a hedge",
        )
    if alive:
        yield _tile(
            f"{completed(alive)} of {len(alive)}",
            "healthy streams the guard left alone, however slow they looked",
        )


def _tile(figure: str, text: str) -> str:
    return f'<div class="tile"><b>{escape(figure)}</b><span>{escape(text)}</span></div>'


def _scene(record: SceneRecord, axis: Axis) -> str:
    scene = record.scene
    bad = " bad" if record.differences else ""
    parts = [
        f'<article id="{escape(scene.name)}">',
        f'<header><h3>{escape(scene.title)}</h3><span class="tag">{escape(scene.api)} client</span>',
        f'<span class="verdict{bad}">{escape(verdict(record))}</span></header>',
        f'<p class="what">{escape(scene.server)}</p>',
        f'<div class="drawing">{timeline(record, axis)}</div>',
        '<dl class="ends">',
        f"<div><dt>Bare: {escape(ending(record.bare))}</dt><dd>{escape(scene.bare)}</dd></div>",
        f"<div><dt>Guarded: {escape(ending(record.guarded))}</dt><dd>{escape(scene.expected)}</dd></div>",
        "</dl>",
    ]
    parts += [f'<p class="wrong">Differs: {escape(text)}</p>' for text in record.differences]
    failure = record.guarded.failure
    if failure is not None:
        parts.append(f"<pre>{escape(failure.type)}: {escape(failure.message)}</pre>")
    parts += [_attempts(record.guarded), _facts(record.guarded), _details(record), "</article>"]
    return "\n".join(parts)


def _attempts(run: RunRecord) -> str:
    """Return what became of each attempt; nothing if there was one only."""
    attempts = attempts_of(run)
    if len(attempts) < 2:
        return ""
    items: list[str] = []
    for attempt in attempts:
        close = "" if attempt.exchange is None else f"; server saw the close: {closed(attempt.exchange)}"
        items.append(f"<li><b>{escape(attempt.name)}</b> {escape(attempt.fate() + close)}</li>")
    items.append(f"<li><b>text read</b> {escape(run.text.strip() or NOTHING)}</li>")
    return f'<ul class="attempts">{"".join(items)}</ul>'


def _facts(run: RunRecord) -> str:
    facts = {
        "outcome": attribute(run, Attr.OUTCOME),
        "attempts": attribute(run, Attr.ATTEMPTS) if len(run.exchanges) > 1 else NOTHING,
        "phase": phase(run),
        "wire": wire(run),
        "first token": seconds(run.first_token()),
        "longest gap": seconds(run.longest_gap()),
        "chunks": str(run.chunks()),
        "heartbeats": attribute(run, Attr.HEARTBEATS),
        "server saw close": close_seen(run),
    }
    items = (
        f"<li><span>{escape(name)}</span> <b>{escape(value)}</b></li>"
        for name, value in facts.items()
        if value != NOTHING
    )
    return f'<ul class="facts">{"".join(items)}</ul>'


def _details(record: SceneRecord) -> str:
    span = record.guarded.span
    scene = record.scene
    rows = [("program", " ".join(["python", scene.program(guarded=True), *scene.arguments(guarded=True)]))]
    if span is None:
        rows.append(("span", "none arrived"))
    else:
        rows += [("span", span.name), ("status", span.status), ("duration", seconds(span.duration))]
        rows += [(name, str(value)) for name, value in sorted(span.attributes.items())]
        rows += [(f"event at {seconds(event.at)}", _event(event)) for event in span.events]
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(text)}</td></tr>" for name, text in rows
    )
    return f"<details><summary>The guarded call's span</summary><table>{cells}</table></details>"


def _event(event: EventRecord) -> str:
    told = ", ".join(
        f"{name.removeprefix('stallwatch.')}={value:.3g}"
        if isinstance(value, float)
        else f"{name.removeprefix('stallwatch.')}={value}"
        for name, value in event.attributes.items()
    )
    return f"{event.name}: {told}" if told else event.name


def _table(records: Iterable[SceneRecord]) -> Iterator[str]:
    yield f"<thead><tr>{''.join(_cell('th', name, name) for name in _COLUMNS)}</tr></thead><tbody>"
    for record in records:
        run = record.guarded
        values = (
            record.scene.title,
            ending(record.bare),
            ending(run),
            phase(run),
            wire(run),
            seconds(run.first_token()),
            seconds(run.longest_gap()),
            str(run.chunks()),
            attribute(run, Attr.ATTEMPTS),
            attribute(run, Attr.OUTCOME),
            close_seen(run),
            "NO" if record.differences else "yes",
        )
        cells = [
            _cell("td" if number else "th", *pair)
            for number, pair in enumerate(zip(_COLUMNS, values, strict=True))
        ]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody>"


def _metrics(demo: Demonstration) -> Iterator[str]:
    columns = ("metric", "attributes", "value")
    yield f"<thead><tr>{''.join(_cell('th', name, name) for name in columns)}</tr></thead><tbody>"
    for series in demo.metrics:
        if not (series.value or series.count):
            continue
        attributes = ", ".join(
            f"{name}={value}" for name, value in series.attributes.items() if name not in _CONSTANT
        )
        unit = "" if series.unit.startswith("{") else f" {series.unit}"
        value = f"{series.value:.4g}{unit}"
        if series.count is not None:
            value = f"{series.count} samples, mean {series.value / max(series.count, 1):.3g}{unit}"
        yield f"<tr>{_cell('th', '', series.name)}{_cell('td', '', attributes)}{_cell('td', 'value', value)}</tr>"
    if not demo.metrics:
        yield "<tr><td>No metrics arrived.</td></tr>"
    yield "</tbody>"


def _cell(tag: str, column: str, text: str) -> str:
    kind = ' class="n"' if column in _NUMBERS else ' class="word"' if column in _WORDS else ""
    return f"<{tag}{kind}>{escape(text)}</{tag}>"


def _setting(demo: Demonstration) -> str:
    lines = [f"{name}={value}" for name, value in demo.settings.items()]
    return "\n".join([*lines, "", "# policy.toml", *POLICY_FILE.splitlines()])


def _versions(demo: Demonstration) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in demo.versions.items())
    return f"{versions}; the whole demo took {demo.seconds:.1f} s"
