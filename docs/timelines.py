"""Deadlines in numbers: stories played to the real clocks of ``core.phases``, and what the code says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from stallwatch.core.chunks import FINISH, HEARTBEAT, PREAMBLE, REASONING, USAGE, VISIBLE, ChunkFacts
from stallwatch.core.phases import Due, Limits, Stall, Tracker
from stallwatch.core.reasoning import HIDDEN_REASONING_MODELS
from stallwatch.core.words import Outcome, Phase
from stallwatch.policy import Deadlines
from stallwatch.resolution import BUILT_IN, HIDDEN_REASONING

DEFAULT = Limits(**{item.name: getattr(BUILT_IN.deadlines, item.name) for item in fields(Deadlines)})

_CLOCKS = {
    "connect": "TCP and TLS of an attempt",
    "first_token": "from the start of the attempt to its first progress; connecting, queue and headers included",
    "thinking": "waiting since the last progress, while only reasoning has been seen",
    "idle": "waiting since the last progress, once visible output has begun",
    "total": "the whole run: the waiting of all its attempts and of the pauses between them",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """What happens at an instant, in words and as the tracker is told."""

    at: float
    text: str
    tell: Callable[[Tracker, float], Any]


def deadlines() -> str:
    """Return the five deadlines with their built-in values."""
    lines = ["| deadline | its clock | default | default for silent thinkers |", "| --- | --- | --- | --- |"]
    for name, clock in _CLOCKS.items():
        usual, patient = (getattr(each, name) for each in (BUILT_IN.deadlines, HIDDEN_REASONING))
        lines.append(f"| `{name}` | {clock} | {usual:g} s | {patient:g} s |")
    return "\n".join(lines)


def healthy() -> str:
    """Return the timeline of a healthy stream under the default deadlines."""
    tracker = Tracker(DEFAULT, 0)
    lines = ["| second | what happens | phase | what would end the wait |", "| --- | --- | --- | --- |"]
    for moment in _HEALTHY:
        moment.tell(tracker, moment.at)
        phase = "over" if tracker.outcome is not None else f"`{tracker.phase}`"
        lines.append(f"| {moment.at:.1f} | {moment.text} | {phase} | {_due_text(tracker)} |")
    return "\n".join(lines)


def silences() -> str:
    """Return how different silences end under the default deadlines."""
    lines = ["| what arrives | phase | the wait ends after | wire verdict |", "| --- | --- | --- | --- |"]
    for text, moments in _silences():
        tracker = Tracker(DEFAULT, 0)
        tracker.on_attempt(0)
        start, stall = _end_of(tracker, moments)
        lines.append(f"| {text} | `{stall.phase}` | {start:g} s | `{stall.wire}` |")
    return "\n".join(lines)


def extension() -> str:
    """Return how far the keepalive extension goes for some limits."""
    lines = [
        "| `first_token` or `thinking` | nothing arrives | bytes arrive, but no progress |",
        "| --- | --- | --- |",
    ]
    limits = (30.0, 120.0, 300.0, 400.0, 900.0)
    return "\n".join(
        [*lines, *(f"| {limit:g} s | {limit:g} s | {DEFAULT.extended(limit):g} s |" for limit in limits)]
    )


def hidden_reasoning_models() -> str:
    """Return the built-in list of models that think in silence."""
    lines = ["| models | pattern |", "| --- | --- |"]
    for pattern, what in HIDDEN_REASONING_MODELS:
        escaped = pattern.replace("|", "\\|")
        lines.append(f"| {what} | `{escaped}` |")
    return "\n".join(lines)


def _chunk(facts: ChunkFacts, finishes: int = 0) -> Callable[[Tracker, float], None]:
    told = (
        facts
        if not finishes
        else ChunkFacts(name=FINISH.name, progress=True, visible=True, finishes=finishes)
    )

    def tell(tracker: Tracker, now: float) -> None:
        tracker.on_bytes(now)
        tracker.on_chunk(told, now)
        tracker.on_wait(now)

    return tell


def _taken(tracker: Tracker, now: float) -> None:
    tracker.on_bytes(now)
    tracker.on_chunk(VISIBLE, now)


def _ended(tracker: Tracker, now: float) -> None:
    tracker.finish(Outcome.COMPLETED, now)


_HEALTHY = (
    Moment(
        0.0,
        "the request is sent, a connection is opened",
        lambda t, now: (t.on_attempt(now), t.on_connecting(now)),
    ),
    Moment(0.1, "the connection stands, TLS included", lambda t, now: t.on_connected(now)),
    Moment(0.4, "headers, and a chunk with nothing but a role", _chunk(PREAMBLE)),
    Moment(30.0, "`: keepalive`, a comment: bytes, but no chunk", lambda t, now: t.on_bytes(now)),
    Moment(45.0, "the first reasoning", _chunk(REASONING)),
    Moment(60.0, "an empty delta: a heartbeat", _chunk(HEARTBEAT)),
    Moment(90.0, "the first word of the answer; the reader takes it and works on it", _taken),
    Moment(140.0, "the reader comes back for more", lambda t, now: t.on_wait(now)),
    Moment(150.0, "more words", _chunk(VISIBLE)),
    Moment(151.0, "the finish reason", _chunk(FINISH, finishes=1)),
    Moment(151.2, "the token counts", _chunk(USAGE)),
    Moment(151.3, "`[DONE]`, the end of the body", _ended),
)


def _due_text(tracker: Tracker) -> str:
    due = tracker.due()
    if due is None:
        return (
            "nothing: the run is over"
            if tracker.outcome is not None
            else "nothing: the reader is not waiting"
        )
    return f"second {due.at:.1f}: {_reason(due)}"


def _reason(due: Due) -> str:
    if due.phase is Phase.DONE:
        return f"{due.allowed:g} s of silence after a whole answer, which ends it quietly"
    if due.phase is Phase.CONNECT:
        return f"`{due.phase}`, {due.allowed:g} s"
    if due.silent_wire:
        return f"`{due.phase}`, {due.allowed:g} s without a byte"
    if due.allowed > due.limit:
        return f"`{due.phase}`, {due.allowed:g} s with bytes but without progress"
    return f"`{due.phase}`, {due.allowed:g} s without progress"


def _silences() -> Iterator[tuple[str, list[tuple[float, Callable[[Tracker, float], Any]]]]]:
    def every(
        step: float, until: float, tell: Callable[[Tracker, float], Any], first: float = 0.0
    ) -> list[Any]:
        count = int((until - first) / step)
        return [(first + step * number, tell) for number in range(1, count + 1)]

    def comment(tracker: Tracker, now: float) -> None:
        tracker.on_bytes(now)

    word = (1.0, _chunk(VISIBLE))
    thought = (1.0, _chunk(REASONING))
    yield "nothing at all", []
    yield "a role, then nothing", [(1.0, _chunk(PREAMBLE))]
    yield "a comment every 10 s, for ever", every(10, 1000, comment)
    yield "an empty chunk every 10 s, for ever", every(10, 1000, _chunk(HEARTBEAT))
    yield "a comment every 10 s for a minute, then nothing", every(10, 60, comment)
    yield "a comment every 10 s for 200 s, then nothing", every(10, 200, comment)
    yield "reasoning, then nothing", [thought]
    yield "reasoning, then a comment every 10 s", [thought, *every(10, 1000, comment, 1.0)]
    yield "a word, then nothing", [word]
    yield "a word, then a comment every 10 s", [word, *every(10, 1000, comment, 1.0)]


def _end_of(
    tracker: Tracker, moments: list[tuple[float, Callable[[Tracker, float], Any]]]
) -> tuple[float, Stall]:
    """Return when the story ends in a stall, counted from the last progress (or the start), and the stall."""
    progress = 0.0
    for at, tell in moments:
        due = tracker.due()
        if due is not None and due.at <= at:
            break
        tell(tracker, at)
        if tracker.silence(at) == 0:
            progress = at
    due = tracker.due()
    assert due is not None
    found = tracker.judge(due.at)
    assert isinstance(found, Stall)
    return due.at - progress, found
