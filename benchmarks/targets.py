"""What was set out to be reached, beside what was measured: nothing is left out because it was missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Found = dict[str, Any]

THEN = {"chunk": 64.0, "call": 475.0}
"""Microseconds that the bare SDK took for them on the machine on which the targets were set."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that must be at most ``limit``."""

    what: str
    limit: float
    unit: str
    measure: Callable[[Found], float]
    beside: tuple[str, str] | None = None
    """The task and the figure of the bare SDK that it is a share of, which is what carries over between machines."""

    def row(self, found: Found) -> list[str]:
        """Return what is told of it."""
        value = self.measure(found)
        told = "met" if value <= self.limit else "**missed**"
        return [
            self.what,
            f"at most {_number(self.limit)} {self.unit}",
            f"{_number(value)} {self.unit}",
            told,
            *self._shares(found, value),
        ]

    def _shares(self, found: Found, value: float) -> list[str]:
        if self.beside is None:
            return ["", ""]
        task, figure = self.beside
        now = found["figures"][task][figure]["bare"]["is"][0]
        return [f"{100 * self.limit / THEN[figure]:.0f} % of a {figure}", f"{100 * value / now:.0f} %"]


def adds(task: str, figure: str, name: str) -> Callable[[Found], float]:
    """Return a measure: what a variant adds to the bare SDK."""
    return lambda found: float(found["figures"][task][figure][name]["adds"][0])


def rows(found: Found) -> list[list[str]]:
    """Return a row for each target that this run can tell of."""
    told = []
    for target in TARGETS:
        try:
            told.append(target.row(found))
        except KeyError:
            # Without the peers there is nothing to compare with.
            continue
    return told


def _beside_official(task: str) -> Callable[[Found], float]:
    def measure(found: Found) -> float:
        chunk = found["figures"][task]["chunk"]
        return float(chunk["all"]["adds"][0] / chunk["genai-openai"]["adds"][0])

    return measure


def _over_bare(task: str, figure: str) -> Callable[[Found], float]:
    def measure(found: Found) -> float:
        cells = found["figures"][task][figure]
        return float(100 * (cells["all"]["is"][0] / cells["bare"]["is"][0] - 1))

    return measure


def _is(task: str, figure: str) -> Callable[[Found], float]:
    return lambda found: float(found["figures"][task][figure]["all"]["is"][0])


def _targets() -> Iterator[Target]:
    for kind in ("sync", "async"):
        chunk, call = (kind, "chunk"), (kind, "call")
        yield Target(f"CPU of a chunk, {kind}", 9, "µs", adds(*chunk, "all"), chunk)
        yield Target(
            f"the same beside the official instrumentor, {kind}", 0.35, "times", _beside_official(kind)
        )
        for name, told in (("summary", "gaps=summary"), ("no sdk", "no OpenTelemetry SDK")):
            yield Target(f"CPU of a chunk, {kind}, {told}", 2.5, "µs", adds(*chunk, name), chunk)
        yield Target(
            f"a chunk reaches the reader later, {kind}",
            2,
            "µs",
            adds(f"{kind} latency", "latency", "all"),
            chunk,
        )
        yield Target(f"CPU of a plain call, {kind}", 100, "µs", adds(*call, "all"), call)
        yield Target(
            f"CPU of a stream beyond its chunks, {kind}", 160, "µs", adds(kind, "stream", "all"), call
        )
    yield Target("memory of an open stream, its span included", 4352, "bytes", adds("memory", "held", "all"))
    for name, told in (("not sampled", "no span sampled"), ("no sdk", "no OpenTelemetry SDK")):
        yield Target(f"memory of an open stream, {told}", 1280, "bytes", adds("memory", "held", name))
    yield Target("10,000 silent streams", 1, "% of a core", adds("10000 rest", "core", "all"))
    yield Target("threads for 10,000 silent streams", 2, "more", adds("10000 rest", "threads", "all"))
    yield Target("timers for 10,000 silent streams", 2, "more", adds("10000 rest", "timers", "all"))
    yield Target("a single stall, async, p50", 20, "ms late", _is("lone async", "p50"))
    yield Target("a single stall, sync, p50", 20, "ms late", _is("lone sync", "p50"))
    yield Target("1,000 stalls together, p99", 150, "ms late", _is("1000 expire", "p99"))
    for count in ("2,000", "5,000"):
        task = f"{count.replace(',', '')} expire"
        yield Target(f"{count} stalls together, p99 over the bare SDK's", 10, "%", _over_bare(task, "p99"))
    yield Target("`import stallwatch`", 30, "ms", lambda found: float(found["imports"]["import"][0]))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2g}"


TARGETS = tuple(_targets())
