"""A demonstration as it might have been recorded, without running one: every scene, at its right values."""

from __future__ import annotations

from dataclasses import replace

from stallwatch.catalogue import Attr, Event
from stallwatch.cli.demo.record import (
    Demonstration,
    End,
    EventRecord,
    Exchange,
    Failure,
    Got,
    Pause,
    RunRecord,
    SceneRecord,
    Sent,
    Series,
    SpanRecord,
)
from stallwatch.cli.demo.scenes import SCENES, SETTINGS, STILL_WAITING, Scene
from stallwatch.core.words import AttemptRole, Phase, Wire
from stallwatch.errors import StreamInactivityTimeoutError


def recorded() -> Demonstration:
    return Demonstration(
        scenes=tuple(scene_record(scene) for scene in SCENES),
        versions={
            "python": "3.11.9",
            "stallwatch": "0.1.0",
            "openai": "3.57.0",
            "opentelemetry-sdk": "1.45.2",
        },
        seconds=9.1,
        settings={**SETTINGS, "STALLWATCH_POLICY_FILE": "policy.toml"},
        metrics=(
            Series(
                name="stallwatch.streams", unit="{stream}", attributes={Attr.OUTCOME: "stalled"}, value=4.0
            ),
            Series(
                name="stallwatch.stall.wait",
                unit="s",
                attributes={Attr.STALL_PHASE: "idle"},
                value=2.4,
                count=2,
            ),
        ),
    )


def scene_record(scene: Scene) -> SceneRecord:
    """Return a scene in which everything went as it should."""
    sent, got, pauses = _story(scene, STILL_WAITING)
    whole = max([got[-1].at if got else 0.0, *(pause.at + pause.seconds for pause in pauses)]) + 0.004
    end_at = whole if scene.is_healthy else STILL_WAITING
    bare = RunRecord(
        guarded=False,
        started=1_700_000_000.0,
        end=End.COMPLETED if scene.is_healthy else End.STILL_WAITING,
        ended_at=end_at,
        got=got,
        pauses=pauses,
        exchanges=(
            Exchange(at=0.01, model=scene.model, sent=sent, closed_at=end_at + 0.003, closed_how="fin"),
        ),
    )
    guarded = replace(bare, guarded=True)
    if scene.must_be_cut:
        guarded = _cut(scene, guarded)
    elif scene.must_recover:
        guarded = _recovered(scene, guarded)
    return SceneRecord(scene=scene, bare=bare, guarded=replace(guarded, spans=1, span=_span(scene, guarded)))


def _cut(scene: Scene, run: RunRecord) -> RunRecord:
    at = run.last_progress() + scene.allowed + 0.006
    error = StreamInactivityTimeoutError(
        phase=scene.phase or Phase.IDLE,
        limit=scene.limit,
        waited=scene.allowed + 0.003,
        wire=scene.wire,
        chunks_received=sum(got.at < at for got in run.got),
    )
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return replace(
        run,
        end=End.TIMEOUT,
        ended_at=at,
        got=tuple(got for got in run.got if got.at < at),
        exchanges=(_closed(run.exchanges[0], at),),
        failure=Failure(type=name, message=str(error), code="ETIMEDOUT"),
    )


def _closed(exchange: Exchange, at: float) -> Exchange:
    return replace(exchange, sent=tuple(sent for sent in exchange.sent if sent.at < at), closed_at=at + 0.002)


BACK_OFF = 0.44


def given_up_at(scene: Scene) -> float:
    """Return when the first attempt of a call that recovers was over."""
    return (scene.allowed if scene.hedge is None else scene.hedge) + 0.006


def _recovered(scene: Scene, run: RunRecord) -> RunRecord:
    over = given_up_at(scene)
    begin = over + (BACK_OFF if scene.answered_by is AttemptRole.RETRY else 0.001)
    if scene.hedge is not None:
        begin = scene.hedge + 0.002
    tokens = [begin + 0.01 + 0.06 * number for number in range(12)]
    pieces = [(begin, "headers"), (begin, "role"), *((at, "token") for at in tokens), (tokens[-1], "finish")]
    answer = Exchange(
        at=begin,
        model=scene.backup or scene.model,
        sent=tuple(Sent(at=at, kind=kind) for at, kind in pieces),
        closed_at=tokens[-1] + 0.005,
        closed_how="fin",
    )
    return replace(
        run,
        end=End.COMPLETED,
        ended_at=tokens[-1] + 0.004,
        got=(
            Got(at=begin + 0.001, text=""),
            *(Got(at=at + 0.001, text=f"t{number} ") for number, at in enumerate(tokens)),
            Got(at=tokens[-1] + 0.002, text="", finish="stop"),
        ),
        exchanges=(_closed(run.exchanges[0], over), answer),
    )


