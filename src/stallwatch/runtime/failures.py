"""What an exception is called in telemetry, bounded and without its text.

Messages of foreign exceptions may quote keys, prompts and URLs, so only the class and the status go on record. The
HTTP libraries' own classes are folded into the SDK's names, because which of the two surfaces depends on the SDK's
release and not on what happened.
"""

from __future__ import annotations

from stallwatch.errors import StallwatchError

__all__ = ["describe"]

_HTTP_LIBRARIES = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "h11", "h2", "anyio"})


def describe(error: BaseException, status: int | None) -> tuple[str, str, int | None]:
    """Return the ``error.type``, a text without content, and the HTTP status of ``error``."""
    name = _name(error)
    if isinstance(error, StallwatchError):
        return name, str(error), status
    found = getattr(error, "status_code", None)
    if isinstance(found, int):
        return name, f"{name} (HTTP {found})", found
    return name, name, status


def _name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__.partition(".")[0] in _HTTP_LIBRARIES:
        return "APITimeoutError" if "Timeout" in kind.__name__ else "APIConnectionError"
    return kind.__name__
