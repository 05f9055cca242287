"""Scenario names and their parameters: ``stall-after:tokens=5,gap=0.05``.

A model name is one scenario, or several joined by ``>``: one per attempt, the last for all further attempts
(``silent>healthy``). The parameter ``id`` is accepted everywhere and means nothing; it gives a test its own
model name and so its own count of attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stallwatch.testing.calls import BadCall
from stallwatch.testing.steps import Step

Steps = Sequence[Step]
ParameterKind = Literal["seconds", "count", "status", "text", "choice"]

_ALLOWED: Mapping[ParameterKind, str] = {
    "seconds": "seconds as a number >= 0, or 'forever'",
    "count": "a whole number >= 0",
    "status": "a whole number from 200 to 599",
    "text": "any text without ',' and '>'",
    "choice": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One setting of a scenario, with its default written as a user would write it."""

    name: str
    kind: ParameterKind
    default: str
    meaning: str
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self.choices) if self.kind == "choice" else _ALLOWED[self.kind]

    def accepts(self, value: str) -> bool:
        match self.kind:
            case "choice":
                return value in self.choices
            case "text":
                return True
            case "seconds":
                return value == "forever" or _is_seconds(value)
            case "count":
                return value.isascii() and value.isdigit()
            case "status":
                return value.isascii() and value.isdigit() and 200 <= int(value) <= 599


def _is_seconds(value: str) -> bool:
    try:
        seconds = float(value)
    except ValueError:
        return False
    return 0 <= seconds < float("inf")


class Values:
    """The parameters of one scenario as given, read by type."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str:
        return self._given[name]

    def optional_text(self, name: str) -> str | None:
        return self._given[name] or None

    def count(self, name: str) -> int:
        return int(self._given[name])

    def seconds(self, name: str) -> float:
        """Return a finite number of seconds; ``forever`` becomes a year."""
        value = self._given[name]
        return 365 * 86400.0 if value == "forever" else float(value)

    def duration(self, name: str) -> float | None:
        """Return seconds, or ``None`` for ``forever``."""
        value = self._given[name]
        return None if value == "forever" else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A named misbehaviour and the function that writes its script: one list of steps per attempt."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    write: Callable[[Values], Sequence[Steps]]

    def attempts(self, given: Mapping[str, str]) -> tuple[tuple[Step, ...], ...]:
        """Return the script; raise `BadCall` for a parameter this scenario does not have or take."""
        values = {parameter.name: parameter.default for parameter in self.parameters}
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, value in given.items():
            if name == "id":
                continue
            if name not in known:
                allowed = ", ".join([*known, "id"])
                raise _bad(f"parameter {name!r} of scenario {self.name!r} is not known; allowed: {allowed}")
            if not known[name].accepts(value):
                raise _bad(
                    f"parameter {name!r} of scenario {self.name!r}: {value!r} is not allowed; "
                    f"allowed: {known[name].allowed}"
                )
            values[name] = value
        try:
            return tuple(tuple(steps) for steps in self.write(Values(values)))
        except ValueError as problem:
            raise _bad(f"scenario {self.name!r}: {problem}") from None


def _bad(message: str) -> BadCall:
    return BadCall(400, f"model: {message}", param="model", code="bad_scenario_parameter")


def parse_model(model: str, scenarios: Mapping[str, Scenario]) -> tuple[tuple[Step, ...], ...]:
    """Return the script a model name asks for, one tuple of steps per attempt.

    Raises `BadCall`: 404 for an unknown scenario, 400 for a bad parameter.
    """
    parts = [part.strip() for part in model.split(">")]
    attempts: list[tuple[Step, ...]] = []
    for part in parts:
        name, _, settings = part.partition(":")
        if name not in scenarios:
            raise BadCall(
                404,
                f"model: {name!r} is not a scenario of this gateway; allowed: {', '.join(scenarios)}",
                param="model",
                code="model_not_found",
            )
        attempts += scenarios[name].attempts(_settings(settings, name))
    return tuple(attempts)


def _settings(text: str, scenario: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in filter(None, (pair.strip() for pair in text.split(","))):
        name, equals, value = pair.partition("=")
        if not equals:
            raise _bad(f"{pair!r} after scenario {scenario!r} is not allowed; allowed: name=value,name=value")
        given[name.strip()] = value.strip()
    return given
