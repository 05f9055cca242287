"""The steps a scripted answer is made of: plain data, one small frozen class each.

A script is a list of steps, played from top to bottom on one request. A step says what the server does, in
words that hold for every API form: the same ``Token("Hel")`` is a chat chunk, a legacy completion chunk or a
Responses delta, as the request asks. Steps never run anything themselves; `stallwatch.testing.exchange` plays
them.

Two rules worth knowing:

- The response head goes out with the first step that sends a byte, or with an explicit `Headers`. ``Wait``
  and ``Silence`` send nothing: ``[Silence()]`` never answers, ``[Headers(), Silence()]`` answers 200 and goes
  quiet.
- When a script runs out without an explicit end, the body ends cleanly, as with `Eof`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stallwatch.testing.ledger import SentKind

Echo = Literal["none", "prompt", "key"]
BesideReasoning = Literal["absent", "null", "empty"]
ReasoningCounter = Literal["none", "rising", "unchanged"]
ErrorStyle = Literal["plain", "choices", "failed"]
EmptyKind = Literal["no_choices", "empty", "content", "null"]
EMPTY_KINDS: tuple[EmptyKind, ...] = ("no_choices", "empty", "content", "null")


def _not_negative(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if value is not None and not (isinstance(value, int | float) and value >= 0):
            raise ValueError(
                f"{type(owner).__name__}.{name}: {value!r} is not allowed; allowed: a number >= 0"
            )


def _positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if not (isinstance(value, int | float) and value > 0):
            raise ValueError(
                f"{type(owner).__name__}.{name}: {value!r} is not allowed; allowed: a number > 0"
            )


@dataclass(frozen=True, slots=True)
class Step:
    """One thing the gateway does while it answers."""


# --- the head -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Status(Step):
    """Answer with this status and a whole body, then stop.

    Without a body, codes of 400 and more carry an OpenAI-style JSON error. ``echo`` puts the caller's last
    prompt or its API key into the message, as careless providers do. ``retry_after`` is sent as it stands;
    ``"date+2"`` becomes the HTTP date two seconds after the answer.
    """

    code: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | str | Mapping[str, object] | None = None
    retry_after: str | None = field(default=None, kw_only=True)
    retry_after_ms: str | None = field(default=None, kw_only=True)
    echo: Echo = field(default="none", kw_only=True)

    def __post_init__(self) -> None:
        if not 200 <= self.code <= 599:
            raise ValueError(f"Status.code: {self.code!r} is not allowed; allowed: 200 to 599")
        value = self.retry_after or ""
        if value.startswith("date+") and not value.removeprefix("date+").replace(".", "", 1).isdigit():
            raise ValueError(
                f"Status.retry_after: {value!r} is not allowed; allowed: date+SECONDS, or another text"
            )


@dataclass(frozen=True, slots=True)
class Headers(Step):
    """Send the 200 head now, with these extra headers; they replace headers of the same name."""

    extra: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class CloseDelimited(Step):
    """Give the body no length and no chunks, so that only the end of the connection ends it.

    Must come before anything is sent.
    """


@dataclass(frozen=True, slots=True)
class RefuseHeaders(Step):
    """Read the request and never reply; the socket stays open until the client goes or the gateway stops."""


@dataclass(frozen=True, slots=True)
class DripHeaders(Step):
    """Send the 200 head in pieces of ``size`` bytes, one every so many seconds; the script then goes on."""

    every: float = 0.05
    size: int = 1

    def __post_init__(self) -> None:
        _positive(self, "every", "size")


# --- content ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage(Step):
    """Token counts: as a step a chunk of their own, as an argument of another step part of that chunk.

    Counts left at ``None`` are what the script has sent so far. With ``only_if_asked`` the chunk is sent only
    if the request set ``stream_options.include_usage``. In Responses form the counts go into
    ``response.completed``.
    """

    prompt_tokens: int = field(default=11, kw_only=True)
    completion_tokens: int | None = field(default=None, kw_only=True)
    reasoning_tokens: int | None = field(default=None, kw_only=True)
    cached_tokens: int = field(default=0, kw_only=True)
    only_if_asked: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _not_negative(self, "prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens")


@dataclass(frozen=True, slots=True)
class Role(Step):
    """The preamble: the assistant role with empty content, or ``response.created`` and ``response.in_progress``."""

    choice: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class Token(Step):
    """One piece of visible text."""

    text: str
    usage: Usage | None = field(default=None, kw_only=True)
    choice: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class Tokens(Step):
    """``count`` tokens ("t0 ", "t1 ", ...), ``gap`` seconds apart; ``count=None`` never ends."""

    count: int | None
    gap: float = 0.0

    def __post_init__(self) -> None:
        _not_negative(self, "count", "gap")


@dataclass(frozen=True, slots=True)
class Reasoning(Step):
    """One piece of reasoning text, in the vendor's spelling.

    In chat form ``field`` names the delta's key (``reasoning_details`` gets a list) and ``content`` says what
    stands beside it: nothing, ``null`` or an empty string. In Responses form ``field="reasoning_text"`` sends
    raw reasoning, everything else a reasoning summary.
    """

    text: str
    field: str = "reasoning_content"
    content: BesideReasoning = "absent"


@dataclass(frozen=True, slots=True)
class Refusal(Step):
    """One piece of refusal text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall(Step):
    """A tool call: its id and name first, then each fragment of the arguments, ``gap`` seconds apart."""

    name: str
    fragments: Sequence[str]
    gap: float = 0.0

    def __post_init__(self) -> None:
        _not_negative(self, "gap")


