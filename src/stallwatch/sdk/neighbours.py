"""Which other tools instrument the OpenAI SDK in this process, and what they have patched; for reports.

How one call is told apart from another's is the business of ``telemetry.neighbours``; nothing here is asked then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType
from typing import Any

from stallwatch.telemetry.neighbours import KNOWN, neighbour_of

__all__ = ["Tool", "who_else_instruments"]

_HTTP = (
    ("OpenTelemetry HTTPX", "opentelemetry-instrumentation-httpx", "opentelemetry.instrumentation.httpx"),
)
"""Name, distribution and package of what instruments the HTTP library below the SDK."""

_PATCHED_IN = (
    "openai._base_client",
    "openai._client",
    "openai._streaming",
    "openai.lib",
    "openai.resources",
    "httpx._client",
    "httpx._transports",
    "httpx2._client",
    "httpx2._transports",
)
_NOBODY = sys.stdlib_module_names | {"stallwatch", "pydantic", "typing_extensions", "httpx", "httpx2"}
"""Whose functions in those classes are no instrumentation: ours, and what the SDK and its classes are made with."""

_LAYERS = 16
"""Wrappers looked through, one around the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Another tool that instruments the OpenAI SDK, or the HTTP library below it."""

    name: str
    """As people call it; of a tool that is not known, the package its code is in."""
    distribution: str | None
    """Its name on the package index; None of a tool that is not known."""
    version: str | None
    """The installed version; None when it is not installed under that name."""
    below: bool
    """Whether it instruments the HTTP library: its spans are children of ours, and nothing is told twice."""
    patches: tuple[str, ...]
    """What it has replaced so far, e.g. ``openai.resources.chat.completions.completions.Completions.create``, in
    alphabetical order; empty while it is installed only. What it has replaced on single client objects is not seen."""

    @property
    def active(self) -> bool:
        """Whether it has patched anything."""
        return bool(self.patches)


def who_else_instruments() -> tuple[Tool, ...]:
    """Return the other tools that are installed to instrument the OpenAI SDK or have patched it, active ones first.

    A tool counts as known by the list in ``telemetry.neighbours``; of any other, what it has patched is found just
    the same, and it is named for its package. Only modules that are imported already are looked at, so ask after the
    program has set up its telemetry. Takes some milliseconds.
    """
    patched: dict[tuple[str, str | None, bool], list[str]] = {}
    for neighbour in KNOWN:
        patched.setdefault((neighbour.name, neighbour.distribution, False), [])
    for name, distribution, _ in _HTTP:
        patched.setdefault((name, distribution, True), [])
    for path, module in _patches():
        patched.setdefault(_owner(path, module), []).append(path)
    tools = [
        Tool(
            name=name,
            distribution=distribution,
            version=_version(distribution),
            below=below,
            patches=tuple(sorted(set(paths))),
        )
        for (name, distribution, below), paths in patched.items()
    ]
    there = [tool for tool in tools if tool.active or tool.version is not None]
    return tuple(sorted(there, key=lambda tool: (not tool.active, tool.below, tool.name)))


def _owner(path: str, module: str) -> tuple[str, str | None, bool]:
    neighbour = neighbour_of(module)
    if neighbour is not None:
        return neighbour.name, neighbour.distribution, False
    below = not path.startswith("openai.")
    for name, distribution, package in _HTTP:
        if f"{module}.".startswith(f"{package}."):
            return name, distribution, below
    return module.partition(".")[0], None, below


def _version(distribution: str | None) -> str | None:
    if distribution is None:
        return None
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _patches() -> Iterator[tuple[str, str]]:
    """Yield every attribute of the SDK's and the HTTP library's classes that others made, and whose module it is."""
    for owner in _classes():
        package = owner.__module__.partition(".")[0]
        for attribute, value in list(vars(owner).items()):
            for maker in _makers(value):
                if maker.partition(".")[0] not in _NOBODY | {package}:
                    yield f"{owner.__module__}.{owner.__qualname__}.{attribute}", maker


def _classes() -> set[type]:
    return {
        value
        for name, module in list(sys.modules.items())
        if any(f"{name}.".startswith(f"{place}.") for place in _PATCHED_IN)
        for value in list(getattr(module, "__dict__", {}).values())
        # The packages name their public classes' module by its public name.
        # By the type: proxies of optional packages import them, or fail to, when asked for anything.
        if issubclass(type(value), type) and value.__module__.partition(".")[0] == name.partition(".")[0]
    }


def _makers(value: Any) -> Iterator[str]:
    """Yield the module of each function that was wrapped around the one below, the outermost first."""
    for _ in range(_LAYERS):
        # By its type: a wrapper passes itself off as an instance of what it wraps.
        if type(value) is FunctionType:
            yield _module_of(value)
        elif hasattr(type(value), "_self_wrapper"):
            yield _module_of(value._self_wrapper)
        else:
            return
        value = getattr(value, "__wrapped__", None)


def _module_of(wrapper: Any) -> str:
    # Not __module__ of a function: functools.wraps gives it the wrapped one's.
    if isinstance(wrapper, FunctionType):
        return str(wrapper.__globals__.get("__name__"))
    inner = getattr(wrapper, "__func__", None) or getattr(wrapper, "func", None)
    return str(type(wrapper).__module__) if inner is None else _module_of(inner)
