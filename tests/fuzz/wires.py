"""Bodies of event streams, from the well-formed to garbage, and the pieces in which the network brings them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from fuzz.shapes import ANY_JSON, TEMPLATES, bent, errors, written

__all__ = ["Wire", "bodies", "cuts", "wires"]

_ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])
_GARBAGE = st.binary(max_size=24) | st.sampled_from(
    [
        b"\xef\xbb\xbf",
        b"\xc3",
        b"\xf0\x9f\x98",
        b"\xed\xa0\x80",
        b"\x00",
        b"\r",
        b"\n",
        b"\r\n\r",
        b"data",
        b"data:",
        b":",
        b": ping\n\n",
        b"data: [DONE]",
        b"[DONE]\n\n",
        b"data:[DONE]\r\n\r\n",
        b"id: 1\nretry: x\nretry: 10\n",
        b"event: error\n\n",
        b"event: ping\ndata\n\n",
        b"id: \x00\n\n",
        b"data: {nope\n\n",
        b"data: " + b"x" * 70_000 + b"\n\n",
        b": " + b"c" * 70_000 + b"\n",
        b'data: {"error":' + b"[" * 3_000 + b"]" * 3_000 + b"}\n\n",
    ]
)


@dataclass(frozen=True, slots=True)
class Wire:
    """A body in pieces, and the piece that is lost with its connection, if one is."""

    pieces: tuple[bytes, ...]
    lost_at: int | None = None


@st.composite
def _event(draw: st.DrawFn, surface: str) -> bytes:
    name, template = draw(st.sampled_from(TEMPLATES[surface]))
    text = written(draw(bent(template))).encode()
    if draw(st.booleans()) and b"," in text:
        # As several lines of data, which the reader joins.
        head, _, tail = text.partition(b",")
        text = head + b",\ndata: " + tail
    end = draw(_ENDS)
    named = b"" if name is None else b"event: " + name.encode() + end
    space = b"" if draw(st.integers(0, 7)) == 7 else b" "
    return (named + b"data:" + space + text + b"\n\n").replace(b"\n", end)


def bodies(surface: str) -> st.SearchStrategy[bytes]:
    """Bodies of one surface's streams."""
    event = _event(surface)
    part = st.one_of(
        event,
        event,
        event,
        _GARBAGE,
        st.sampled_from([b": ping\n\n", b"data: [DONE]\n\n", b"\n", b"event: x\n"]),
        errors().map(lambda error: b"data: " + written(error).encode() + b"\n\n"),
        ANY_JSON.map(lambda value: b"data: " + written(value).encode() + b"\n\n"),
    )
    end = st.sampled_from([b"data: [DONE]\n\n", b"data: [DONE]\n\n", b"data: [DONE]", b"", b": bye\n\n"])
    return st.tuples(st.lists(part, max_size=6).map(b"".join), end).map(b"".join)


@st.composite
def cuts(draw: st.DrawFn, body: bytes) -> tuple[bytes, ...]:
    """The body, cut into pieces at random places, or at every byte."""
    how = draw(st.sampled_from(["whole", "cut", "cut", "bytes"]))
    if how == "bytes" and len(body) < 400:
        return tuple(body[at : at + 1] for at in range(len(body)))
    places = sorted(draw(st.lists(st.integers(0, len(body)), max_size=6))) if how == "cut" else []
    return tuple(body[begin:end] for begin, end in zip([0, *places], [*places, len(body)], strict=True))


@st.composite
def wires(draw: st.DrawFn, surface: str) -> Wire:
    """What a reader of one surface gets from the network."""
    pieces = draw(bodies(surface).flatmap(cuts))
    lost = draw(st.sampled_from([False, False, True]))
    return Wire(pieces, draw(st.integers(0, len(pieces))) if lost else None)
