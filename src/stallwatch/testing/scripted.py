"""Streams for unit tests without sockets: items, pauses on a fake clock, and errors, in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, Self, TypeVar

from stallwatch.testing.chat_wire import ChatForm, CompletionForm
from stallwatch.testing.clock import FakeClock
from stallwatch.testing.expansion import expand
from stallwatch.testing.responses_wire import ResponsesForm
from stallwatch.testing.steps import Comment, Event, Raw, Step, Wait
from stallwatch.testing.wire import AnswerContext, comment, sse

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait of so many seconds before the next item."""

    seconds: float


class ScriptedStream(Generic[T]):
    """An iterator, sync and async, over the given items.

    A `Pause` advances the clock and yields nothing; an exception is raised in its place. ``reads`` counts the
    items asked for, ``closed`` tells whether anyone closed the stream; reading on after that ends the
    iteration.
    """

    def __init__(self, *script: T | Pause | BaseException, clock: FakeClock | None = None) -> None:
        self.clock = FakeClock() if clock is None else clock
        self.reads = 0
        self.closed = False
        self._script = iter(script)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        self.reads += 1
        if not self.closed:
            for item in self._script:
                if isinstance(item, Pause):
                    self.clock.advance(item.seconds)
                elif isinstance(item, BaseException):
                    raise item
                else:
                    return item
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return self.__next__()
        except StopIteration:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Note that the stream was closed."""
        self.closed = True

    async def aclose(self) -> None:
        """Note that the stream was closed."""
        self.closed = True


def sse_events(
    *script: Step, api: Literal["chat", "completions", "responses"] = "chat", model: str = "scripted"
) -> Iterator[bytes | Pause]:
    """Yield the body the gateway would stream for these steps: one event each, waits as `Pause`.

    Raises `ValueError` for a step about the connection, such as ``Reset``: there is none here.
    """
    context = AnswerContext(model=model, answer_id="scripted")
    form = {"chat": ChatForm, "completions": CompletionForm, "responses": ResponsesForm}[api](context)
    for step in script:
        for single in expand(step):
            match single:
                case Wait():
                    yield Pause(single.seconds)
                case Comment():
                    yield comment(single.text)
                case Raw():
                    yield single.data
                case Event():
                    yield sse(dict(single.data), event=single.event)
                case _:
                    yield from (frame.data for frame in form.frames(single))
