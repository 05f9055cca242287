"""From layers of policy to the limits of one call.

Layers, most specific first: call (``with stallwatch.policy``), client (``stallwatch.guard``), rule (by model and
route), code (``instrument(policy=...)``), environment, built-in. Fields merge one by one; ``ResolvedPolicy.rule`` names
the most specific layer that set anything, and is what the span shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar, cast

from stallwatch.core.phases import Limits
from stallwatch.core.reasoning import asks_for_hidden_reasoning
from stallwatch.core.words import Mode
from stallwatch.core.worst_case import UNBOUNDED, WorstCase, worst_case
from stallwatch.policy import DEFAULT, Deadlines, Gaps, Policy, RetryPolicy, Rule

_T = TypeVar("_T", Policy, Deadlines, RetryPolicy)

__all__ = ["BUILT_IN", "HIDDEN_REASONING", "Layers", "ResolvedPolicy", "Resolver", "resolve"]

BUILT_IN = Policy(
    deadlines=Deadlines(connect=5, first_token=120, thinking=120, idle=120, total=3600),
    retry=RetryPolicy(max_retries=2),
    mode=Mode.ENFORCE,
    progress="content",
    keepalive_factor=2.0,
    gaps="all",
)
HIDDEN_REASONING = Deadlines(connect=5, first_token=300, thinking=300, idle=120, total=3600)
"""The built-in deadlines of requests that may think in silence."""

BUILT_IN_NAME = "built-in"

BACKSTOP_FLOOR = 300.0
BACKSTOP_MARGIN = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The process-wide layers: what the environment, the code and the rules say."""

    environment: Policy = field(default_factory=Policy)
    code: Policy = field(default_factory=Policy)
    rules: Sequence[Rule] = ()
    backstop: float | None = None
    """Seconds without activity after which a span is ended; ``None`` derives it from the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPolicy:
    """The policy of one call, with nothing left open."""

    limits: Limits
    mode: Mode
    gaps: Gaps
    max_retries: int
    retries_explicit: bool
    """Whether anything but the built-in set ``max_retries``."""
    hidden_reasoning: bool
    rule: str
    backstop: float
    layers: tuple[tuple[str, Policy], ...] = ()
    """The layers that set anything, by name, the least specific first."""

    def decided_by(self, setting: str) -> str:
        """Return the name of the layer that decided a setting (a flat name of ``Policy.of``), or ``built-in``."""
        for name, policy in reversed(self.layers):
            for part in (policy.deadlines, policy.retry, policy):
                if getattr(part, setting, DEFAULT) is not DEFAULT:
                    return name
        return BUILT_IN_NAME

    def worst_case(self, *, max_retries: int | None = None) -> WorstCase:
        """Return the longest waits the caller can meet, its own pauses not counted.

        A mode that aborts nothing bounds none of them. ``max_retries`` is the client's own, which a policy that sets a
        number can only lower; where none does, the SDK makes as many as that. None leaves it to the policy. Raises
        ValueError when it is negative.
        """
        if max_retries is not None and max_retries < 0:
            raise ValueError(f"max_retries={max_retries!r} is not allowed: give the client's own, 0 or more")
        if self.mode is not Mode.ENFORCE:
            return UNBOUNDED
        return worst_case(self.limits, self.retries_of(max_retries))

    def retries_of(self, max_retries: int | None) -> int:
        """Return how many retries a call may see on a client whose own number is this; None leaves it to the policy."""
        if max_retries is None:
            return self.max_retries
        return min(self.max_retries, max_retries) if self.retries_explicit else max_retries


def resolve(
    layers: Layers,
    *,
    model: str | None,
    base_url: str | None,
    effort: str | None = None,
    client: Policy | None = None,
    calls: Iterable[Policy | tuple[str, Policy]] = (),
    stream: bool = True,
) -> ResolvedPolicy:
    """Merge the layers for one call; a call that is not streamed gets ``connect`` and ``total`` only."""
    named = [("environment", layers.environment), ("code", layers.code)]
    named += [(f"rule:{rule.name}", rule.policy) for rule in layers.rules if rule.matches(model, base_url)]
    if client is not None:
        named.append(("client", client))
    named += [each if isinstance(each, tuple) else ("call", each) for each in calls]

    named = [(name, policy) for name, policy in named if policy != _NOTHING]
    merged = Policy()
    for _, policy in named:
        merged = _merge(merged, policy)
    hidden = merged.hidden_reasoning
    if hidden is DEFAULT:
        hidden = asks_for_hidden_reasoning(model, effort)
    explicit = merged.retry.max_retries is not DEFAULT
    built_in = replace(BUILT_IN, deadlines=HIDDEN_REASONING) if hidden else BUILT_IN
    full = _merge(built_in, merged)
    return _finished(full, named, hidden=hidden, explicit=explicit, backstop=layers.backstop, stream=stream)


_KEPT = 256
"""Answers remembered; a program that mints policies or models without end begins anew at so many."""


class Resolver:
    """``resolve`` for the layers of a process. It remembers what it has answered, because most calls are alike."""

    __slots__ = ("_answers", "layers")

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self._answers: dict[object, tuple[ResolvedPolicy, object]] = {}

    def resolve(
        self,
        *,
        model: str | None,
        base_url: str | None,
        effort: str | None,
        client: Policy | None,
        calls: tuple[tuple[str, Policy], ...],
        stream: bool,
    ) -> ResolvedPolicy:
        """Return what ``resolve`` does."""
        # By identity: comparing policies field by field would cost what is to be saved.
        key = (model, base_url, effort, stream, id(client), *[(name, id(policy)) for name, policy in calls])
        found = self._answers.get(key)
        if found is not None:
            return found[0]
        resolved = resolve(
            self.layers,
            model=model,
            base_url=base_url,
            effort=effort,
            client=client,
            calls=calls,
            stream=stream,
        )
        if len(self._answers) >= _KEPT:
            self._answers.clear()
        # The policies are kept with it, so that no other object can come by their identity.
        self._answers[key] = (resolved, (client, calls))
        return resolved


def _finished(
    full: Policy,
    named: Sequence[tuple[str, Policy]],
    *,
    hidden: bool,
    explicit: bool,
    backstop: float | None,
    stream: bool,
) -> ResolvedPolicy:
    limits = Limits(
        connect=_seconds(full.deadlines.connect),
        first_token=_seconds(full.deadlines.first_token) if stream else None,
        thinking=_seconds(full.deadlines.thinking) if stream else None,
        idle=_seconds(full.deadlines.idle) if stream else None,
        total=_seconds(full.deadlines.total),
        keepalive_factor=cast(float, full.keepalive_factor),
        any_chunk_is_progress=full.progress == "chunk",
    )
    longest = limits.longest_silence()
    derived = max(BACKSTOP_FLOOR, longest + BACKSTOP_MARGIN)
    return ResolvedPolicy(
        limits=limits,
        mode=cast(Mode, full.mode),
        gaps=cast(Gaps, full.gaps),
        max_retries=cast(int, full.retry.max_retries),
        retries_explicit=explicit,
        hidden_reasoning=hidden,
        rule=named[-1][0] if named else ("hidden_reasoning" if hidden else "default"),
        backstop=derived if backstop is None else max(backstop, longest + BACKSTOP_MARGIN),
        layers=tuple(named),
    )


_NOTHING = Policy()


def _seconds(value: object) -> float | None:
    # Deadlines normalises on construction, and the built-in layer leaves no DEFAULT.
    return cast("float | None", value)


def _merge(under: Policy, over: Policy) -> Policy:
    merged = _overlay(under, over, skip=("deadlines", "retry"))
    return replace(
        merged,
        deadlines=_overlay(under.deadlines, over.deadlines),
        retry=_overlay(under.retry, over.retry),
    )


def _overlay(under: _T, over: _T, skip: Sequence[str] = ()) -> _T:
    names = [item.name for item in fields(over) if item.name not in skip]
    changes = {name: getattr(over, name) for name in names if getattr(over, name) is not DEFAULT}
    return replace(under, **changes) if changes else under
