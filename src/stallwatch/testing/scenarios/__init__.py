"""The built-in scenarios, and the one table that documents them."""

from __future__ import annotations

from stallwatch.testing.scenario_grammar import Parameter, Scenario
from stallwatch.testing.scenarios import broken, healthy, silent
from stallwatch.testing.scenarios.registry import REGISTERED

__all__ = ["SCENARIOS", "scenario_table"]

_ORDER = (healthy.__name__, silent.__name__, broken.__name__)

SCENARIOS: dict[str, Scenario] = dict(
    sorted(REGISTERED.items(), key=lambda entry: _ORDER.index(entry[1].write.__module__))
)


def scenario_table() -> str:
    """Return all scenarios as a Markdown table."""
    rows = ["| scenario | what it does | parameters (default) |", "| --- | --- | --- |"]
    for scenario in SCENARIOS.values():
        parameters = "; ".join(
            f"`{parameter.name}` ({parameter.default or 'not set'}): {_meaning(parameter)}"
            for parameter in scenario.parameters
        )
        rows.append(f"| `{scenario.name}` | {scenario.summary} | {parameters} |")
    return "\n".join(rows)


def _meaning(parameter: Parameter) -> str:
    return f"{parameter.meaning} ({', '.join(parameter.choices)})" if parameter.choices else parameter.meaning
