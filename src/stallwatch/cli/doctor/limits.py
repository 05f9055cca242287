"""What is set, what of it was understood, and which limits a call gets of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stallwatch.cli.doctor.report import Finding, Section, note, ok, problem, warning
from stallwatch.cli.doctor.secrets import origin
from stallwatch.cli.policy import Line, bounds, explain
from stallwatch.core.words import Mode
from stallwatch.known_settings import BY_VARIABLE, PREFIX, understood
from stallwatch.policy import Policy
from stallwatch.resolution import Layers, ResolvedPolicy, resolve
from stallwatch.settings import load

__all__ = ["Asked", "limits", "resolved_for", "settings"]

SDK_RETRIES = 2
"""What a client makes by itself when it is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The call that is asked about. ``base_url`` is matched against rules, and told as its origin only."""

    model: str | None = None
    base_url: str | None = None
    effort: str | None = None
    client_policy: Policy | None = None
    max_retries: int = SDK_RETRIES


def settings(environ: Mapping[str, str]) -> Section:
    """Look at the variables and the policy file."""
    findings = [*_variables(environ), *_file(environ)]
    if not findings:
        findings = [ok("environment", "STALLWATCH_* variables", "none set", "the built-in limits apply")]
    return Section(key="settings", title="What is set", findings=tuple(findings))


def _variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    file = environ.get("STALLWATCH_POLICY_FILE", "").strip()
    unless = ", unless the policy file sets it" if file else ""
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        value = environ[variable]
        key = f"variable.{variable}"
        if not value.strip():
            yield note(key, variable, "empty", "counts as not set", value=value)
            continue
        refused: list[str] = []
        understood({variable: value}, BY_VARIABLE, refused.append)
        setting = BY_VARIABLE.get(variable)
        if not refused:
            yield ok(key, variable, value, value=value, understood=True)
        elif setting is None:
            _, _, question = refused[0].partition(", ")
            yield problem(
                key,
                variable,
                value,
                f"correct or unset {variable}: {question}",
                "no such setting, so nothing heeds it",
                value=value,
                understood=False,
            )
        else:
            yield problem(
                key,
                variable,
                value,
                f"set it to {setting.allowed}",
                f"not understood; the default applies: {setting.default}" + unless,
                value=value,
                understood=False,
            )


def _file(environ: Mapping[str, str]) -> Iterator[Finding]:
    variable = "STALLWATCH_POLICY_FILE"
    path = environ.get(variable, "").strip()
    if not path:
        return
    refused: list[str] = []
    layers = load({variable: path}, refused=refused.append)
    rules = [rule.name for rule in layers.rules]
    told = f"{len(rules)} rule{'' if len(rules) == 1 else 's'}"
    if layers.environment != Policy():
        told += " and a [default]"
    data = {"path": path, "rules": rules, "refused": refused}
    if not refused:
        yield ok("policy-file", "policy file", path, told, **data)
    for number, text in enumerate(refused, 1):
        # The file's name stands in front already.
        _, _, reason = text.partition("': ")
        yield problem(
            "policy-file" if number == 1 else f"policy-file.{number}",
            "policy file",
            path,
            "correct it; what is wrong in it is left out",
            f"{reason or text} (in force of it: {told})",
            **data,
        )


def resolved_for(layers: Layers | None, environ: Mapping[str, str], asked: Asked) -> ResolvedPolicy:
    """Return the policy of the call; ``layers`` are those in force in this process, if it is instrumented."""
    if layers is None:
        layers = load(environ, refused=lambda _: None)
    return resolve(
        layers,
        model=asked.model,
        base_url=asked.base_url,
        effort=asked.effort,
        client=asked.client_policy,
    )


def limits(resolved: ResolvedPolicy, environ: Mapping[str, str], asked: Asked) -> Section:
    """Tell the limits of the call, and what decided each."""
    model = asked.model or "any model"
    where = "" if asked.base_url is None else f" at {origin(asked.base_url)}"
    thinks = "thinks in silence" if resolved.hidden_reasoning else "shows its progress"
    lead = f"{model}{where}: {thinks}; on its spans stallwatch.policy.rule is {resolved.rule!r}."
    variables = load(environ, policy_file=os.devnull, refused=lambda _: None).environment
    lines = {line.name: line for line in explain(resolved, variables)}
    data: dict[str, Any] = {
        "model": asked.model,
        "base_url": None if asked.base_url is None else origin(asked.base_url),
        "rule": resolved.rule,
        "hidden_reasoning": resolved.hidden_reasoning,
        "layers": [name for name, _ in resolved.layers],
    }
    findings = [
        ok("decided-by", "layers with a say", _layers_of(resolved), "the later beats the earlier", **data),
        _mode(resolved, lines["mode"]),
        *(
            ok(
                line.name,
                line.name,
                line.value,
                line.decided_by,
                value=line.value,
                decided_by=line.decided_by,
            )
            for line in lines.values()
            if line.name != "mode"
        ),
        *_waits(resolved, asked),
    ]
    return Section(
        key="policy", title="Which limits a call gets, and why", findings=tuple(findings), lead=lead
    )


def _layers_of(resolved: ResolvedPolicy) -> str:
    return " < ".join(["built-in", *(name for name, _ in resolved.layers)])


def _mode(resolved: ResolvedPolicy, line: Line) -> Finding:
    data = {"value": line.value, "decided_by": line.decided_by}
    if resolved.mode is Mode.ENFORCE:
        return ok("mode", "mode", line.value, line.decided_by, **data)
    if resolved.mode is Mode.OBSERVE:
        advice = "set the mode to enforce once what it would abort is what it should"
        detail = f"{line.decided_by}: stalls are only reported, nothing is aborted"
    else:
        advice, detail = "set the mode to enforce, or to observe", f"{line.decided_by}: nothing is watched"
    return warning("mode", "mode", line.value, advice, detail, **data)


def _waits(resolved: ResolvedPolicy, asked: Asked) -> Iterator[Finding]:
    worst = resolved.worst_case(max_retries=asked.max_retries)
    keys = {"first_token": worst.first_token, "silence": worst.silence, "total": worst.total}
    for (name, seconds), bound in zip(
        keys.items(), bounds(resolved, max_retries=asked.max_retries), strict=True
    ):
        key, title, data = f"longest.{name}", "longest wait", {"seconds": seconds}
        if seconds is not None or resolved.mode is not Mode.ENFORCE:
            yield ok(key, title, bound.wait, bound.meaning, **data)
        else:
            yield warning(
                key,
                title,
                bound.wait,
                "set a total (STALLWATCH_TOTAL_TIMEOUT) that is not 0",
                f"{bound.meaning}: nothing bounds it",
                **data,
            )
