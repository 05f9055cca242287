"""What the environment, a policy file and keywords say, as layers of policy.

Rules
-----
* This module alone reads ``os.environ``.
* What comes from outside the program must not break it: a bad variable, file or field is one logged warning that says
  what is allowed, and counts as not set. What a programmer writes is told to the programmer: a bad keyword raises.
* A policy file is data: an ordinary file of at most 1 MB in TOML. Nothing in it, nor in a variable, names code.
* In the file, ``[default]`` stands under the environment variables and each ``[[rule]]`` above them. A rule with
  anything wrong in it is skipped whole, because half a rule may do the opposite of what was meant.

What can be set is listed in ``known_settings``; how the layers merge for a call is in ``resolution``.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from stallwatch.known_settings import (
    BY_KEYWORD,
    BY_VARIABLE,
    PREFIX,
    SETTINGS,
    Setting,
    nearest,
    settings_table,
    understood,
)
from stallwatch.logs import log
from stallwatch.policy import Policy, Rule
from stallwatch.resolution import Layers

__all__ = ["SETTINGS", "Setting", "load", "settings_table"]

_IN_DEFAULT = {name: item for name, item in BY_KEYWORD.items() if item.keyword != "policy_file"}
_IN_RULE = {name: item for name, item in _IN_DEFAULT.items() if item.keyword != "span_backstop"}
_OF_RULE = ("name", "model", "base_url")


def load(
    environ: Mapping[str, str] | None = None,
    *,
    policy: Policy | None = None,
    rules: Iterable[Rule] = (),
    policy_file: str | os.PathLike[str] | None = None,
    span_backstop: object = None,
    refused: Callable[[str], None] | None = None,
    **options: object,
) -> Layers:
    """Return the process-wide layers of policy.

    ``options`` are the flat names of ``Policy.of``, deadlines also with ``_timeout`` at the end (``idle_timeout=30``);
    they win over ``policy``. ``policy_file`` and ``span_backstop`` (a duration) win over their variables, ``rules``
    over the rules of the file. Raises ValueError naming a bad keyword, its value and what is allowed; what is wrong
    with the environment or the file is left out, and logged, or told to ``refused``.
    """
    refuse = _leave_out if refused is None else refused
    own_rules = tuple(rules)
    _check(policy, own_rules)
    extra = {"policy_file": policy_file, "span_backstop": span_backstop}
    given = options | {name: value for name, value in extra.items() if value is not None}
    keywords = understood(given, BY_KEYWORD, _raise)
    variables = _from_environment(os.environ if environ is None else environ, refuse)
    path = variables.pop("policy_file", None)
    path = keywords.pop("policy_file", path)
    default, file_rules = ({}, ()) if path is None else _from_file(path, refuse)
    outside = default | variables
    backstop = outside.pop("span_backstop", None)
    backstop = keywords.pop("span_backstop", backstop)
    base = {} if policy is None else {item.name: getattr(policy, item.name) for item in fields(policy)}
    return Layers(
        environment=Policy.of(**outside),
        code=Policy.of(**base | keywords),
        rules=(*file_rules, *own_rules),
        backstop=backstop,
    )


def _check(policy: object, rules: tuple[object, ...]) -> None:
    if policy is not None and not isinstance(policy, Policy):
        raise ValueError(f"policy={policy!r} is not allowed: give a Policy")
    for rule in rules:
        if not isinstance(rule, Rule):
            raise ValueError(f"rules={rule!r} is not allowed: give Rule objects")


def _from_environment(environ: Mapping[str, str], refuse: Callable[[str], None]) -> dict[str, Any]:
    ours = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value.strip()}
    return understood(ours, BY_VARIABLE, refuse)


def _from_file(path: Path, refuse: Callable[[str], None]) -> tuple[dict[str, Any], tuple[Rule, ...]]:
    # Most programs have no such file.
    import tomllib

    try:
        document = tomllib.loads(_text_of(path))
    # RuntimeError: no home directory, or tables nested too deep.
    except (OSError, RuntimeError, ValueError) as error:
        refuse(f"policy file '{path}' is not allowed: {error}; give {BY_KEYWORD['policy_file'].allowed}")
        return {}, ()

    def tell(table: str, problem: str) -> None:
        refuse(f"policy file '{path}': {table}: {problem}")

    default = document.pop("default", {})
    if not isinstance(default, dict):
        tell("default", "not a table; write [default]")
        default = {}
    tables = document.pop("rule", [])
    if not isinstance(tables, list):
        tell("rule", "not a list of tables; write [[rule]]")
        tables = []
    for name in document:
        tell(name, f"no table of a policy file, {nearest(name, ('default', 'rule'))}")
    rules = [_rule(number, table, tell) for number, table in enumerate(cast("list[object]", tables), 1)]
    values = understood(
        cast("dict[str, object]", default), _IN_DEFAULT, lambda problem: tell("[default]", problem)
    )
    return values, tuple(rule for rule in rules if rule is not None)


_LONGEST = 1 << 20
"""Bytes of a policy file; what is longer was not meant."""


def _at_once(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _text_of(path: Path) -> str:
    """Return what an ordinary file says; a pipe or device would block the program, or never end."""
    with io.BufferedReader(io.FileIO(path.expanduser(), opener=_at_once)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("no ordinary file")
        content = file.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST} bytes")
    return content.decode()


def _rule(number: int, table: object, tell: Callable[[str, str], None]) -> Rule | None:
    if not isinstance(table, dict):
        tell(f"rule {number}", "not a table; write [[rule]]")
        return None
    entries = cast("dict[str, object]", table)
    patterns: dict[str, Any] = {name: entries.pop(name) for name in _OF_RULE if name in entries}
    # Not named for its base URL, which may hold a password.
    patterns.setdefault("name", patterns.get("model", str(number)))
    problems: list[str] = []
    policy = Policy.of(**understood(entries, _IN_RULE, problems.append, also=_OF_RULE))
    try:
        rule = Rule(policy=policy, **patterns)
    except ValueError as error:
        problems.append(str(error))
        rule = None
    if problems:
        tell(
            f"[[rule]] number {number} ({patterns['name']!r})", "; ".join(problems) + "; the rule is skipped"
        )
        return None
    return rule


def _raise(problem: str) -> None:
    raise ValueError(problem)


def _leave_out(problem: str) -> None:
    log.warning("stallwatch: %s (left out, as if it was not set)", problem)
