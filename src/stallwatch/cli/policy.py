"""``stallwatch policy``: the limits a call would get here, and which layer decided each."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from stallwatch.cli.extras import importable
from stallwatch.cli.help_text import HelpLayout
from stallwatch.policy import DEFAULT, Deadlines, Policy
from stallwatch.resolution import BUILT_IN_NAME, ResolvedPolicy, resolve
from stallwatch.sdk.requests import bare_url
from stallwatch.settings import load

__all__ = ["Bound", "Line", "add_effort", "add_parser", "bounds", "explain", "run"]

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The efforts of the OpenAI API, and ``max``, which other services have."""

_ROOM_FOR_MEANINGS = 120
_MEANINGS = {
    "connect": "TCP and TLS of an attempt",
    "first_token": "attempt start to the first progress",
    "thinking": "waiting since the last progress, before visible output",
    "idle": "waiting since the last progress, once there is visible output",
    "total": "the whole run",
    "mode": "what the watchdog may do",
    "progress": "what restarts a clock",
    "keepalive_factor": "how far signs of life may stretch a limit",
    "max_retries": "times a run may be tried again, within the client's own",
    "gaps": "which gaps between chunks are recorded",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``policy`` command; its ``run`` default is the function to call with the parsed arguments."""
    parser = subparsers.add_parser(
        "policy",
        help="show the limits a call would get, and what decided each",
        description="Show the limits a call to a model would get in this environment (STALLWATCH_* variables and the "
        "policy file), and which layer decided each. What a program sets in code is not seen here.",
        formatter_class=HelpLayout,
    )
    parser.add_argument("--model", required=True, help="the request's model, e.g. gpt-5")
    parser.add_argument("--base-url", help="the client's base URL, for rules that match it")
    add_effort(parser)
    parser.set_defaults(run=run)


def add_effort(parser: argparse.ArgumentParser) -> None:
    """Add the option for the reasoning effort."""
    parser.add_argument(
        "--effort",
        choices=_EFFORTS,
        metavar="EFFORT",
        help=f"the request's reasoning effort: {', '.join(_EFFORTS)}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One setting of a call: its value, and the layer that decided it."""

    name: str
    value: str
    decided_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The longest a caller can wait for something."""

    wait: str
    meaning: str


def run(options: argparse.Namespace) -> int:
    """Print the resolved policy."""
    base_url = None if options.base_url is None else bare_url(options.base_url)
    resolved = resolve(load(), model=options.model, base_url=base_url, effort=options.effort)
    lines = list(explain(resolved, _variables()))
    if importable("rich"):
        _show_table(options.model, resolved, lines)
    else:
        print("\n".join(_plain(options.model, resolved, lines)))
    return 0


def _headline(resolved: ResolvedPolicy) -> str:
    thinks = "thinks in silence" if resolved.hidden_reasoning else "shows its progress"
    return f" ({thinks}); on the span: {resolved.rule}"


def _closing_lines(resolved: ResolvedPolicy) -> Iterator[str]:
    yield ""
    yield "The longest a caller can wait, its own pauses not counted:"
    for bound in bounds(resolved):
        yield f"{bound.wait:>8}  {bound.meaning}"
    yield ""
    yield f"A span without any activity is ended after {resolved.backstop:g} s; that aborts nothing."


def _plain(model: str, resolved: ResolvedPolicy, lines: Sequence[Line]) -> Iterator[str]:
    """Yield the text for where rich is not there."""
    yield model + _headline(resolved)
    yield ""
    rows = [("setting", "value", "decided by"), *((line.name, line.value, line.decided_by) for line in lines)]
    names, values = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, value, decided_by in rows:
        yield f"{name:<{names}}  {value:>{values}}  {decided_by}"
    yield from _closing_lines(resolved)


def _show_table(model: str, resolved: ResolvedPolicy, lines: Sequence[Line]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("setting", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("decided by", no_wrap=True)
    with_meanings = console.width >= _ROOM_FOR_MEANINGS
    if with_meanings:
        table.add_column("meaning", style="dim")
    for line in lines:
        style = "dim" if line.decided_by.startswith("built-in") else "bold"
        meaning = [_MEANINGS[line.name]] if with_meanings else []
        table.add_row(line.name, line.value, Text(line.decided_by, style=style), *meaning)
    console.print(Text(model, style="bold").append(f"{_headline(resolved)}\n", "not bold"))
    console.print(table)
    for text in _closing_lines(resolved):
        console.print(text)


def explain(resolved: ResolvedPolicy, variables: Policy) -> Iterator[Line]:
    """Yield every setting of a resolved policy with the layer that decided it.

    ``variables`` is what the environment variables alone say: the ``[default]`` of a policy file is in one layer with
    them, and is told apart as ``file``.
    """
    limits = resolved.limits
    for item in fields(Deadlines):
        yield Line(
            name=item.name,
            value=_limit(getattr(limits, item.name)),
            decided_by=_decided(resolved, variables, item.name),
        )
    rest = {
        "mode": str(resolved.mode),
        "progress": "chunk" if limits.any_chunk_is_progress else "content",
        "keepalive_factor": f"{limits.keepalive_factor:g}",
        "max_retries": str(resolved.max_retries),
        "gaps": resolved.gaps,
    }
    for name, value in rest.items():
        yield Line(name=name, value=value, decided_by=_decided(resolved, variables, name))


def bounds(resolved: ResolvedPolicy, *, max_retries: int | None = None) -> Iterator[Bound]:
    """Yield how long a caller can be kept waiting at the very most; ``max_retries`` is the client's own."""
    worst = resolved.worst_case(max_retries=max_retries)
    retries = resolved.retries_of(max_retries)
    tries = f"{retries + 1} attempts and the pauses between them" if retries else "a single attempt"
    for wait, meaning in (
        (worst.first_token, f"until progress or an error, {tries}"),
        (worst.silence, "between two chunks with progress"),
        (worst.total, "in all"),
    ):
        yield Bound(wait="for ever" if wait is None else f"{wait:g} s", meaning=meaning)


def _limit(seconds: float | None) -> str:
    return "off" if seconds is None else f"{seconds:g} s"


def _variables() -> Policy:
    # What is wrong with them has been told when they were read with the file.
    return load(policy_file=os.devnull, refused=lambda _: None).environment


def _decided(resolved: ResolvedPolicy, variables: Policy, setting: str) -> str:
    decider = resolved.decided_by(setting)
    if decider == "environment" and not _is_set(variables, setting):
        return "file"
    patient = resolved.hidden_reasoning and setting in ("first_token", "thinking")
    return f"{decider} (hidden reasoning)" if patient and decider == BUILT_IN_NAME else decider


def _is_set(policy: Policy, setting: str) -> bool:
    parts = (policy.deadlines, policy.retry, policy)
    return any(getattr(part, setting, DEFAULT) is not DEFAULT for part in parts)
