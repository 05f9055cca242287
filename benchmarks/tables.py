"""Tables and charts of the figures that were kept: what ``docs/performance.md`` shows, and what a run prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import charts, targets
from benchmarks.variants import OURS, PEERS, VARIANTS

FIGURES = Path(__file__).parent / "results" / "figures.json"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS = (
    ("chunk, sync", "sync", "chunk", 1),
    ("chunk, async", "async", "chunk", 1),
    ("chunk, async that waits", "waiting", "chunk", 1),
    ("stream", "sync", "stream", 0),
    ("plain call", "sync", "call", 0),
    ("plain call, async", "async", "call", 0),
    ("later, sync", "sync latency", "latency", 1),
    ("later, async", "async latency", "latency", 1),
    ("bytes an open stream", "memory", "held", 0),
)
CROWDS = (
    ("one alone, async", "lone async"),
    ("one alone, sync", "lone sync"),
    ("200 threads", "200 threads"),
    ("1,000 together", "1000 expire"),
    ("2,000 together", "2000 expire"),
    ("5,000 together", "5000 expire"),
)
GROWTH = (
    ("by chunks", "chunks of a stream", "µs a chunk"),
    ("by open streams", "streams read at the same time", "µs a chunk"),
    ("by attempts", "attempts of a call", "µs an attempt"),
    ("by models", "models in turn", "µs a call"),
)


NONE_KEPT = "No figures are kept yet: `make bench ARGS=--write`, then `make generate`.\n"


def kept() -> dict[str, Any] | None:
    """Return the figures in the repository; None before the first are written."""
    if not FIGURES.exists():
        return None
    figures: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return figures


def costs(found: dict[str, Any]) -> str:
    """Return what each variant adds to the bare SDK, medians."""
    names = [name for name in ("bare again", *OURS, *PEERS) if name in found["figures"]["sync"]["chunk"]]
    rows = [["**bare SDK**", *(_bold(_is(found, column, "bare")) for column in COLUMNS)]]
    rows += [[VARIANTS[name].what, *(_adds(found, column, name) for column in COLUMNS)] for name in names]
    return _table(["", *(column[0] for column in COLUMNS)], rows)


def shares(found: dict[str, Any]) -> str:
    """Return what a chunk costs in percent of the bare SDK's own, with the middle half of the rounds."""
    rows = []
    for name in ("bare again", *OURS, *PEERS):
        if name not in found["figures"]["sync"]["chunk"]:
            continue
        row = [VARIANTS[name].what]
        for task in ("sync", "async", "waiting"):
            cells = found["figures"][task]["chunk"]
            bare = cells[VARIANTS[name].against]["is"][0]
            median, low, high, _ = (100 * value / bare for value in cells[name]["adds"])
            row.append(f"{median:+.0f} % ({low:+.0f} .. {high:+.0f})")
        rows.append(row)
    return _table(["a chunk costs more", "sync", "async", "async that waits"], rows)


def parts(found: dict[str, Any]) -> str:
    """Return what the parts of our cost are, as differences between settings."""
    rows = []
    for what, task, figure in (
        ("a chunk, sync", "sync", "chunk"),
        ("a chunk, async", "async", "chunk"),
        ("a stream", "sync", "stream"),
        ("a plain call", "sync", "call"),
        ("bytes of an open stream", "memory", "held"),
    ):
        adds = {name: found["figures"][task][figure][name]["adds"][0] for name in OURS}
        differences = (
            adds["no sdk"],
            adds["not sampled"] - adds["no sdk"] - max(0.0, adds["all"] - adds["summary"]),
            adds["all"] - adds["not sampled"],
            adds["all"] - adds["summary"],
            adds["all"],
        )
        rows.append(
            [what, *(f"{value:.1f}" if figure == "chunk" else f"{value:.0f}" for value in differences)]
        )
    head = ["", "guard and state (no OpenTelemetry SDK)", "metrics", "span", "recorded gaps", "all"]
    return _table(head, rows)


def promises(found: dict[str, Any]) -> str:
    """Return each target beside what was measured."""
    return _table(
        ["what", "target", "measured", "", "target, of the SDK's own", "measured"], targets.rows(found)
    )


def lateness(found: dict[str, Any]) -> str:
    """Return how late streams end, in milliseconds, and what each costs."""
    rows = []
    for what, task in CROWDS:
        if (figures := found["figures"].get(task)) is None:
            continue
        row = [what]
        for name in ("bare", "all"):
            row += [f"{figures[figure][name]['is'][0]:.0f}" for figure in ("p50", "p99")]
        row += [
            f"{figures['cpu'][name]['is'][0]:.0f}" if "cpu" in figures else "" for name in ("bare", "all")
        ]
        rows.append(row)
    head = ["", "bare p50", "p99", "guarded p50", "p99", "CPU each, bare, µs", "guarded, µs"]
    return _table(head, rows)


