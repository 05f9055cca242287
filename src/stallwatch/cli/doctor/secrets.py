"""What must not be told: keys, credentials in addresses, query strings.

Findings are made without them in the first place: of an address only scheme, host and port are told. Every text passes
through ``Secrets.hide`` nevertheless before it is shown, because settings and names come from elsewhere and may hold
anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, urlsplit

__all__ = ["HIDDEN", "Secrets", "origin"]

HIDDEN = "***"

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|HEADERS|AUTH", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/\s'\"]*@")
_QUERY = re.compile(r"(?<=[\w/\]])\?[^\s'\"]+")
_KEY = re.compile(r"\b(?:sk|pk|rk|key|token)-[\w-]{6,}|\bBearer\s+\S+", re.IGNORECASE)
_SHORTEST = 8
"""A shorter value may be a part of ordinary words, which would be struck out with it."""


class Secrets:
    """The secrets of an environment, and those found on the way."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._known: set[str] = set()
        for name, value in environ.items():
            if _SECRET_NAME.search(name) and not name.startswith("STALLWATCH_"):
                self.add(value, *_header_values(value))
            if "://" in value:
                self.add(*_userinfo(value))

    def add(self, *values: object) -> None:
        """Hide these from now on, if they are long enough to be secrets."""
        self._known |= {value for value in values if isinstance(value, str) and len(value) >= _SHORTEST}

    def hide(self, text: str) -> str:
        """Return the text without secrets, fit to be printed."""
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        text = _USERINFO.sub("", text)
        text = _KEY.sub(HIDDEN, _QUERY.sub("", text))
        # Variables may hold bytes that are no text, and escapes that a terminal would obey.
        return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _header_values(headers: str) -> Iterable[str]:
    for pair in headers.split(","):
        value = pair.partition("=")[2].strip()
        yield from (value, unquote(value), unquote(value).rpartition(" ")[2])


def _userinfo(url: str) -> Iterable[str]:
    for match in re.finditer(r"://([^/\s'\"]*)@", url):
        for part in (match[1], *match[1].split(":", 1)):
            yield part
            yield unquote(part)


def origin(url: str) -> str:
    """Return scheme, host and port of an address, or what can be told of something that is none."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "(not an address)"
    if not host:
        return "(no host)"
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme + '://' if parts.scheme else ''}{shown}{'' if port is None else f':{port}'}"
