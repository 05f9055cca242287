"""The beginning of an event stream: held back until its first event is whole.

As long as nothing of an attempt has reached the decoder above, another attempt can take its place unseen. So bytes of
the first event wait here until the blank line that ends it has come; then everything passes and this is over. Comments
carry nothing and pass at once, by whole lines, so that whoever reads raw lines still sees each when it comes. A first
event larger than ``LONGEST`` passes as it is.
"""

from __future__ import annotations

import re

__all__ = ["LONGEST", "Opening"]

LONGEST = 1 << 20
"""Bytes held back at most: the first event of an answer is small, and no more than this is worth a retry."""

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r(?!\Z))")
"""A line and its end; a carriage return in last place may be half of one."""


class Opening:
    """What was held back, and whether the first event has come."""

    __slots__ = ("_begun", "_data", "_lines", "_tail", "event")

    def __init__(self) -> None:
        self._lines = bytearray()
        """Whole lines of the event that has begun."""
        self._tail = bytearray()
        """The line that is not whole yet."""
        self._data: list[bytes] = []
        self._begun = False
        self.event: bytes | None = None
        """The data of the first event, once it is whole; empty when it has none."""

    @property
    def over(self) -> bool:
        """Whether the first event has passed."""
        return self.event is not None

    def take(self, piece: bytes) -> bytes:
        """Return what may pass now that ``piece`` has come."""
        # A long line in many pieces is not read anew with each.
        if b"\n" not in piece and b"\r" not in piece and not self._tail.endswith(b"\r"):
            self._tail += piece
            passed = b""
        else:
            passed = self._take_lines(bytes(self._tail) + piece)
        if self.event is None and len(self._lines) + len(self._tail) > LONGEST:
            self.event = b""
        return passed if self.event is None else passed + self.rest()

    def _take_lines(self, text: bytes) -> bytes:
        passed = position = 0
        # Not searched for: of a line that is not whole, a search would try every byte as its beginning.
        while (line := _LINE.match(text, position)) is not None:
            content, position = line[1], line.end()
            if not self._begun and (not content or content.startswith(b":")):
                passed = position
            elif not content:
                self.event = b"\n".join(self._data)
                break
            else:
                self._begun = True
                self._data += _data_of(content)
        self._lines += text[passed:position]
        self._tail = bytearray(text[position:])
        return text[:passed]

    def rest(self) -> bytes:
        """Return all that is held back, and hold back nothing more."""
        rest = bytes(self._lines + self._tail)
        self._lines.clear()
        self._tail.clear()
        return rest


def _data_of(line: bytes) -> list[bytes]:
    name, _, value = line.partition(b":")
    return [value.removeprefix(b" ")] if name == b"data" else []
