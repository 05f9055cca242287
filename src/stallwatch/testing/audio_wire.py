"""Audio: speech as plain bytes or as events, and transcriptions.

None of these forms has a preamble, a heartbeat or an end mark: `Role` and `Done` send nothing.
"""

from __future__ import annotations

import base64

from stallwatch.testing import steps as do
from stallwatch.testing.ledger import SentKind
from stallwatch.testing.wire import (
    EVENT_STREAM,
    Frame,
    JsonObject,
    TokenCounts,
    UnplayableStep,
    error_event,
    sse,
)


class _EventsForm:
    """What the forms made of events have in common: pieces, and an event that ends them."""

    media_type = EVENT_STREAM
    name: str

    def __init__(self) -> None:
        self._counts = TokenCounts()
        self._error: JsonObject | None = None

    def frames(self, step: do.Step) -> list[Frame]:
        match step:
            case do.Role() | do.Done():
                return []
            case do.Token():
                return [self._delta(step.text)]
            case do.Finish():
                before = [self._delta(step.text)] if step.text else []
                return [*before, self._done(step.usage)]
            case do.Usage():
                self._counts.stated = step
                return []
            case do.ErrorFrame():
                self._error, frame = error_event(step)
                return [frame]
            case _:
                raise UnplayableStep(f"{type(step).__name__} has no {self.name} form")

    def _delta(self, text: str) -> Frame:
        raise NotImplementedError

    def _done(self, usage: do.Usage | None) -> Frame:
        raise NotImplementedError


class TranscriptForm(_EventsForm):
    """Each `Token` is a piece of the transcript, `Finish` the whole of it."""

    name = "transcription"

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []

    def _delta(self, text: str) -> Frame:
        self._counts.text += 1
        self._texts.append(text)
        return Frame(
            SentKind.TOKEN,
            sse({"type": "transcript.text.delta", "delta": text}, event="transcript.text.delta"),
        )

    def _done(self, usage: do.Usage | None) -> Frame:
        data = {"type": "transcript.text.done", "text": "".join(self._texts), "usage": self._usage(usage)}
        return Frame(SentKind.FINISH, sse(data, event="transcript.text.done"))

    def _usage(self, usage: do.Usage | None = None) -> JsonObject:
        prompt, completion, _, _ = self._counts.numbers(usage)
        return {
            "type": "tokens",
            "input_tokens": prompt,
            "input_token_details": {"audio_tokens": prompt, "text_tokens": 0},
            "output_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def whole(self) -> JsonObject:
        if self._error is not None:
            return {"error": self._error}
        return {"text": "".join(self._texts), "usage": self._usage()}


class SpeechForm:
    """Plain speech: each `Token` is a piece of sound whose bytes are its text; the body is ``audio/mpeg``.

    Sound has no place for an error object or a comment.
    """

    media_type = "audio/mpeg"

    def frames(self, step: do.Step) -> list[Frame]:
        match step:
            case do.Role() | do.Done() | do.Usage():
                return []
            case do.Token():
                return [Frame(SentKind.TOKEN, step.text.encode())]
            case do.Finish():
                return [Frame(SentKind.TOKEN, step.text.encode())] if step.text else []
            case _:
                raise UnplayableStep(f"{type(step).__name__} has no speech form")

    def whole(self) -> JsonObject:
        raise UnplayableStep("speech is never whole")


class SpeechEventsForm(_EventsForm):
    """Speech with ``stream_format="sse"``: each `Token` a piece of sound, `Finish` the event that ends it."""

    name = "speech"

    def _delta(self, text: str) -> Frame:
        self._counts.text += 1
        sound = base64.b64encode(text.encode()).decode()
        return Frame(
            SentKind.TOKEN, sse({"type": "speech.audio.delta", "audio": sound}, event="speech.audio.delta")
        )

    def _done(self, usage: do.Usage | None) -> Frame:
        prompt, completion, _, _ = self._counts.numbers(usage)
        counts = {
            "input_tokens": prompt,
            "output_tokens": completion,
            "total_tokens": prompt + completion,
        }
        return Frame(
            SentKind.FINISH, sse({"type": "speech.audio.done", "usage": counts}, event="speech.audio.done")
        )

    def whole(self) -> JsonObject:
        raise UnplayableStep("speech is never whole")
