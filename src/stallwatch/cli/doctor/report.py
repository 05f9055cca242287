"""What the doctor found: sections of findings, each with a level, and what to do where something is wrong.

The keys of sections and findings, the levels and the fields are what programs may rely on in the JSON; titles, values
and texts are for people and may change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from stallwatch.version import __version__

__all__ = ["Finding", "Level", "Report", "Section", "note", "ok", "problem", "warning"]

FORMAT = 1
"""The version of the JSON; it rises when something that programs may rely on changes its meaning."""


class Level(StrEnum):
    """How much a finding matters, the least first."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


_RANK = {level: rank for rank, level in enumerate(Level)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. ``data`` is for programs; ``advice`` is what to do, and stands where it is bad."""

    key: str
    level: Level
    title: str
    value: str = ""
    detail: str = ""
    advice: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.level in (Level.WARNING, Level.PROBLEM)) is not bool(self.advice):
            raise ValueError(f"{self.key}: advice stands with warnings and problems, and only there")


def ok(key: str, title: str, value: str = "", detail: str = "", /, **data: Any) -> Finding:
    """Return a finding that is as it should be."""
    return Finding(key=key, level=Level.OK, title=title, value=value, detail=detail, data=data)


def note(key: str, title: str, value: str = "", detail: str = "", /, **data: Any) -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(key=key, level=Level.NOTE, title=title, value=value, detail=detail, data=data)


def warning(key: str, title: str, value: str, advice: str, detail: str = "", /, **data: Any) -> Finding:
    """Return a finding that makes less happen than one may think."""
    return Finding(
        key=key, level=Level.WARNING, title=title, value=value, detail=detail, advice=advice, data=data
    )


def problem(key: str, title: str, value: str, advice: str, detail: str = "", /, **data: Any) -> Finding:
    """Return a finding because of which calls are not guarded, not observed, or not as they were meant to be."""
    return Finding(
        key=key, level=Level.PROBLEM, title=title, value=value, detail=detail, advice=advice, data=data
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Findings that belong together; ``lead`` is a sentence above them."""

    key: str
    title: str
    findings: tuple[Finding, ...]
    lead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was found."""

    sections: tuple[Section, ...]

    def all(self) -> Iterator[tuple[Section, Finding]]:
        """Yield every finding with its section."""
        for section in self.sections:
            for finding in section.findings:
                yield section, finding

    def at(self, level: Level) -> list[tuple[Section, Finding]]:
        """Return the findings of a level."""
        return [(section, finding) for section, finding in self.all() if finding.level is level]

    @property
    def worst(self) -> Level:
        """The worst level of any finding."""
        return max((finding.level for _, finding in self.all()), key=_RANK.__getitem__, default=Level.OK)

    @property
    def exit_code(self) -> int:
        """1 when there is a problem, else 0."""
        return 1 if self.worst is Level.PROBLEM else 0

    def to_json(self) -> str:
        """Return the report as a JSON object."""
        return json.dumps(
            {
                "format": FORMAT,
                "stallwatch": __version__,
                "worst": str(self.worst),
                "exit_code": self.exit_code,
                "sections": {
                    section.key: {
                        "title": section.title,
                        "lead": section.lead,
                        "findings": [*map(_plain, section.findings)],
                    }
                    for section in self.sections
                },
            },
            indent=2,
            default=str,
        )

    def without(self, hide: Callable[[str], str]) -> Report:
        """Return the report with every text passed through ``hide``."""
        return Report(sections=tuple(_hidden_section(section, hide) for section in self.sections))


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "key": finding.key,
        "level": str(finding.level),
        "title": finding.title,
        "value": finding.value,
        "detail": finding.detail,
        "advice": finding.advice,
        "data": dict(finding.data),
    }


def _hidden_section(section: Section, hide: Callable[[str], str]) -> Section:
    findings = tuple(
        replace(
            finding,
            title=hide(finding.title),
            value=hide(finding.value),
            detail=hide(finding.detail),
            advice=hide(finding.advice),
            data=_hidden(finding.data, hide),
        )
        for finding in section.findings
    )
    return replace(section, lead=hide(section.lead), findings=findings)


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {name: _hidden(inner, hide) for name, inner in value.items()}
    if isinstance(value, Iterable):
        return [_hidden(inner, hide) for inner in value]
    return value
