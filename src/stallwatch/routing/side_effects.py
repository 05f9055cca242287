"""What a request leaves behind on the server, so that asking twice would leave it twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["leaves_traces"]

_CLIENT_TOOLS = frozenset({"function", "custom"})
"""Tools whose calls are answered by the caller; all others run on the server."""


def leaves_traces(api: str, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a request is stored, runs in the background, writes to a conversation or has tools run for it.

    Responses are stored unless ``store=False`` says otherwise: that is the API's own default. Chat completions are
    stored only when asked. What is given in ``extra_body`` counts like an argument.
    """
    extra = arguments.get("extra_body")
    asked = {**arguments, **extra} if isinstance(extra, Mapping) else arguments
    stored = asked.get("store")
    if stored is True or (api == "responses" and stored is not False):
        return True
    # An empty mapping of options asks for a search as well.
    if asked.get("background") is True or any(
        _given(asked.get(name)) for name in ("conversation", "web_search_options")
    ):
        return True
    tools = asked.get("tools")
    return _given(tools) and isinstance(tools, Iterable) and any(_runs_on_server(tool) for tool in tools)


def _given(value: object) -> bool:
    # The SDK's marks for what was left out, by name: they differ between releases.
    return value is not None and type(value).__name__ not in ("NotGiven", "Omit")


def _runs_on_server(tool: object) -> bool:
    return not (isinstance(tool, Mapping) and tool.get("type", "function") in _CLIENT_TOOLS)
