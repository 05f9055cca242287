"""How a scenario enters the table, and the parameters many of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stallwatch.testing import steps as do
from stallwatch.testing.scenario_grammar import Parameter, Scenario, Steps, Values

REGISTERED: dict[str, Scenario] = {}

Writer = Callable[[Values], Sequence[Steps]]


def scenario(name: str, summary: str, *parameters: Parameter) -> Callable[[Writer], Writer]:
    """Enter the decorated function into the table: it writes the script, one list of steps per attempt."""

    def register(write: Writer) -> Writer:
        REGISTERED[name] = Scenario(name=name, summary=summary, parameters=parameters, write=write)
        return write

    return register


def seconds(name: str, default: str, meaning: str) -> Parameter:
    return Parameter(name=name, kind="seconds", default=default, meaning=meaning)


def number(name: str, default: str, meaning: str) -> Parameter:
    return Parameter(name=name, kind="count", default=default, meaning=meaning)


def choice(name: str, meaning: str, *choices: str) -> Parameter:
    """Return a parameter with these allowed values, the first of them the default."""
    return Parameter(name=name, kind="choice", default=choices[0], meaning=meaning, choices=choices)


def words(name: str, default: str, meaning: str) -> Parameter:
    return Parameter(name=name, kind="text", default=default, meaning=meaning)


GAP = seconds("gap", "0.01", "between tokens")
FIRST = seconds("first", "0", "before the first token")


def token_count(default: str, meaning: str = "tokens sent") -> Parameter:
    return number("tokens", default, meaning)


def begin(values: Values, *, silence: float = 0.0) -> list[do.Step]:
    """Return the role and, after so much silence, the tokens."""
    tokens = do.Tokens(values.count("tokens"), values.seconds("gap"))
    return [do.Role(), do.Wait(silence), tokens] if silence else [do.Role(), tokens]


def end() -> list[do.Step]:
    """Return what ends a whole answer, usage included if the request asks for it."""
    return [do.Finish(), do.Usage(only_if_asked=True), do.Done()]
