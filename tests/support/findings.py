"""The doctor's findings, looked up by their keys."""

from __future__ import annotations

from stallwatch.cli.doctor.report import Finding, Section

__all__ = ["by_key"]


def by_key(section: Section) -> dict[str, Finding]:
    """Return the findings of a section by key; fails when two have the same."""
    found = {finding.key: finding for finding in section.findings}
    assert len(found) == len(section.findings), "keys are unique within a section"
    return found
