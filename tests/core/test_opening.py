"""The beginning of an event stream: what passes, what is held back, and that no byte is lost."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.core.opening import LONGEST, Opening


def fed(pieces: Sequence[bytes]) -> tuple[Opening, list[bytes]]:
    """Feed an opening piece by piece; return it with what passed of each piece."""
    opening, passed = Opening(), []
    for piece in pieces:
        if opening.over:
            # The driver asks no more once it is over.
            passed.append(piece)
        else:
            passed.append(opening.take(piece))
    return opening, passed


ENDS = (b"\n", b"\r\n", b"\r")

TABLE = [
    # what came, what passed of it, the event
    (b"", b"", None),
    (b"data: x", b"", None),
    (b"data: x\n", b"", None),
    (b"data: x\n\n", b"data: x\n\n", b"x"),
    (b"data: x\r\n\r\n", b"data: x\r\n\r\n", b"x"),
    (b"data:x\n\n", b"data:x\n\n", b"x"),
    (b"data:  x\n\n", b"data:  x\n\n", b" x"),
    (b"data\n\n", b"data\n\n", b""),
    (b"data: x\ndata: y\n\n", b"data: x\ndata: y\n\n", b"x\ny"),
    (b"event: error\ndata: x\n\n", b"event: error\ndata: x\n\n", b"x"),
    (b"id: 1\nretry: 5\n\n", b"id: 1\nretry: 5\n\n", b""),
    (b"database: x\n\n", b"database: x\n\n", b""),
    # Comments and blank lines pass by themselves.
    (b": ping\n", b": ping\n", None),
    (b": ping", b"", None),
    (b": ping\n\n", b": ping\n\n", None),
    (b"\n\n\n", b"\n\n\n", None),
    (b": a\n: b\n: c", b": a\n: b\n", None),
    (b":\n", b":\n", None),
    (b": a\ndata: x\n", b": a\n", None),
    # A comment inside an event is part of it, and is no data.
    (b"data: x\n: a\n", b"", None),
    (b"data: x\n: a\n\n", b"data: x\n: a\n\n", b"x"),
    (b"event: e\n: data: y\n\n", b"event: e\n: data: y\n\n", b""),
    # What follows the first event passes with it, whole or not.
    (b"data: x\n\ndata: y", b"data: x\n\ndata: y", b"x"),
    (b"data: x\n\n: a", b"data: x\n\n: a", b"x"),
    # A carriage return in last place may be half of an end of line.
    (b": a\r", b"", None),
    (b"data: x\r\r", b"", None),
    (b"data: x\r\rd", b"data: x\r\rd", b"x"),
    (b"data: x\n\r", b"", None),
    (b"data: x\n\r\n", b"data: x\n\r\n", b"x"),
    (b"data: x\r\n\n", b"data: x\r\n\n", b"x"),
]


@pytest.mark.parametrize(("came", "passed", "event"), TABLE)
def test_what_passes_and_what_is_held_back(came: bytes, passed: bytes, event: bytes | None) -> None:
    opening = Opening()
    assert opening.take(came) == passed
    assert opening.event == event
    assert opening.over is (event is not None)
    assert opening.rest() == came[len(passed) :]
    assert opening.rest() == b""


@pytest.mark.parametrize(("came", "event"), [(row[0], row[2]) for row in TABLE])
def test_byte_by_byte_it_comes_to_the_same(came: bytes, event: bytes | None) -> None:
    opening, passed = fed([bytes((byte,)) for byte in came])
    assert opening.event == event
    assert b"".join(passed) + opening.rest() == came


@pytest.mark.timeout(5)
@pytest.mark.parametrize("size", [16_000, 200_000])
@pytest.mark.parametrize("piece", [1_400, 16_000])
def test_a_long_first_event_costs_no_more_than_its_length(size: int, piece: int) -> None:
    """A ``response.created`` repeats instructions and tools; whoever waits for it must not hold up a loop."""
    whole = b"event: response.created\ndata: " + b"x" * size + b"\n\n"
    opening, passed = fed([whole[at : at + piece] for at in range(0, len(whole), piece)])
    assert b"".join(passed) == whole
    assert opening.event == b"x" * size


@pytest.mark.timeout(5)
def test_a_first_event_that_is_too_long_passes_as_it_is() -> None:
    opening = Opening()
    assert opening.take(b"data: " + b"x" * (LONGEST - 6)) == b""
    assert not opening.over
    assert opening.take(b"y") == b"data: " + b"x" * (LONGEST - 6) + b"y"
    assert (opening.over, opening.event) == (True, b"")


@pytest.mark.timeout(5)
def test_a_first_event_of_just_the_longest_length_is_read() -> None:
    opening = Opening()
    whole = b"data: " + b"x" * (LONGEST - 8) + b"\n\n"
    assert len(whole) == LONGEST
    assert b"".join(opening.take(whole[at : at + 65536]) for at in range(0, LONGEST, 65536)) == whole
    assert opening.event == b"x" * (LONGEST - 8)


def test_any_number_of_comments_ends_nothing() -> None:
    opening = Opening()
    for _ in range(2000):
        assert opening.take(b": keepalive\n\n") == b": keepalive\n\n"
    opening.take(b": " + b"x" * 600)
    assert not opening.over
    assert opening.take(b"\ndata: x\n\n").endswith(b"x\ndata: x\n\n")
    assert opening.event == b"x"


# Properties

LINES = st.sampled_from(
    [b"", b":", b": ping", b"data", b"data:", b"data: x", b'data: {"a": 1}', b"event: error", b"id: 1", b"x"]
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from(ENDS)), max_size=8).map(
    lambda lines: b"".join(line + end for line, end in lines)
)
BYTES = st.one_of(
    STREAMS,
    st.lists(st.sampled_from([b"\r", b"\n", b":", b"data: ", b"x", b" "]), max_size=20).map(b"".join),
    st.binary(max_size=40),
)


@st.composite
def split(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Return bytes, and the same bytes in pieces, some of them empty."""
    whole = draw(BYTES)
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    bounds = [0, *cuts, len(whole)]
    return whole, [whole[a:b] for a, b in itertools.pairwise(bounds)]


