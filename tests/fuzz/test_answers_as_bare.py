"""Whatever a server answers to a call that is not streamed, and with whichever error, the caller gets what is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.oracle import Answer, Observed, both_ways
from fuzz.profile import examples
from fuzz.shapes import ANSWERS, ANY_JSON, bent, errors, written
from fuzz.surfaces import PLAIN, READINGS, STREAMED, whole
from fuzz.wires import Wire, cuts

# The Assistants API is on its way out.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

KINDS = st.sampled_from(
    [
        b"application/json",
        b"application/problem+json; charset=latin-1",
        b"text/html",
        b"text/event-stream",
        b"\xff",
    ]
)
WAITS = st.sampled_from(
    [b"0", b"-1", b"1e400", b"nan", b"soon", b"Wed, 21 Oct 2015 07:28:00 GMT", b"\xe9", b""]
)
HEADERS = st.tuples(
    KINDS.map(lambda kind: ("content-type", kind)),
    WAITS.map(lambda wait: ("retry-after", wait)),
    WAITS.map(lambda wait: ("retry-after-ms", wait)),
    st.sampled_from([b"true", b"false", b"1"]).map(lambda says: ("x-should-retry", says)),
    st.sampled_from([b"req_1", b"r" * 400, b"\xe9\xff", b""]).map(lambda name: ("x-request-id", name)),
).flatmap(lambda headers: st.lists(st.sampled_from(headers), unique_by=lambda header: header[0]))
GARBAGE = st.binary(max_size=20) | st.sampled_from([b"", b"<html>", b"null", b"[" * 3_000 + b"]" * 3_000])


def answers(surface: str, status: st.SearchStrategy[int]) -> st.SearchStrategy[Answer]:
    texts = st.one_of(st.sampled_from(ANSWERS[surface]).flatmap(bent), errors(), ANY_JSON).map(written)
    pieces = (texts.map(str.encode) | GARBAGE).flatmap(cuts)
    return st.builds(
        lambda pieces, status, headers: Answer(Wire(pieces), status, tuple(headers)), pieces, status, HEADERS
    )


@pytest.mark.parametrize("surface", PLAIN, ids=[surface.name for surface in PLAIN])
@given(data=st.data())
@examples(30)
def test_answers_are_those_of_the_bare_sdk(played: Observed, surface, data) -> None:
    answer = data.draw(answers(surface.name, st.sampled_from([200, 200, 201, 204])))
    for is_async in (False, True):
        bare, guarded = both_ways(played, surface, whole, answer, is_async=is_async)
        assert guarded == bare


@pytest.mark.parametrize("surface", [*PLAIN, *STREAMED], ids=lambda surface: surface.name)
@given(data=st.data())
@examples(10)
def test_errors_are_those_of_the_bare_sdk(played: Observed, surface, data) -> None:
    status = st.sampled_from([400, 401, 404, 408, 409, 422, 429, 500, 503, 529, 599, 600, 302, 100])
    answer = data.draw(answers("chat", status))
    reading = READINGS["to the end"] if "stream" in surface.request else whole
    for is_async in (False, True):
        bare, guarded = both_ways(played, surface, reading, answer, is_async=is_async)
        assert guarded == bare
