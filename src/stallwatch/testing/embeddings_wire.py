"""Embeddings: one small vector per input, as numbers or as base64."""

from __future__ import annotations

import base64
import struct

from stallwatch.testing import steps as do
from stallwatch.testing.wire import EVENT_STREAM, AnswerContext, Frame, JsonObject, error_object

_VECTOR = (0.25, -0.5, 0.125)


class EmbeddingsForm:
    """Plays the timing of a script and answers with vectors whatever its content was."""

    media_type = EVENT_STREAM

    def __init__(self, context: AnswerContext) -> None:
        self._context = context
        self._error: JsonObject | None = None

    def frames(self, step: do.Step) -> list[Frame]:
        if isinstance(step, do.ErrorFrame):
            self._error = error_object(step)
        return []

    def whole(self) -> JsonObject:
        if self._error is not None:
            return {"error": self._error}
        inputs = self._context.body.get("input")
        count = len(inputs) if isinstance(inputs, list) and inputs and not isinstance(inputs[0], int) else 1
        vector: object = list(_VECTOR)
        if self._context.body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{len(_VECTOR)}f", *_VECTOR)).decode()
        return {
            "object": "list",
            "model": self._context.model,
            "data": [{"object": "embedding", "index": index, "embedding": vector} for index in range(count)],
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
