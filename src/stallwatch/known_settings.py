"""The one list of what can be set, from which reading, messages and the README's table are made.

A setting takes its value from an environment variable, a keyword or a policy file, and understands texts wherever they
come from, since configuration files pass numbers and switches on as texts. Where values come from and what becomes of
bad ones is the business of ``settings``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from stallwatch.core.words import Mode
from stallwatch.durations import LONGEST, seconds
from stallwatch.policy import Deadlines, Policy
from stallwatch.resolution import BACKSTOP_FLOOR, BACKSTOP_MARGIN, BUILT_IN, HIDDEN_REASONING

__all__ = [
    "BY_KEYWORD",
    "BY_VARIABLE",
    "PREFIX",
    "SETTINGS",
    "Setting",
    "nearest",
    "settings_table",
    "understood",
]

PREFIX = "STALLWATCH_"
_DURATION = f"seconds (at most {LONGEST:,.0f}) or text such as '120s', '2m', '500ms'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing users can set; texts are for readers, ``variable`` and ``keyword`` are names."""

    name: str
    variable: str | None
    keyword: str
    default: str
    allowed: str
    meaning: str
    read: Callable[[object], Any] = field(repr=False, compare=False)
    """Returns a value as the keyword takes it; raises ValueError when it is not allowed."""


def _of_policy(keyword: str, parse: Callable[[str], object] = str) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        if value is False:
            # YAML takes a bare ``off`` for false.
            value = "off"
        if isinstance(value, str):
            value = parse(value.strip())
        Policy.of(**{keyword: value})
        return value

    return read


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _whole(text: str) -> object:
    if text.lower() == "off":
        return 0
    return int(text) if text.isascii() and text.isdigit() else text


def _switch(text: str) -> object:
    words: dict[str, object] = {"true": True, "on": True, "false": False, "off": False}
    return words.get(text.lower(), text)


def _backstop(value: object) -> float:
    length = seconds("span_backstop", value)
    if length is None:
        raise ValueError("a span nobody ends must end")
    return length


def _path(value: object) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError("no path")
    return Path(os.fsdecode(value))


def _default_of(keyword: str) -> str:
    usual, patient = (getattr(deadlines, keyword) for deadlines in (BUILT_IN.deadlines, HIDDEN_REASONING))
    return (
        f"{usual:g} s" if usual == patient else f"{usual:g} s; {patient:g} s for models that think in silence"
    )


def _deadline(keyword: str, meaning: str) -> Setting:
    return Setting(
        name=f"{keyword} timeout",
        variable=f"{PREFIX}{keyword.upper()}_TIMEOUT",
        keyword=keyword,
        default=_default_of(keyword),
        allowed=f"{_DURATION}; 0 or 'off' switches it off",
        meaning=meaning,
        read=_of_policy(keyword),
    )


def _choice(keyword: str, allowed: Iterable[str], meaning: str) -> Setting:
    return Setting(
        name=keyword,
        variable=PREFIX + keyword.upper(),
        keyword=keyword,
        default=str(getattr(BUILT_IN, keyword)),
        allowed=" or ".join(f"'{choice}'" for choice in allowed),
        meaning=meaning,
        read=_of_policy(keyword, str.lower),
    )