def _events(scene: Scene, run: RunRecord) -> tuple[EventRecord, ...]:
    """Return the events of a call that recovers."""
    over = given_up_at(scene)
    first: dict[str, object] = {
        Attr.ATTEMPT_NUMBER: 1,
        Attr.ATTEMPT_ROLE: "first",
        Attr.ATTEMPT_DURATION: over,
    }
    second: dict[str, object] = {
        Attr.ATTEMPT_NUMBER: 2,
        Attr.ATTEMPT_ROLE: str(scene.answered_by),
        Attr.ATTEMPT_DURATION: run.ended_at - run.exchanges[1].at,
        Attr.OUTCOME: "completed",
    }
    told: list[EventRecord] = []
    if scene.hedge is not None:
        first |= {Attr.OUTCOME: "cancelled", Attr.ATTEMPT_RACE: "loser", Attr.RETRY_DECISION: "cancelled"}
        second[Attr.ATTEMPT_RACE] = "winner"
        told.append(EventRecord(name=Event.HEDGE, at=over, attributes={Attr.HEDGE_RESULT: "won"}))
    else:
        decision = str(scene.answered_by)
        delay = BACK_OFF if decision == "retry" else 0.0
        first |= {Attr.OUTCOME: "stalled", Attr.RETRY_DECISION: decision, Attr.RETRY_DELAY: delay}
    told.append(EventRecord(name=Event.ATTEMPT, at=over, attributes=first))
    if scene.answered_by is AttemptRole.FALLBACK:
        told.append(EventRecord(name=Event.FALLBACK, at=over, attributes={Attr.FALLBACK_TO: "backup"}))
    return (*told, EventRecord(name=Event.ATTEMPT, at=run.ended_at, attributes=second))


def _span(scene: Scene, run: RunRecord) -> SpanRecord:
    first = next((got.at for got in run.got if got.text), None)
    attributes = {
        Attr.OUTCOME: "stalled" if scene.must_be_cut else "completed",
        Attr.STALLED: scene.must_be_cut,
        Attr.CHUNKS: len(run.got),
        Attr.ATTEMPTS: len(run.exchanges),
        Attr.TIME_TO_FIRST_TOKEN: first,
        Attr.GAP_MAX: 0.06 if scene.is_healthy else scene.allowed,
    }
    if scene.phase is not None and scene.wire is not None:
        attributes |= {Attr.STALL_PHASE: str(scene.phase), Attr.STALL_WIRE: str(scene.wire)}
    attributes = {str(name): value for name, value in attributes.items() if value is not None}
    return SpanRecord(
        name=f"chat {scene.model}",
        status="error" if scene.must_be_cut else "unset",
        began=0.001,
        duration=1.2,
        attributes=attributes,
        events=_events(scene, run) if scene.must_recover else (),
    )


def _story(scene: Scene, until: float) -> tuple[tuple[Sent, ...], tuple[Got, ...], tuple[Pause, ...]]:
    """Return what a server sends in this scene up to ``until``, and how a program reads it."""
    sent = [Sent(at=0.02, kind="headers")]
    got: list[Got] = []
    pauses: list[Pause] = []
    read_at = 0.0
    if scene.name == "hedge":
        return (), (), ()
    if scene.name not in ("silent-after-200", "retry"):
        for at, kind in [(0.02, "role"), *_pieces(scene, until)]:
            sent.append(Sent(at=at, kind=kind))
            if kind == "comment":
                continue
            read_at = max(read_at, at + 0.001)
            number = len(got) + 1
            text = f"t{number} " if kind == "token" else ""
            got.append(Got(at=read_at, text=text, finish="stop" if kind == "finish" else None))
            if number in scene.pause_after:
                pauses.append(Pause(at=read_at, seconds=scene.pause))
                read_at += scene.pause
    return tuple(sent), tuple(got), tuple(pauses)


def _pieces(scene: Scene, until: float) -> list[tuple[float, str]]:
    first = {"silent-thinker": 2.22, "healthy": 0.32}.get(scene.name, 0.02)
    count = {
        "stall-mid-answer": 8,
        "keepalive-comments": 5,
        "empty-deltas": 0,
        "fallback": 0,
        "silent-thinker": 14,
        "slow-reader": 16,
    }
    tokens = [(first + 0.06 * number, "token") for number in range(count.get(scene.name, 24))]
    last = tokens[-1][0] if tokens else 0.02
    if scene.is_healthy:
        return [*tokens, (last, "finish")]
    beat = {Wire.KEEPALIVE_ONLY: (0.25, "comment"), Wire.HEARTBEAT_ONLY: (0.3, "heartbeat")}.get(
        scene.wire or Wire.DEAD_WIRE
    )
    if beat is None:
        return tokens
    every, kind = beat
    return [*tokens, *((last + every * number, kind) for number in range(1, int((until - last) / every) + 1))]
