"""The demonstration itself: two gateways, one sink, and the plain program fourteen times.

Bare and guarded runs get a gateway each, so that a ledger entry belongs to one run without any mark in the request.
Programs start a few at a time and then run side by side; the long waits overlap.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from shutil import which

from stallwatch.cli.demo.checks import differences
from stallwatch.cli.demo.child import HUNG, Told, run_child
from stallwatch.cli.demo.child_env import RUN_ATTRIBUTE, bare_env, guarded_env, guarded_settings
from stallwatch.cli.demo.forward import Collector, Forwarder
from stallwatch.cli.demo.record import (
    Demonstration,
    End,
    Got,
    Pause,
    RunRecord,
    SceneRecord,
    Sent,
    Series,
    SpanRecord,
)
from stallwatch.cli.demo.scenes import POLICY_FILE, SCENES, STILL_WAITING, Scene
from stallwatch.cli.demo.sink import MetricPoint, Sink, SpanData
from stallwatch.cli.extras import CannotRun
from stallwatch.testing.gateway import FaultGateway
from stallwatch.testing.ledger import Ledger, RequestRecord

__all__ = ["PROGRAM", "Progress", "check_runnable", "demonstrate"]

PROGRAM = Path(__file__).with_name("program.py")
_SCOPES = ("stallwatch",)
_LEDGER_PATIENCE = 2.0


@dataclass(slots=True)
class Progress:
    """How far each run is; what the live line shows."""

    began: float = field(default_factory=time.monotonic)
    told: dict[tuple[str, bool], Told] = field(default_factory=dict[tuple[str, bool], Told])
    latest: str = ""

    def count(self, guarded: bool) -> tuple[int, int]:
        """Return how many runs are under way and how many have ended."""
        runs = [told for (_, which_one), told in self.told.items() if which_one is guarded]
        ended = sum(told.end is not None for told in runs)
        return sum(told.started is not None for told in runs) - ended, ended


def check_runnable() -> str:
    """Return the path of ``opentelemetry-instrument``; raise CannotRun if a guarded run cannot work."""
    beside = Path(sys.executable).with_name("opentelemetry-instrument")
    launcher = which(str(beside)) or which("opentelemetry-instrument")
    if launcher is None:
        raise CannotRun("opentelemetry-instrument is not installed: pip install 'stallwatch[demo]'")
    group = metadata.entry_points(group="opentelemetry_instrumentor")
    if "stallwatch" not in group.names:
        raise CannotRun(
            "opentelemetry-instrument would not find stallwatch: install the package (pip install 'stallwatch[demo]') "
            "instead of running it from its sources"
        )
    if not metadata.entry_points(group="opentelemetry_configurator"):
        raise CannotRun("opentelemetry-distro is not installed: pip install 'stallwatch[demo]'")
    return launcher


def demonstrate(
    launcher: str, *, scenes: Sequence[Scene] = SCENES, collector: Collector | None = None, progress: Progress
) -> Demonstration:
    """Run every scene bare and guarded and return what happened."""
    return asyncio.run(_demonstrate(launcher, scenes, collector, progress))


async def _demonstrate(
    launcher: str, scenes: Sequence[Scene], collector: Collector | None, progress: Progress
) -> Demonstration:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stallwatch-demo-")))
        policy_file = folder / "policy.toml"
        policy_file.write_text(POLICY_FILE)
        gateways = {guarded: stack.enter_context(FaultGateway()) for guarded in (False, True)}
        forwarder = None if collector is None else stack.enter_context(Forwarder(collector))
        sink = stack.enter_context(Sink(None if forwarder is None else forwarder.relay))

        def environment(scene: Scene, guarded: bool) -> dict[str, str]:
            url = gateways[guarded].base_url
            if not guarded:
                return bare_env(url)
            return guarded_env(url, scene=scene.name, sink=sink.endpoint, policy_file=policy_file)

        told = await _play(launcher, scenes, environment, progress)
        ledgers = {guarded: await _settled(gateway) for guarded, gateway in gateways.items()}
        spans, points = sink.spans(), sink.metrics()

    def record(scene: Scene, guarded: bool) -> RunRecord:
        return run_record(
            told[scene, guarded], guarded=guarded, scene=scene, ledger=ledgers[guarded], spans=spans
        )

    return Demonstration(
        scenes=tuple(_judged(scene, record(scene, False), record(scene, True)) for scene in scenes),
        versions=_versions(),
        seconds=time.monotonic() - progress.began,
        settings=guarded_settings(Path("policy.toml")),
        metrics=added_up(points),
        collector=None if collector is None else str(collector),
        notes=_notes(forwarder),
    )


async def _play(
    launcher: str,
    scenes: Sequence[Scene],
    environment: Callable[[Scene, bool], dict[str, str]],
    progress: Progress,
) -> dict[tuple[Scene, bool], Told]:
    """Run the program bare and guarded for each scene, the longest runs first."""
    starting = asyncio.Semaphore(max(2, os.cpu_count() or 2))
    order = sorted(
        ((scene, guarded) for scene in scenes for guarded in (False, True)),
        key=lambda item: (-_duration(*item), item[1]),
    )

    async def play(scene: Scene, guarded: bool) -> Told:
        return await run_child(
            [*([launcher] if guarded else []), sys.executable, str(PROGRAM), *scene.arguments],
            environment(scene, guarded),
            patience=_patience(scene, guarded),
            starting=starting,
            clock=time.time,
            heard=_listener(progress, scene, guarded),
        )

    return dict(zip(order, await asyncio.gather(*(play(*item) for item in order)), strict=True))


def _judged(scene: Scene, bare: RunRecord, guarded: RunRecord) -> SceneRecord:
    found = differences(scene, bare, guarded)
    return SceneRecord(scene=scene, bare=bare, guarded=guarded, differences=found)


def _patience(scene: Scene, guarded: bool) -> float:
    return STILL_WAITING if scene.must_be_cut and not guarded else HUNG


def _duration(scene: Scene, guarded: bool) -> float:
    """Guess how long a run takes, so that the longest start first."""
    if scene.must_be_cut:
        return scene.allowed if guarded else STILL_WAITING
    return scene.pause * len(scene.pause_after) + 2.0


def _listener(progress: Progress, scene: Scene, guarded: bool) -> Callable[[Told], None]:
    def heard(told: Told) -> None:
        progress.told[scene.name, guarded] = told
        if told.end is not None and told.started is not None:
            who = "guarded" if guarded else "bare"
            progress.latest = f"{scene.title}, {who}: {told.end} after {told.ended_at - told.started:.1f} s"

    return heard


async def _settled(gateway: FaultGateway) -> Ledger:
    """Return the ledger once every connection is closed, or as it is if one stays open."""
    try:
        return await gateway.wait_for_async(lambda ledger: not ledger.open_connections, _LEDGER_PATIENCE)
    except AssertionError:
        return gateway.ledger()


def run_record(
    told: Told, *, guarded: bool, scene: Scene, ledger: Ledger, spans: Sequence[SpanData]
) -> RunRecord:
    """Bring together what the program said, what the server saw and the span of one run."""
    start = told.ended_at if told.started is None else told.started
    record = RunRecord(
        guarded=guarded,
        started=start,
        end=told.end or End.CRASHED,
        ended_at=told.ended_at - start,
        got=tuple(Got(at=got.at - start, text=got.text, finish=got.finish) for got in told.got),
        pauses=tuple(Pause(at=pause.at - start, seconds=pause.seconds) for pause in told.pauses),
        failure=told.failure,
        stderr=told.stderr,
    )
    requests = ledger.for_model(scene.model)
    if requests:
        record = _with_server(record, requests[-1], ledger.epoch - start)
    own = [
        span
        for span in (spans if guarded else ())
        if span.scope in _SCOPES and span.resource.get(RUN_ATTRIBUTE) == scene.name
    ]
    return replace(record, spans=len(own), span=_span_record(own[-1], start) if own else None)


def _with_server(record: RunRecord, request: RequestRecord, offset: float) -> RunRecord:
    closed = request.peer_closed_at
    return replace(
        record,
        sent=tuple(Sent(at=sent.at + offset, kind=str(sent.kind)) for sent in request.sent),
        server_closed_at=None if closed is None else closed + offset,
        server_closed_how=request.closed_how,
    )


def _span_record(span: SpanData, start: float) -> SpanRecord:
    return SpanRecord(
        name=span.name,
        status=span.status,
        began=span.start - start,
        duration=span.end - span.start,
        attributes=span.attributes,
        events=tuple(event.name for event in span.events),
    )


def added_up(points: Sequence[MetricPoint]) -> tuple[Series, ...]:
    """Add up equal series of all programs, the model left out: here it is only the scenario's name."""
    sums: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[float, int | None]] = {}
    for point in points:
        if point.scope not in _SCOPES:
            continue
        attributes = {
            name: str(value) for name, value in point.attributes.items() if name != "gen_ai.request.model"
        }
        key = (point.name, point.unit, tuple(sorted(attributes.items())))
        value, count = sums.get(key, (0.0, None))
        total = None if point.count is None else point.count + (count or 0)
        sums[key] = (value + point.value, total)
    return tuple(
        Series(name=name, unit=unit, attributes=dict(attributes), value=value, count=count)
        for (name, unit, attributes), (value, count) in sorted(sums.items())
    )


def _notes(forwarder: Forwarder | None) -> tuple[str, ...]:
    if forwarder is None:
        return ()
    if forwarder.failures:
        reason = "the demo speaks OTLP over HTTP, for which a collector usually listens on port 4318"
        return (f"the collector did not take everything: {forwarder.failures[0]} ({reason})",)
    return (f"{forwarder.sent} exports were passed on to the collector",)


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in ("stallwatch", "openai", "opentelemetry-sdk"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
