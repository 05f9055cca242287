"""The HTML page, from recorded data."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import pytest

from cli.recorded import given_up_at, recorded, scene_record
from stallwatch.cli.demo.page import page
from stallwatch.cli.demo.record import End, EventRecord, Failure, Got, SpanRecord
from stallwatch.cli.demo.scenes import SCENES
from stallwatch.cli.demo.timeline import axis_for, timeline

_VOID = frozenset({"meta", "line", "rect", "circle", "path", "br", "link", "img"})


class Document(HTMLParser):
    """A strict reading: every element is closed by its own name, and attributes and ids are noted."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.tags.append(tag)
        for name, value in attrs:
            assert value is not None, f"<{tag} {name}> has no value"
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action", "srcset", "data"):
                self.addresses.append(value)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _VOID, f"<{tag}/> is closed in its own tag"
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes nothing"
        self.open.pop()


def test_the_page_is_well_formed_and_has_every_scene() -> None:
    text = page(recorded())
    document = Document(text)
    assert text.startswith("<!doctype html>")
    assert len(document.ids) == len(set(document.ids))
    assert [name for name in document.ids if name in {scene.name for scene in SCENES}] == [
        s.name for s in SCENES
    ]
    for scene in SCENES:
        assert f"<h3>{escape(scene.title)}</h3>" in text


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    text = page(recorded())
    document = Document(text)
    assert document.addresses == []
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(document.tags)
    assert "://" not in text
    assert "@import" not in text
    assert set(re.findall(r"url\(([^)]*)\)", text)) == {"#hatch"}


def test_light_and_dark_define_the_same_colours() -> None:
    text = page(recorded())
    light, dark = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    names = [re.findall(r"(--[\w-]+):", block) for block in (light, dark)]
    assert names[0] == names[1]
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= set(names[0])


def test_every_class_that_is_drawn_is_styled() -> None:
    text = page(recorded())
    style, _, body = text.partition("</style>")
    used = {name for value in re.findall(r'class="([^"]*)"', body) for name in value.split()}
    styled = set(re.findall(r"\.([a-z][\w-]*)", style))
    assert used <= styled


def test_the_exact_error_text_is_on_the_page() -> None:
    demo = recorded()
    text = page(demo)
    failures = [record.guarded.failure for record in demo.scenes if record.scene.must_be_cut]
    assert len(failures) == 4
    for failure in failures:
        assert failure is not None
        assert escape(f"{failure.type}: {failure.message}") in text


@pytest.mark.parametrize(
    "nasty", ["</title><script>alert(1)</script>", "\"'><b>&amp;", "$lead ${scenes} $", "\x00\x1b"]
)
def test_whatever_the_programs_say_is_shown_as_text(nasty: str) -> None:
    record = scene_record(SCENES[1])
    bare = replace(record.bare, got=(Got(at=0.1, text=nasty), *record.bare.got))
    guarded = replace(
        record.guarded,
        failure=Failure(type=nasty, message=nasty, code=nasty),
        span=SpanRecord(
            name=nasty,
            status=nasty,
            began=0.0,
            duration=1.0,
            attributes={nasty: nasty},
            events=(EventRecord(name=nasty, at=0.5, attributes={nasty: nasty}),),
        ),
        stderr=nasty,
    )
    record = replace(record, bare=bare, guarded=guarded, differences=(nasty,))
    text = page(replace(recorded(), scenes=(record,), versions={nasty: nasty}, notes=(nasty,)))
    document = Document(text)
    assert "script" not in document.tags
    assert "<script>" not in text
    assert escape(nasty) in text


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_timeline_has_a_mark_for_everything_that_happened(scene: object) -> None:
    record = next(scene_record(each) for each in SCENES if each is scene)
    drawing = timeline(record, axis_for([record]))
    for run in (record.bare, record.guarded):
        for exchange in run.exchanges:
            for piece in exchange.sent:
                assert piece.kind in ("done", "end") or f"server sent at {piece.at:.3f} s" in drawing
            assert f"the server saw the close at {exchange.closed_at:.3f} s" in drawing
        for number, got in enumerate(run.got, start=1):
            assert f"program got chunk {number} at {got.at:.3f} s" in drawing
    assert drawing.count('class="cross"') == (1 if record.scene.must_be_cut else 0)
    completed = [run for run in (record.bare, record.guarded) if run.end is End.COMPLETED]
    assert drawing.count('class="check"') == len(completed)
    assert drawing.count('class="asked"') == (2 if record.scene.must_recover else 0)
    assert drawing.count('class="pause"') == 2 * len(record.scene.pause_after)
    assert ('class="deadline"' in drawing) == (
        not record.scene.is_healthy or record.scene.name == "silent-thinker"
    )
    assert ('class="comment"' in drawing) == (record.scene.name == "keepalive-comments")


TOLD = {
    "retry": ("2: retry", "stalled after 1.21 s: retry in 0.44 s", "deadline: 1.2 s since the attempt began"),
    "fallback": ("2: fallback", "stalled after 1.21 s: fallback to backup", "deadline: 1.2 s"),
    "hedge": ("2: hedge", "lost the race after 0.41 s", "won the race", "hedge: due after 0.4 s"),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_timeline_tells_what_became_of_each_attempt(name: str) -> None:
    record = next(record for record in recorded().scenes if record.scene.name == name)
    drawing = timeline(record, axis_for([record]))
    for words in ("attempt 1", *TOLD[name]):
        assert words in drawing
    closed = given_up_at(record.scene) + 0.002
    assert f"server saw the close, {closed:.2f} s" in drawing


def test_the_page_lists_the_attempts_and_the_events_of_the_span() -> None:
    text = page(recorded())
    assert "<b>2: fallback</b> completed in 0.67 s; server saw the close: 1.88 s" in text
    assert "<b>text read</b> t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10 t11</li>" in text
    assert "stallwatch.fallback: fallback.to=backup" in text
    assert text.count('<ul class="attempts">') == 3


def test_attempts_that_no_span_tells_of_are_still_drawn() -> None:
    record = next(record for record in recorded().scenes if record.scene.name == "retry")
    drawing = timeline(replace(record, guarded=replace(record.guarded, span=None)), axis_for([record]))
    assert ">attempt 2</text>" in drawing
    assert "stalled" not in drawing


def test_all_marks_lie_on_the_axis() -> None:
    demo = recorded()
    axis = axis_for(demo.scenes)
    assert axis.x(0) < axis.x(1) < axis.x(axis.end) <= 1080
    assert axis.x(-1) == axis.x(0)
    assert axis.x(99) == axis.x(axis.end)


def test_without_a_span_and_without_metrics_the_page_says_so() -> None:
    demo = recorded()
    record = replace(demo.scenes[0], guarded=replace(demo.scenes[0].guarded, span=None, spans=0))
    text = page(replace(demo, scenes=(record,), metrics=()))
    Document(text)
    assert "No metrics arrived." in text
    assert "No span came for Silent after 200" in text
