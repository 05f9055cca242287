"""Images, generated or edited: partial images as they come, then the finished one."""

from __future__ import annotations

import base64
from typing import Literal

from stallwatch.testing import steps as do
from stallwatch.testing.ledger import SentKind
from stallwatch.testing.wire import (
    EVENT_STREAM,
    AnswerContext,
    Frame,
    JsonObject,
    TokenCounts,
    UnplayableStep,
    error_event,
    sse,
)

_LOOK: JsonObject = {
    "background": "opaque",
    "output_format": "png",
    "quality": "low",
    "size": "1024x1024",
}


class ImagesForm:
    """Each `Token` is a partial image whose bytes are its text; `Finish` is the image, of all texts together.

    There is no preamble, no heartbeat and no end mark in this form: `Role` and `Done` send nothing.
    """

    media_type = EVENT_STREAM

    def __init__(self, context: AnswerContext, kind: Literal["image_generation", "image_edit"]) -> None:
        self._context = context
        self._kind = kind
        self._counts = TokenCounts()
        self._texts: list[str] = []
        self._error: JsonObject | None = None

    def frames(self, step: do.Step) -> list[Frame]:
        match step:
            case do.Role() | do.Done():
                return []
            case do.Token():
                return [self._partial(step.text)]
            case do.Finish():
                if step.text:
                    self._add(step.text)
                return [self._completed(step.usage)]
            case do.Usage():
                self._counts.stated = step
                return []
            case do.ErrorFrame():
                self._error, frame = error_event(step)
                return [frame]
            case _:
                raise UnplayableStep(f"{type(step).__name__} has no images form")

    def _add(self, text: str) -> None:
        self._counts.text += 1
        self._texts.append(text)

    def _event(self, kind: SentKind, name: str, **fields: object) -> Frame:
        event = f"{self._kind}.{name}"
        return Frame(
            kind, sse({"type": event, **fields, **_LOOK, "created_at": self._context.created}, event=event)
        )

    def _partial(self, text: str) -> Frame:
        index = len(self._texts)
        self._add(text)
        return self._event(SentKind.TOKEN, "partial_image", b64_json=_packed(text), partial_image_index=index)

    def _completed(self, usage: do.Usage | None) -> Frame:
        return self._event(
            SentKind.FINISH, "completed", b64_json=_packed("".join(self._texts)), usage=self._usage(usage)
        )

    def _usage(self, usage: do.Usage | None = None) -> JsonObject:
        prompt, completion, _, _ = self._counts.numbers(usage)
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"image_tokens": 0, "text_tokens": prompt},
            "output_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def whole(self) -> JsonObject:
        if self._error is not None:
            return {"error": self._error}
        image = {"b64_json": _packed("".join(self._texts))}
        return {"created": self._context.created, "data": [image], "usage": self._usage(), **_LOOK}


def _packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
