"""Reading PromQL far enough to see which series and labels it names, and what is known of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dashboards import collector, objective, recordings
from dashboards import promql as q
from stallwatch import catalogue
from stallwatch.catalogue import Instrument, MetricSpec

__all__ = ["COUNTERS", "KNOWN", "Named", "grouping_labels", "named_series", "problems", "raw_counters"]

SCRAPED = frozenset({"job", "instance"})
"""Labels that Prometheus adds, or that the collector's series have in their place."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(
    r"(?<![\w.$:])(?P<name>[A-Za-z_:][\w:]*)\s*(?:\{(?P<of>[^}]*)\})?(?P<call>\s*\()?|\{(?P<any>[^}]*)\}"
)
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_WORDS = frozenset(
    {"by", "on", "without", "ignoring", "or", "and", "unless", "bool", "offset", "group_left", "le"}
)
_WINDOW = re.compile(r"\[[^\]]*\]")
_GROWTH = re.compile(r"\b(?:rate|irate|increase|resets)\s*\(\s*\Z")


@dataclass(frozen=True)
class Named:
    """A series as a query names it: its matchers by label, and the text in front of it."""

    series: str
    matchers: dict[str, str] = field(default_factory=dict)
    before: str = ""


def named_series(expr: str) -> Iterator[Named]:
    """Yield every series named in ``expr``; of a name in two spellings (``a(_total)?``) the shorter."""
    values: list[str] = []

    def keep(match: re.Match[str]) -> str:
        values.append(match[0][1:-1])
        return f"'{len(values) - 1}'"

    bare = _GROUPING.sub(" ", _WINDOW.sub(" ", _STRING.sub(keep, expr)))
    for match in _SELECTOR.finditer(bare):
        name, matchers = match["name"] or "", match["of"] or match["any"] or ""
        if match["call"] or name in _WORDS:
            continue
        found = {}
        for part in filter(None, (part.strip() for part in matchers.split(","))):
            label, operator, value = re.fullmatch(r"(\w+)\s*(=~|!~|!=|=)\s*'(\d+)'", part).groups()  # type: ignore[union-attr]
            found[label] = operator + values[int(value)]
        spelt = found.pop("__name__", "=" + name)
        yield Named(spelt.lstrip("=~").partition("(")[0], found, bare[: match.start()])


def grouping_labels(expr: str) -> set[str]:
    """Return the labels that ``expr`` groups by."""
    return {label.strip() for names in _GROUPING.findall(expr) for label in names.split(",")}


def _stored(spec: MetricSpec) -> set[str]:
    """Return the series names under which Prometheus stores an instrument; worked out anew, as a check of ours."""
    name = spec.name.replace(".", "_") + ("_seconds" if spec.unit == "s" else "")
    if spec.kind is Instrument.HISTOGRAM:
        return {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return {f"{name}_total" if spec.kind is Instrument.COUNTER else name}


def _known() -> dict[str, frozenset[str]]:
    known = {foreign.name: SCRAPED | set(foreign.labels) for foreign in collector.FOREIGN}
    known["ALERTS"] |= set(q.GROUP)
    known |= {
        recording.name: frozenset(q.GROUP) for recording in recordings.recordings(objective.Objective())
    }
    for spec in catalogue.METRICS:
        labels = SCRAPED | {name.replace(".", "_") for name in spec.attributes}
        for name in _stored(spec):
            known[name] = labels | ({"le"} if name.endswith("_bucket") else set())
    return known


KNOWN = _known()
"""Every series that may be named, with its labels."""

COUNTERS = frozenset(
    {foreign.name for foreign in collector.FOREIGN if foreign.counter}
    | {name for name in KNOWN if name.endswith(("_total", "_bucket", "_count", "_sum"))}
)

_VALUES = {name.replace(".", "_"): values for name, values in catalogue.VALUES.items()}


def problems(expr: str) -> list[str]:
    """Return what is wrong with the names in ``expr``; nothing when all of them are known."""
    wrong = []
    labels_of_all: set[str] = set()
    for named in named_series(expr):
        labels = KNOWN.get(named.series)
        if labels is None:
            wrong.append(f"no such series: {named.series}")
            continue
        labels_of_all |= labels
        wrong += [f"{named.series} has no label {name}" for name in named.matchers if name not in labels]
        for name, matcher in named.matchers.items():
            wrong += [
                f"{name} is never {value!r}" for value in _values(matcher) if not _possible(name, value)
            ]
    labels_of_all |= SCRAPED if not labels_of_all else set()
    return wrong + [
        f"no series here has the label {name}" for name in sorted(grouping_labels(expr) - labels_of_all)
    ]


def raw_counters(expr: str) -> list[str]:
    """Return the counters whose bare value ``expr`` uses, which says nothing: only their growth does."""
    counted = re.compile(r"\bcount\s*(?:by)?\s*\(\s*\Z")
    return [
        named.series
        for named in named_series(expr)
        if named.series in COUNTERS and not _GROWTH.search(named.before) and not counted.search(named.before)
    ]


def _values(matcher: str) -> list[str]:
    return [] if "$" in matcher else [value for value in matcher.lstrip("=!~").split("|") if value]


def _possible(name: str, value: str) -> bool:
    return name not in _VALUES or value in _VALUES[name]
