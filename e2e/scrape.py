"""Reading the text format of Prometheus, as far as a test needs it: names, labels, values."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Sample", "samples", "scrape"]

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


def scrape(url: str, *, openmetrics: bool = False) -> str:
    """Return the body; raises OSError if it does not come with status 200 within two seconds."""
    headers = {"accept": "application/openmetrics-text; version=1.0.0"} if openmetrics else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=2) as answer:
        text: str = answer.read().decode()
    return text


def samples(text: str) -> Iterator[Sample]:
    """Yield the samples of an exposition; exemplars are left out."""
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.match(line)
        if match is not None:
            name, labels, value = match.groups()
            yield Sample(name=name, labels=dict(_LABEL.findall(labels or "")), value=float(value))
