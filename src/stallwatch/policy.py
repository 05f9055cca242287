"""What users may set: deadlines, retries, mode, and rules that set them by model and route.

Every field has a third state beside *a value* and *off*: ``DEFAULT``, "not set here", so that layers merge field by
field and an explicit value that happens to equal a built-in still wins over the built-in's special cases.
Merging itself lives in ``resolution``.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from stallwatch.core.words import Mode
from stallwatch.durations import ALLOWED, Duration, seconds

if TYPE_CHECKING:
    from stallwatch.core.worst_case import WorstCase

__all__ = ["DEFAULT", "Deadlines", "Default", "HedgePolicy", "Policy", "RetryPolicy", "Rule", "of_type"]


class Default(Enum):
    """The type of ``DEFAULT``."""

    DEFAULT = "default"

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default.DEFAULT
"""Not set here: the next layer decides."""

Progress = Literal["content", "chunk"]
Gaps = Literal["all", "summary", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The five timeouts, in seconds; ``None``, ``0`` or a negative value switches one off.

    ``connect``: TCP and TLS of an attempt. ``first_token``: attempt start to the first progress. ``thinking`` and
    ``idle``: waiting since the last progress, before and after visible output began. ``total``: the whole run.
    Only time spent waiting for the server is charged, never the caller's own pauses. Values may also be given as
    timedelta or text such as ``"2m"``. Raises ValueError naming field, value and range.
    """

    connect: Duration | None | Default = DEFAULT
    first_token: Duration | None | Default = DEFAULT
    thinking: Duration | None | Default = DEFAULT
    idle: Duration | None | Default = DEFAULT
    total: Duration | None | Default = DEFAULT

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not DEFAULT:
                object.__setattr__(self, item.name, seconds(item.name, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a run may be tried again; never more than the client's own ``max_retries``."""

    max_retries: int | Default = DEFAULT

    def __post_init__(self) -> None:
        value: object = self.max_retries
        if value is DEFAULT:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
            raise ValueError(f"max_retries={value!r} is not allowed: give a whole number from 0 to 100")


_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgePolicy:
    """When a router asks a second route beside the first.

    ``delay``: how long the first may be without progress; a fixed time (seconds, timedelta, ``"800ms"``) or a
    percentile of what this route took of late, as ``"p95"``. While too little is known for a percentile, nothing is
    hedged. ``max_share``: at most that share of calls, above 0 up to 1. ``side_effects``: hedge also what leaves traces
    on the server (stored responses, background runs, server-side tools), which then leaves them twice. Raises
    ValueError naming field, value and range.
    """

    delay: Duration
    max_share: float = 0.05
    side_effects: bool = False

    def __post_init__(self) -> None:
        if self.percentile is None:
            try:
                fixed = seconds("delay", self.delay)
            except ValueError:
                fixed = None
            if fixed is None:
                raise ValueError(
                    f"delay={self.delay!r} is not allowed: give {ALLOWED} and above 0, or a percentile such as 'p95'"
                )
            object.__setattr__(self, "delay", fixed)
        share: object = self.max_share
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise ValueError(f"max_share={share!r} is not allowed: give a number above 0, at most 1")
        of_type("side_effects", self.side_effects, bool)

    @property
    def percentile(self) -> float | None:
        """The percentile that the delay is learned from; None when it is fixed."""
        match = _PERCENTILE.fullmatch(self.delay.strip().lower()) if isinstance(self.delay, str) else None
        return None if match is None or float(match[1]) == 0 else float(match[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything that governs a call; fields left at ``DEFAULT`` are decided by the next layer.

    ``mode``: ``enforce`` aborts, ``observe`` only reports what it would have aborted, ``off`` does nothing.
    ``progress``: ``content`` lets only real output restart a clock, ``chunk`` lets every chunk.
    ``keepalive_factor``: how many times as long a wait may be while bytes without progress arrive (1 to 10).
    ``gaps``: ``all`` records every gap between chunks, ``summary`` the longest only, ``off`` none.
    ``hidden_reasoning``: overrides the built-in list of models that think in silence.
    Raises ValueError naming field, value and what is allowed.
    """

    deadlines: Deadlines = field(default_factory=Deadlines)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    mode: Mode | Literal["enforce", "observe", "off"] | Default = DEFAULT
    progress: Progress | Default = DEFAULT
    keepalive_factor: float | Default = DEFAULT
    gaps: Gaps | Default = DEFAULT
    hidden_reasoning: bool | Default = DEFAULT

    def __post_init__(self) -> None:
        of_type("deadlines", self.deadlines, Deadlines)
        of_type("retry", self.retry, RetryPolicy)
        _one_of("mode", self.mode, tuple(mode.value for mode in Mode))
        _one_of("progress", self.progress, ("content", "chunk"))
        _one_of("gaps", self.gaps, ("all", "summary", "off"))
        if self.mode is not DEFAULT:
            object.__setattr__(self, "mode", Mode(self.mode))
        factor: object = self.keepalive_factor
        if factor is not DEFAULT:
            if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 <= factor <= 10:
                raise ValueError(f"keepalive_factor={factor!r} is not allowed: give a number from 1 to 10")
            object.__setattr__(self, "keepalive_factor", float(factor))
        if self.hidden_reasoning is not DEFAULT:
            of_type("hidden_reasoning", self.hidden_reasoning, bool)

    @classmethod
    def of(cls, **settings: Any) -> Policy:
        """Build a policy from flat names: those of Deadlines (``_timeout`` may follow), RetryPolicy and Policy itself.

        Raises ValueError naming a field that does not exist or a value that is not allowed.
        """
        known = {item.name for item in fields(cls)} | _DEADLINE_NAMES | _RETRY_NAMES
        for name in [f"{name}_timeout" for name in _DEADLINE_NAMES if f"{name}_timeout" in settings]:
            short = name.removesuffix("_timeout")
            if short in settings:
                raise ValueError(f"{name}={settings[name]!r} is not allowed: {short} is set already")
            settings[short] = settings.pop(name)
        for name, value in settings.items():
            if name not in known:
                raise ValueError(
                    f"{name}={value!r} is not a policy setting: choose from {', '.join(sorted(known))}"
                )
        deadlines = {name: settings.pop(name) for name in _DEADLINE_NAMES & settings.keys()}
        retry = {name: settings.pop(name) for name in _RETRY_NAMES & settings.keys()}
        built = cls(**settings)
        if deadlines:
            built = replace(built, deadlines=replace(built.deadlines, **deadlines))
        if retry:
            built = replace(built, retry=replace(built.retry, **retry))
        return built

    def worst_case(
        self, *, model: str | None = None, max_retries: int | None = None, stream: bool = True
    ) -> WorstCase:
        """Return the longest waits this policy lets a caller of ``model`` meet, its own pauses not counted.

        What is left at ``DEFAULT`` is taken from the built-in; environment and rules are not asked. ``max_retries`` is
        the client's own, which the policy's never exceeds; None leaves it to the policy. Raises ValueError when it is
        negative.
        """
        # Later, because merging builds on this module.
        from stallwatch.resolution import Layers, resolve

        resolved = resolve(Layers(), model=model, base_url=None, calls=[self], stream=stream)
        return resolved.worst_case(max_retries=max_retries)


_DEADLINE_NAMES = {item.name for item in fields(Deadlines)}
_RETRY_NAMES = {item.name for item in fields(RetryPolicy)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A policy for some models or routes: shell patterns, matched without regard to case.

    ``model`` is matched against the request's model, ``base_url`` against the client's base URL without its
    credentials and query; a slash at the end makes no difference. A rule without either matches everything. Among
    matching rules the later one wins, field by field. Raises ValueError naming field and value.
    """

    name: str
    policy: Policy
    model: str | None = None
    base_url: str | None = None

    def __post_init__(self) -> None:
        of_type("policy", self.policy, Policy)
        for field_name in ("name", "model", "base_url"):
            value: object = getattr(self, field_name)
            optional = field_name != "name" and value is None
            if not optional and not (isinstance(value, str) and value.strip()):
                raise ValueError(f"{field_name}={value!r} is not allowed: give a text that is not empty")

    def matches(self, model: str | None, base_url: str | None) -> bool:
        """Tell whether the rule covers a request."""
        return _covers(self.model, model) and _covers(_bare(self.base_url), _bare(base_url))


def _bare(url: str | None) -> str | None:
    return None if url is None else url.rstrip("/")


def _covers(pattern: str | None, value: str | None) -> bool:
    if pattern is None:
        return True
    if value is None:
        return False
    value, pattern = value.lower(), pattern.lower()
    # An address such as http://[::1]:8080 is a pattern with a character class, but must match itself.
    return value == pattern or fnmatch.fnmatchcase(value, pattern)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not DEFAULT and value not in allowed:
        raise ValueError(f"{name}={value!r} is not allowed: choose from {', '.join(allowed)}")


def of_type(name: str, value: object, kind: type) -> None:
    """Raise ValueError, naming the field, unless ``value`` is a ``kind``."""
    if not isinstance(value, kind):
        wanted = "True or False" if kind is bool else f"a {kind.__name__}"
        raise ValueError(f"{name}={value!r} is not allowed: give {wanted}")
