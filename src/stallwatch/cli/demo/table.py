"""The demo on a terminal: two live lines while it runs, tables when it is done. The only part that needs rich."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from stallwatch.catalogue import Attr
from stallwatch.cli.demo.attempts import AttemptRecord, attempts_of
from stallwatch.cli.demo.record import Demonstration, End, RunRecord, SceneRecord
from stallwatch.cli.demo.runner import Progress
from stallwatch.cli.demo.wording import (
    NOTHING,
    attribute,
    close_seen,
    closed,
    ending,
    phase,
    seconds,
    source_note,
    summary,
    verdict,
    wire,
)

__all__ = ["live_line", "results", "table"]

_ONE_LINE = 148
_STACKED = 96


@contextmanager
def live_line(console: Console, progress: Progress, total: int) -> Generator[None]:
    """Show how far the runs are, and the latest of them; nothing if the output is not a terminal."""
    if not console.is_terminal:
        yield
        return
    spinner = Spinner("dots", style="cyan")

    def lines() -> RenderableType:
        spinner.update(text=_progress_text(progress, total))
        # A line of its own, because the scene's name and how it ended fill one.
        return Group(spinner, Padding(Text(progress.latest, style="dim"), (0, 0, 0, 2)))

    with Live(get_renderable=lines, console=console, transient=True, refresh_per_second=8):
        yield


def _progress_text(progress: Progress, total: int) -> Text:
    text = Text(f"{time.monotonic() - progress.began:4.1f} s  ")
    for guarded, name in ((False, "bare"), (True, "guarded")):
        running, ended = progress.count(guarded)
        text.append(f"{name}: ", style="bold").append(f"{ended} of {total} ended, {running} running   ")
    return text


def results(demo: Demonstration, width: int) -> RenderableType:
    """Return everything that is said when the demo is done, but for the page's name."""
    parts: list[RenderableType] = [
        "",
        table(demo, width),
        *_attempts(demo, width),
        Padding(Text(source_note(demo), style="dim"), (0, 1)),
    ]
    parts.append(Padding(Text(summary(demo), style="bold"), (1, 1)))
    for record in demo.scenes:
        for difference in record.differences:
            text = Text("differs: ", style="bold red").append(
                f"{record.scene.title}: {difference}", style="default"
            )
            parts.append(Padding(text, (0, 1)))
    parts += [Padding(Text(note), (0, 1)) for note in demo.notes]
    return Group(*parts)


def table(demo: Demonstration, width: int) -> RenderableType:
    """Return the table in the form that fits ``width`` columns."""
    if width < _STACKED:
        return Group(*(_card(record) for record in demo.scenes))
    wide = width >= _ONE_LINE
    grid = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for title in ("scenario", "bare SDK", "guarded"):
        grid.add_column(title, overflow="fold", no_wrap=wide and title != "scenario")
    stall, times, end = ("phase", "wire"), ("first\ntoken", "longest\ngap"), ("chunks", "outcome")
    for title in (
        (*stall, *times, *end) if wide else ("phase,\nwire", "1st token,\nlongest gap", "outcome,\nchunks")
    ):
        grid.add_column(title, no_wrap=True, justify="right" if title in (*times, "chunks") else "left")
    grid.add_column("server\nsaw close", justify="right", no_wrap=True)
    grid.add_column("as it\nshould", justify="right", no_wrap=True)
    for record in demo.scenes:
        grid.add_row(*_cells(record, wide))
        if not wide:
            grid.add_row()
    return Padding(grid, (0, 0, 1, 0))


def _attempts(demo: Demonstration, width: int) -> Iterator[RenderableType]:
    """Yield what became of each attempt, where there was more than one; cards tell it themselves."""
    records = [record for record in demo.scenes if _several(record.guarded)]
    if not records or width < _STACKED:
        return
    grid = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    grid.add_column("scenario of several attempts", no_wrap=True)
    grid.add_column("attempt", no_wrap=True)
    grid.add_column("what became of it, and what was decided")
    grid.add_column("server\nsaw close", justify="right", no_wrap=True)
    for record in records:
        title = Text(record.scene.title, style="bold")
        for attempt in _several(record.guarded):
            grid.add_row(title, attempt.name, attempt.fate(), _closing(attempt))
            title = Text()
        grid.add_row(title, "text read", Text(record.guarded.text.strip(), style="dim"))
    yield Padding(grid, (0, 0, 1, 0))


def _several(run: RunRecord) -> tuple[AttemptRecord, ...]:
    attempts = attempts_of(run)
    return attempts if len(attempts) > 1 else ()


def _closing(attempt: AttemptRecord) -> str:
    return NOTHING if attempt.exchange is None else closed(attempt.exchange)


def _cells(record: SceneRecord, wide: bool) -> list[RenderableType]:
    run = record.guarded
    mark = "" if run.span is not None else "*"
    stall = [phase(run), wire(run)]
    times = [seconds(run.first_token()) + mark, seconds(run.longest_gap()) + mark]
    outcome, chunks = attribute(run, Attr.OUTCOME), f"{run.chunks()}{mark}"
    facts = (
        [*stall, *times, chunks, outcome]
        if wide
        else ["\n".join(stall), "\n".join(times), f"{outcome}\n{chunks}"]
    )
    return [
        Text(record.scene.title, style="bold").append(f" ({record.scene.api})", style="not bold dim"),
        _ending_text(record.bare, wide),
        _ending_text(run, wide),
        *facts,
        close_seen(run),
        Text("NO", style="bold red") if record.differences else Text("yes", style="green"),
    ]


def _ending_text(run: RunRecord, wide: bool) -> Text:
    style = {End.STILL_WAITING: "yellow", End.COMPLETED: "default", End.TIMEOUT: "cyan"}.get(run.end, "red")
    text = ending(run)
    if not wide:
        for word in (" after ", " in "):
            text = text.replace(word, f"\n{word.strip()} ")
    return Text(text, style=style)


def _verdict_text(record: SceneRecord) -> Text:
    return Text(verdict(record), style="bold red" if record.differences else "green")


def _card(record: SceneRecord) -> RenderableType:
    run = record.guarded
    title = Text(record.scene.title, style="bold").append(f" ({record.scene.api}): ", style="dim")
    facts = [
        ("bare SDK", _ending_text(record.bare, wide=True)),
        ("guarded", _ending_text(run, wide=True)),
        ("phase, wire", Text(f"{phase(run)}, {wire(run)}")),
        ("first token", Text(f"{seconds(run.first_token())}, longest gap {seconds(run.longest_gap())}")),
        ("chunks", Text(f"{run.chunks()}, outcome {attribute(run, Attr.OUTCOME)}")),
        ("server", Text(f"saw the close at {close_seen(run)}")),
    ]
    facts += [
        (attempt.name, Text(f"{attempt.fate()}; server saw the close at {_closing(attempt)}"))
        for attempt in _several(run)
    ]
    if _several(run):
        facts.append(("text read", Text(run.text.strip(), style="dim")))
    grid = Table.grid(padding=(0, 1))
    for name, text in facts:
        grid.add_row(Text(f"  {name}", style="dim"), text)
    return Group(title.append_text(_verdict_text(record)), grid, "")
