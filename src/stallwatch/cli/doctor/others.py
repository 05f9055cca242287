"""Which other tools instrument the SDK, or the HTTP library below it: patched here, or installed to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from packaging.requirements import InvalidRequirement, Requirement

from stallwatch.cli.doctor.report import Finding, Section, note, ok, warning
from stallwatch.sdk.neighbours import Tool, who_else_instruments
from stallwatch.telemetry.neighbours import KNOWN

__all__ = ["others"]

_KNOWN = {each.distribution for each in KNOWN}
_SWITCH = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
_SHOWN = 2
"""Patched methods that are written out; all of them are in the data."""


def others(environ: Mapping[str, str]) -> Section:
    """Look for other tools."""
    tools = who_else_instruments()
    findings = [*map(_tool, tools), *_entry_points(environ, tools)]
    if not findings:
        findings = [ok("nobody", "other tools", "none", "nobody else has patched the SDK or is installed to")]
    return Section(key="others", title="Who else instruments the SDK", findings=tuple(findings))


def _tool(tool: Tool) -> Finding:
    key = f"tool.{tool.distribution or tool.name}"
    value = " ".join(filter(None, [tool.version, "" if tool.active else "not active here"])) or "active"
    data = {
        "name": tool.name,
        "distribution": tool.distribution,
        "version": tool.version,
        "active": tool.active,
        "below": tool.below,
        "patches": tool.patches,
    }
    if not tool.active:
        return note(key, tool.name, value, "installed; nothing is patched by it in this process", **data)
    where = _where(tool)
    if tool.below:
        return note(key, tool.name, value, f"spans of each request, as children of ours; {where}", **data)
    if tool.distribution in _KNOWN:
        return note(key, tool.name, value, f"calls it has a span for are told on that span; {where}", **data)
    return warning(
        key,
        tool.name,
        value,
        "look whether a call has two spans; if so, switch one of the two off",
        f"no tool that is known, so a call may be told twice; {where}",
        **data,
    )


def _where(tool: Tool) -> str:
    short = [".".join(path.split(".")[-2:]) for path in tool.patches]
    more = len(short) - _SHOWN
    return f"on {', '.join(short[:_SHOWN])}" + (f" and {more} more" if more > 0 else "")


def _entry_points(environ: Mapping[str, str], tools: tuple[Tool, ...]) -> Iterator[Finding]:
    """Yield the instrumentors of the SDK that the loader knows, and that are no tool found already."""
    found = {tool.distribution for tool in tools}
    disabled = {name.strip() for name in environ.get(_SWITCH, "").split(",")}
    for point in entry_points(group="opentelemetry_instrumentor"):
        name = None if point.dist is None else point.dist.name
        if point.name == "stallwatch" or name in found or not _targets_openai(point):
            continue
        off = bool({point.name, "*"} & disabled)
        yield note(
            f"entry-point.{point.name}",
            point.name,
            "switched off" if off else "not active here",
            f"of {name or point.value}: {f'named by {_SWITCH}' if off else 'opentelemetry-instrument loads it, too'}",
            name=point.name,
            distribution=name,
            disabled=off,
        )


def _targets_openai(point: EntryPoint) -> bool:
    required: list[str] = [] if point.dist is None else list(point.dist.requires or ())
    for text in required:
        try:
            if Requirement(text).name == "openai":
                return True
        except InvalidRequirement:
            continue
    return "openai" in point.value.lower()