@dataclass(frozen=True, slots=True)
class Delta(Step):
    """A chat chunk whose delta is exactly this; for what has no step of its own. Chat form only."""

    fields: Mapping[str, object]
    kind: SentKind = SentKind.TOKEN


@dataclass(frozen=True, slots=True)
class PromptFilter(Step):
    """Azure's first chunk: no choices, empty id and model, ``prompt_filter_results``. Only chat form has it."""


@dataclass(frozen=True, slots=True)
class Finish(Step):
    """The finish reason, if wanted fused with a last text or with usage.

    In Responses form this closes the output items; the terminal event comes with `Done`.
    """

    reason: str = "stop"
    text: str = field(default="", kw_only=True)
    usage: Usage | None = field(default=None, kw_only=True)
    choice: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class Done(Step):
    """``data: [DONE]``; in Responses form ``response.completed`` or ``response.incomplete``."""


@dataclass(frozen=True, slots=True)
class ErrorFrame(Step):
    """An error object inside the 200 stream.

    ``style="choices"`` puts it beside an empty ``choices`` list; ``style="failed"`` is ``response.failed``
    (Responses form). In chat form ``failed`` reads as ``plain``.
    """

    message: str = "upstream model failed"
    code: str | int | None = "server_error"
    type: str = "server_error"
    style: ErrorStyle = "plain"


# --- bytes without content ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comment(Step):
    """One SSE comment line; a blank line if the request does not stream."""

    text: str = "keepalive"


@dataclass(frozen=True, slots=True)
class Comments(Step):
    """A comment every so many seconds for so long; ``for_seconds=None`` never ends."""

    every: float
    for_seconds: float | None = None
    text: str = "keepalive"

    def __post_init__(self) -> None:
        _positive(self, "every")
        _not_negative(self, "for_seconds")


@dataclass(frozen=True, slots=True)
class EmptyDelta(Step):
    """A well-formed chunk that carries nothing: a heartbeat.

    ``no_choices`` is ``choices: []``, ``empty`` is ``delta: {}``, ``content`` is ``delta: {content: ""}``,
    ``null`` is ``delta: {content: null}``. In Responses form ``no_choices`` and ``null`` repeat
    ``response.in_progress``, the others are ``keepalive`` events.
    """

    kind: EmptyKind = "no_choices"
    usage: Usage | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in EMPTY_KINDS:
            raise ValueError(
                f"EmptyDelta.kind: {self.kind!r} is not allowed; allowed: {', '.join(EMPTY_KINDS)}"
            )


@dataclass(frozen=True, slots=True)
class Heartbeats(Step):
    """Empty chunks every so many seconds for so long, the kinds in turn; ``for_seconds=None`` never ends.

    ``reasoning_tokens`` adds a usage snapshot to each: with a counter that rises by 8, or one that stays.
    """

    every: float
    for_seconds: float | None = None
    kinds: Sequence[EmptyKind] = ("no_choices", "empty", "content")
    reasoning_tokens: ReasoningCounter = "none"

    def __post_init__(self) -> None:
        _positive(self, "every")
        _not_negative(self, "for_seconds")


@dataclass(frozen=True, slots=True)
class Raw(Step):
    """These bytes as one piece of the body, whatever they are."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Event(Step):
    """One SSE event with this JSON as data; ``event`` is its name line, if any."""

    data: Mapping[str, object]
    event: str | None = None
    kind: SentKind = SentKind.RAW


# --- time and the end ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wait(Step):
    """Send nothing for this long."""

    seconds: float

    def __post_init__(self) -> None:
        _not_negative(self, "seconds")


@dataclass(frozen=True, slots=True)
class Silence(Step):
    """Send nothing more and hold the socket open until the client goes or the gateway stops."""


@dataclass(frozen=True, slots=True)
class Eof(Step):
    """End the body cleanly."""


@dataclass(frozen=True, slots=True)
class CloseAbruptly(Step):
    """Close the connection (FIN) without the final chunk marker."""


@dataclass(frozen=True, slots=True)
class Reset(Step):
    """Reset the connection (RST)."""
