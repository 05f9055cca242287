"""Reading PromQL far enough to see which series and labels it names, and what the catalogue knows of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from stallwatch import catalogue
from stallwatch.catalogue import Instrument, MetricSpec

SCRAPED = frozenset({"job", "instance"})
"""Labels that Prometheus adds."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"([A-Za-z_:][\w:]*)\s*(?:\{([^}]*)\})?(\s*\()?")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_WORDS = frozenset(
    {"by", "on", "without", "ignoring", "or", "and", "unless", "bool", "offset", "group_left", "le"}
)
_WINDOW = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True)
class Named:
    """A series as a query names it: matchers by label, and the labels its aggregations group by."""

    series: str
    matchers: dict[str, str] = field(default_factory=dict)


def named_series(expr: str) -> Iterator[Named]:
    """Yield every series named in ``expr``; the query must not contain nested braces in strings."""
    values: list[str] = []

    def keep(match: re.Match[str]) -> str:
        values.append(match[0][1:-1])
        return f"'{len(values) - 1}'"

    bare = _GROUPING.sub(" ", _WINDOW.sub(" ", _STRING.sub(keep, expr)))
    for name, matchers, call in _SELECTOR.findall(bare):
        if call or name in _WORDS:
            continue
        found = {}
        for part in filter(None, (part.strip() for part in matchers.split(","))):
            label, operator, value = re.fullmatch(r"(\w+)\s*(=~|!~|!=|=)\s*'(\d+)'", part).groups()  # type: ignore[union-attr]
            found[label] = operator + values[int(value)]
        yield Named(name, found)


def grouping_labels(expr: str) -> set[str]:
    """Return the labels that ``expr`` groups by."""
    return {label.strip() for names in _GROUPING.findall(expr) for label in names.split(",")}


def stored(spec: MetricSpec) -> set[str]:
    """Return the series names under which Prometheus stores an instrument."""
    name = spec.name.replace(".", "_") + ("_seconds" if spec.unit == "s" else "")
    if spec.kind is Instrument.HISTOGRAM:
        return {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return {f"{name}_total" if spec.kind is Instrument.COUNTER else name}


def label(attribute: str) -> str:
    """Return an attribute's name as a label."""
    return attribute.replace(".", "_")


KNOWN = {name: spec for spec in catalogue.METRICS for name in stored(spec)}
VALUES = {label(name): values for name, values in catalogue.VALUES.items()}


def problems(expr: str) -> list[str]:
    """Return what is wrong with the names in ``expr``; nothing when the catalogue knows them all."""
    wrong = []
    labels_of_all = set(SCRAPED)
    for named in named_series(expr):
        spec = KNOWN.get(named.series)
        if spec is None:
            wrong.append(f"no such series: {named.series}")
            continue
        labels = {label(name) for name in spec.attributes} | SCRAPED
        labels |= {"le"} if named.series.endswith("_bucket") else set()
        labels_of_all |= labels
        wrong += [f"{named.series} has no label {name}" for name in named.matchers if name not in labels]
        for name, matcher in named.matchers.items():
            wrong += [
                f"{name} is never {value!r}" for value in _values(matcher) if not _possible(name, value)
            ]
    return wrong + [f"no series here has the label {name}" for name in grouping_labels(expr) - labels_of_all]


def _values(matcher: str) -> list[str]:
    return [] if "$" in matcher else matcher.lstrip("=!~").split("|")


def _possible(name: str, value: str) -> bool:
    return name not in VALUES or value in VALUES[name]
