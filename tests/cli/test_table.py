"""The table on a terminal, from recorded data."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

pytest.importorskip("rich")

from rich.console import Console

from cli.recorded import recorded
from stallwatch.cli.demo.record import Demonstration, End
from stallwatch.cli.demo.runner import Progress
from stallwatch.cli.demo.scenes import SCENES
from stallwatch.cli.demo.table import live_line, results
from stallwatch.cli.demo.wording import summary


def _shown(demo: Demonstration, width: int) -> str:
    console = Console(width=width, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(results(demo, width))
    return capture.get()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 240])
def test_every_width_shows_every_fact(width: int) -> None:
    text = _shown(recorded(), width)
    words = " ".join(text.split())
    assert all(len(line) <= width for line in text.splitlines())
    for fact in (
        "keepalive_only",
        "heartbeat_only",
        "dead_wire",
        "first_token",
        "ETIMEDOUT",
        "stalled",
        "completed",
    ):
        assert fact in words
    for fact in (
        "2.41 s",
        "1.65 s",
        "4.0 s",
        "retry in 0.44 s",
        "fallback to backup",
        "won the race",
        "t0 t1 t2 t3",
    ):
        assert fact in words


def test_at_160_columns_a_scene_is_one_line() -> None:
    lines = _shown(recorded(), 160).splitlines()
    (line,) = [line for line in lines if line.startswith("Keepalives on a dead stream")]
    for fact in (
        "still waiting after 4.0 s",
        "ETIMEDOUT after 1.47 s",
        "idle",
        "keepalive_only",
        "1.20 s",
        "yes",
    ):
        assert fact in line


def test_the_attempts_of_a_recovered_call_are_listed_below_the_table() -> None:
    lines = [line.rstrip() for line in _shown(recorded(), 160).splitlines()]
    begin = next(
        number for number, line in enumerate(lines) if line.startswith("Fallback to another route  ")
    )
    assert lines[begin].split("  ")[0] == "Fallback to another route"
    assert "attempt 1   stalled after 1.21 s: fallback to backup    1.21 s" in lines[begin]
    assert lines[begin + 1].strip() == "2: fallback completed in 0.67 s                         1.88 s"


def test_without_several_attempts_there_is_no_list_of_them() -> None:
    demo = recorded()
    assert "attempt" not in _shown(replace(demo, scenes=demo.healthy), 160).replace("attempts: from", "")


def test_a_difference_is_named_with_its_scene() -> None:
    demo = recorded()
    wrong = replace(demo.scenes[1], differences=("it was cut after a wait of 9.00 s, not 1.2 s",))
    text = _shown(replace(demo, scenes=(demo.scenes[0], wrong)), 160)
    assert "differs: Stall in mid-answer: it was cut after a wait of 9.00 s, not 1.2 s" in text
    assert " NO" in text


def test_without_a_span_the_numbers_are_the_programs_and_marked() -> None:
    demo = recorded()
    record = demo.scenes[1]
    record = replace(record, guarded=replace(record.guarded, span=None, spans=0))
    text = _shown(replace(demo, scenes=(record,)), 160)
    assert "0.02 s*" in text
    assert "9*" in text
    assert "No span came for Stall in mid-answer" in text


def test_a_bare_run_that_ends_by_itself_is_told_as_it_was() -> None:
    demo = recorded()
    record = replace(demo.scenes[0], bare=replace(demo.scenes[0].bare, end=End.CRASHED))
    assert "the program crashed" in _shown(replace(demo, scenes=(record,)), 160)


def test_the_summary_speaks_only_of_what_was_run() -> None:
    demo = recorded()
    dead, alive = replace(demo, scenes=demo.scenes[:1]), replace(demo, scenes=demo.scenes[-1:])
    assert summary(dead).endswith("with a timeout in 1 of 1, after 1.2 s.")
    assert summary(alive) == "Healthy streams: 1 of 1 guarded ones completed."
    assert "in 4 of 4, after 1.2 to 2.4 s. Calls worth a second attempt: the bare" in summary(demo)
    assert "3 of 3 guarded ones completed. Healthy streams: 3 of 3" in summary(demo)


def test_the_live_line_stays_away_from_files_and_pipes() -> None:
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture, live_line(console, Progress(), 7):
        pass
    assert capture.get() == ""


def test_the_live_line_fits_the_terminal_and_leaves_nothing_behind() -> None:
    console = Console(width=80, force_terminal=True, no_color=True)
    title = max((scene.title for scene in SCENES), key=len)
    progress = Progress(latest=f"{title}, guarded: still waiting after 10.0 s")
    with console.capture() as capture, live_line(console, progress, 10):
        pass
    text = re.sub(r"\x1b\[[\d;]*m", "", capture.get())
    assert "bare: 0 of 10 ended, 0 running   guarded: 0 of 10 ended, 0 running" in text
    assert progress.latest in text
    assert all(len(line) <= 80 for line in re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", text).splitlines())
    assert text.rstrip("\r\n").endswith("\x1b[2K")