SETTINGS: tuple[Setting, ...] = (
    _choice(
        "mode",
        Mode,
        "`enforce` aborts stalls, `observe` only reports what it would have aborted, `off` does nothing",
    ),
    _deadline("connect", "TCP and TLS of an attempt"),
    _deadline(
        "first_token",
        "from the start of an attempt to its first progress: connecting, queue and headers included",
    ),
    _deadline("thinking", "waiting since the last progress while only reasoning has been seen"),
    _deadline("idle", "waiting since the last progress once visible output has begun"),
    _deadline("total", "waiting of the whole run: all attempts and the pauses between them"),
    Setting(
        name="max retries",
        variable="STALLWATCH_MAX_RETRIES",
        keyword="max_retries",
        default=str(BUILT_IN.retry.max_retries),
        allowed="a whole number from 0 to 100; 0 or 'off' switches retries off",
        meaning="how often a run may be tried again; never more than the client's own `max_retries`",
        read=_of_policy("max_retries", _whole),
    ),
    _choice(
        "progress", ("content", "chunk"), "what restarts a clock: `content` is real output, `chunk` any chunk"
    ),
    Setting(
        name="keepalive factor",
        variable="STALLWATCH_KEEPALIVE_FACTOR",
        keyword="keepalive_factor",
        default=str(BUILT_IN.keepalive_factor),
        allowed="a number from 1 to 10",
        meaning="how many times as long `first_token` and `thinking` may be while bytes without progress arrive",
        read=_of_policy("keepalive_factor", _number),
    ),
    _choice(
        "gaps",
        ("all", "summary", "off"),
        "which waits between chunks are recorded: `all`, the longest only, none",
    ),
    Setting(
        name="hidden reasoning",
        variable=None,
        keyword="hidden_reasoning",
        default="by model and requested effort",
        allowed="true or false",
        meaning="whether requests may think in silence, which makes the built-in defaults more patient",
        read=_of_policy("hidden_reasoning", _switch),
    ),
    Setting(
        name="span backstop",
        variable="STALLWATCH_SPAN_BACKSTOP",
        keyword="span_backstop",
        default=f"{BACKSTOP_FLOOR:g} s, or the longest limit and {BACKSTOP_MARGIN:g} s if that is more",
        allowed=f"{_DURATION}; above 0",
        meaning="after how long without any activity a span is ended; aborts nothing",
        read=_backstop,
    ),
    Setting(
        name="policy file",
        variable="STALLWATCH_POLICY_FILE",
        keyword="policy_file",
        default="none",
        allowed="the path of a TOML file",
        meaning="policies by model and base URL",
        read=_path,
    ),
)
"""Everything that can be set, in the order of the documentation."""

BY_VARIABLE: Mapping[str, Setting] = {item.variable: item for item in SETTINGS if item.variable is not None}
BY_KEYWORD: Mapping[str, Setting] = {item.keyword: item for item in SETTINGS} | {
    f"{deadline.name}_timeout": item
    for deadline in fields(Deadlines)
    for item in SETTINGS
    if item.keyword == deadline.name
}
"""Deadlines under both ``idle`` and ``idle_timeout``, as code and configuration files spell them."""


def settings_table() -> str:
    """Return all settings as a Markdown table."""
    lines = ["| Variable | Keyword | Default | Allowed | Meaning |", "| --- | --- | --- | --- | --- |"]
    for item in SETTINGS:
        variable = "" if item.variable is None else f"`{item.variable}`"
        lines.append(f"| {variable} | `{item.keyword}` | {item.default} | {item.allowed} | {item.meaning} |")
    return "\n".join(lines) + "\n"


def understood(
    entries: Mapping[str, object],
    known: Mapping[str, Setting],
    refuse: Callable[[str], None],
    also: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the allowed values by keyword, and tell ``refuse`` about each other entry.

    ``also`` are names that are no settings but stand beside them, and may have been meant.
    """
    values: dict[str, Any] = {}
    for name, value in entries.items():
        setting = known.get(name)
        if setting is None:
            refuse(f"{name} is not a setting, {nearest(name, (*known, *also))}")
        elif setting.keyword in values:
            refuse(f"{name}={_shown(value)} is not allowed: {setting.keyword} is set already")
        else:
            try:
                values[setting.keyword] = setting.read(value)
            except ValueError:
                refuse(f"{name}={_shown(value)} is not allowed: give {setting.allowed}")
    return values


_ALIKE = 0.7
"""How alike two names must be for the one to be a slip for the other; a wrong guess misleads more than none."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the question whether the most similar of the ``known`` names was meant, or all of them if none is."""
    # Only where there is a slip.
    import difflib

    known = list(known)

    def likeness(candidate: str) -> float:
        return difflib.SequenceMatcher(None, _core(name), _core(candidate)).ratio()

    best = max(known, key=likeness)
    if likeness(best) < _ALIKE:
        return f"known are {', '.join(known)}"
    return f"did you mean {best}?"


def _core(name: str) -> str:
    # What many names share would make a long wrong name look like the right one.
    return name.removeprefix(PREFIX).lower().removesuffix("_timeout")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
