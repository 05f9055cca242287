"""The fault gateway's scenarios for people: a table on a terminal, aligned text into a pipe or without rich."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from stallwatch.cli.extras import importable
from stallwatch.testing.scenario_grammar import Parameter, Scenario

__all__ = ["plain", "show"]


def show(scenarios: Iterable[Scenario]) -> None:
    """Print all scenarios with their parameters."""
    if sys.stdout.isatty() and importable("rich"):
        _show_table(scenarios)
    else:
        print("\n".join(plain(scenarios)))


def plain(scenarios: Iterable[Scenario]) -> Iterator[str]:
    """Yield the lines: a scenario with what it does, and each parameter below it as it is written, with its default."""
    rows = list(scenarios)
    names = max(len(scenario.name) for scenario in rows)
    written = max(len(_written(parameter)) for scenario in rows for parameter in scenario.parameters)
    for scenario in rows:
        yield f"{scenario.name:<{names}}  {scenario.summary}"
        for parameter in scenario.parameters:
            yield f"{'':<{names}}    {_written(parameter):<{written}}  {_meaning(parameter)}"


def _show_table(scenarios: Iterable[Scenario]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("scenario", no_wrap=True)
    table.add_column("what it does", ratio=2)
    table.add_column("parameters, with their defaults", ratio=3)
    for scenario in scenarios:
        parameters = Text("\n").join(
            Text(_written(parameter), style="bold").append(f"  {_meaning(parameter)}", style="not bold dim")
            for parameter in scenario.parameters
        )
        table.add_row(Text(scenario.name, style="bold"), Text(scenario.summary), parameters)
    Console().print(table)


def _written(parameter: Parameter) -> str:
    return f"{parameter.name}={parameter.default or '...'}"


def _meaning(parameter: Parameter) -> str:
    return f"{parameter.meaning} ({', '.join(parameter.choices)})" if parameter.choices else parameter.meaning