def resting(found: dict[str, Any]) -> str:
    """Return what 10,000 silent streams cost."""
    if (figures := found["figures"].get("10000 rest")) is None:
        return "10,000 silent streams: left out\n"
    rows = [
        [name, f"{figures['core'][key]['is'][0]:.1f} %"]
        + [f"{figures[what][key]['is'][0]:.0f}" for what in ("threads", "timers")]
        for name, key in (("bare", "bare"), ("guarded", "all"))
    ]
    return _table(["10,000 silent streams", "of a core", "threads", "timers in the loop"], rows)


def growth(found: dict[str, Any]) -> str:
    """Return what is added to the bare SDK as numbers grow."""
    parts = []
    for task, what, unit in GROWTH:
        figures = found["figures"][task]
        rows = [
            [label, *(f"{figures[point][key]['adds'][0]:.1f}" for point in figures)]
            for label, key in (("added, gaps=all", "all"), ("added, gaps=summary", "summary"))
        ]
        rows.insert(0, ["bare", *(f"{figures[point]['bare']['is'][0]:.1f}" for point in figures)])
        parts.append(_table([f"{unit}; {what}", *figures], rows))
    return "\n".join(parts)


def versions(found: dict[str, Any]) -> str:
    """Return what was measured on."""
    told = found["versions"]
    ours = ", ".join(f"{name} {version}" for name, version in told["bare"].items())
    apart = []
    for name in PEERS:
        others = [
            f"{package} {version}"
            for package, version in told.get(name, {}).items()
            if told["bare"].get(package, version) != version
        ]
        if others:
            apart.append(f"{VARIANTS[name].what} on {', '.join(others)}")
    return f"{found['system']}. {ours}." + (f" {'; '.join(apart)}." if apart else "") + "\n"


def _of_kept(make: Callable[[dict[str, Any]], str]) -> Callable[[], str]:
    def part() -> str:
        found = kept()
        return NONE_KEPT if found is None else make(found)

    return part


PARTS = {
    f"performance-{name}": _of_kept(make)
    for name, make in {
        "versions": versions,
        "chunk-chart": lambda _: (
            "![CPU added to a chunk of a synchronous stream](images/performance-chunk.svg)"
        ),
        "growth-chart": lambda _: "![Costs as numbers grow](images/performance-growth.svg)",
        "costs": costs,
        "shares": shares,
        "targets": promises,
        "parts": parts,
        "resting": resting,
        "lateness": lateness,
        "growth": growth,
    }.items()
}
"""What fills the page's generated parts."""


def pictures(found: dict[str, Any]) -> dict[str, str]:
    """Return the charts by file name."""
    chunk = found["figures"]["sync"]["chunk"]
    bars = [
        charts.Bar(VARIANTS[name].what, *chunk[name]["adds"][:3], ours=name in OURS)
        for name in (*OURS, *PEERS)
        if name in chunk
    ]
    bare = chunk["bare"]["is"][0]
    lines = []
    for task, what, unit in GROWTH:
        figures = found["figures"][task]
        series = {
            "bare SDK": [(float(point), figures[point]["bare"]["is"][0]) for point in figures],
            "stallwatch": [(float(point), figures[point]["all"]["is"][0]) for point in figures],
        }
        lines.append(charts.lines(f"{unit[0].upper()}{unit[1:]}, by {what}", series))
    return {
        "performance-chunk.svg": charts.bars(
            f"CPU added to a chunk, µs (the SDK itself takes {bare:.0f})", bars
        ),
        "performance-growth.svg": charts.grid(lines),
    }


def printed(found: dict[str, Any]) -> str:
    """Return all tables for a terminal."""
    return "\n".join(
        make(found) for make in (versions, costs, shares, promises, parts, lateness, resting, growth)
    )


def _is(found: dict[str, Any], column: tuple[str, str, str, int], name: str) -> str:
    _, task, figure, digits = column
    return f"{found['figures'][task][figure][name]['is'][0]:.{digits}f}"


def _adds(found: dict[str, Any], column: tuple[str, str, str, int], name: str) -> str:
    _, task, figure, digits = column
    cells = found["figures"][task][figure].get(name)
    return "cannot" if cells is None else f"{cells['adds'][0]:+.{digits}f}"


def _bold(text: str) -> str:
    return f"**{text}**"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
