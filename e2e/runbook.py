"""Following an alert's links as a person would: the runbook's section, the dashboard as it opens, a trace query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dashboards.probe import shipped

from e2e.collectors import Span
from e2e.needs import ROOT

__all__ = ["Chosen", "Section", "matches", "named", "opened", "section"]

RUNBOOKS = ROOT / "dashboards" / "runbooks.md"
_CONDITION = re.compile(r'(span|resource)\.([\w.]+) = (?:"([^"]*)"|(true|false))')


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A runbook's section; its steps are the numbered ones."""

    text: str

    @property
    def steps(self) -> list[str]:
        """What to look at, in order."""
        return re.split(r"^\d+\. ", self.text.partition("**What to do.**")[0], flags=re.MULTILINE)[1:]

    @property
    def attributes(self) -> set[str]:
        """The names of ours that it tells to look for on a span."""
        return set(re.findall(r"`(stallwatch\.[\w.]+)`", self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A dashboard as a link opens it."""

    board: Mapping[str, Any]
    values: Mapping[str, str]


def section(url: str) -> Section:
    """Return the section that an alert's ``runbook_url`` leads to; raises LookupError if there is none."""
    wanted = urlsplit(url).fragment
    for part in re.split(r"^## ", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        if title.lower().replace(" ", "-") == wanted:
            return Section(text=text)
    raise LookupError(f"no section {wanted!r} in {RUNBOOKS}")


def opened(url: str) -> Chosen:
    """Return the dashboard that an alert's ``dashboard_url`` leads to; raises LookupError if there is none."""
    parts = urlsplit(url)
    uid = parts.path.rpartition("/")[2]
    for board in shipped().values():
        if board["uid"] == uid:
            asked = parse_qs(parts.query, strict_parsing=True)
            chosen = {name: value for name, (value,) in asked.items() if name.startswith("var-")}
            return Chosen(
                board=board, values={name.removeprefix("var-"): value for name, value in chosen.items()}
            )
    raise LookupError(f"no dashboard {uid!r}")


def named(text: str) -> list[str]:
    """Return what a text has in italics, which are names of panels and rows."""
    return [" ".join(name.split()) for name in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", text)]


def matches(query: str, span: Span) -> bool:
    """Tell whether a span is found by a trace store's query, of the form that the runbook uses."""
    conditions = query.strip().removeprefix("{").removesuffix("}").split(" && ")
    for condition in conditions:
        match = _CONDITION.fullmatch(condition.strip())
        assert match is not None, f"not understood here: {condition}"
        scope, name, text, truth = match.groups()
        attributes = span.attributes if scope == "span" else span.resource
        if attributes.get(name) != (text if truth is None else truth == "true"):
            return False
    return True