@given(split())
def test_any_split_of_the_bytes_gives_the_same_event(case: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = case
    one, all_at_once = fed([whole])
    many, passed = fed(pieces)
    assert (many.over, many.event) == (one.over, one.event)
    assert b"".join(passed) == b"".join(all_at_once)
    assert many.rest() == one.rest()


@given(split())
def test_no_byte_is_lost_added_or_moved(case: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = case
    opening, passed = fed(pieces)
    assert b"".join(passed) + opening.rest() == whole


@given(split())
def test_before_the_first_event_only_whole_comment_and_blank_lines_pass(
    case: tuple[bytes, list[bytes]],
) -> None:
    opening = Opening()
    for piece in case[1]:
        passed = opening.take(piece)
        if opening.over:
            return
        assert not passed or passed.endswith((b"\n", b"\r"))
        assert all(not line or line.startswith(b":") for line in re.split(rb"\r\n|\n|\r", passed))


@given(split())
def test_whole_comment_lines_are_not_kept_waiting(case: tuple[bytes, list[bytes]]) -> None:
    """What is held back before the event begins with a line that is neither, or is an unfinished line."""
    opening, _ = fed(case[1])
    if opening.over:
        return
    held = opening.rest()
    first = re.match(rb"([^\r\n]*)(\r\n|\n|\r(?=[^\n]))", held)
    assert first is None or (first[1] and not first[1].startswith(b":"))


@given(STREAMS, STREAMS)
def test_the_first_event_is_the_one_a_plain_reader_finds(before: bytes, after: bytes) -> None:
    whole = before + b"data: mine\n\n" + after
    opening, _ = fed([whole])
    assert opening.event == _first_event(whole)


def _first_event(whole: bytes) -> bytes:
    """Read line by line, as the standard has it."""
    data: list[bytes] | None = None
    for line in re.split(rb"\r\n|\n|\r", whole):
        if line.startswith(b":"):
            continue
        if not line:
            if data is not None:
                return b"\n".join(data)
            continue
        data = [] if data is None else data
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
    raise AssertionError("there is an event")
