"""The demonstration itself: two gateways, one sink, and a program for each scene, twice.

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
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from shutil import which

from stallwatch.cli.demo.checks import differences
from stallwatch.cli.demo.child import HUNG, Told, run_child
from stallwatch.cli.demo.child_env import bare_env, guarded_env, guarded_settings
from stallwatch.cli.demo.evidence import added_up, run_record
from stallwatch.cli.demo.forward import Collector, Forwarder
from stallwatch.cli.demo.record import Demonstration, RunRecord, SceneRecord
from stallwatch.cli.demo.scenes import POLICY_FILE, SCENES, STILL_WAITING, Scene
from stallwatch.cli.demo.sink import Sink
from stallwatch.cli.extras import CannotRun
from stallwatch.testing.gateway import FaultGateway
from stallwatch.testing.ledger import Ledger

__all__ = ["Progress", "check_runnable", "demonstrate", "program_of"]

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
        raise CannotRun(
            "opentelemetry-instrument is not installed: pip install opentelemetry-instrumentation"
        )
    group = metadata.entry_points(group="opentelemetry_instrumentor")
    if "stallwatch" not in group.names:
        raise CannotRun(
            "opentelemetry-instrument would not find stallwatch: install the package (pip install '.[demo]' in "
            "its checkout) instead of running it from its sources"
        )
    if not metadata.entry_points(group="opentelemetry_configurator"):
        raise CannotRun("opentelemetry-distro is not installed: pip install opentelemetry-distro")
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
            [
                *([launcher] if guarded else []),
                sys.executable,
                str(program_of(scene, guarded)),
                *scene.arguments(guarded),
            ],
            environment(scene, guarded),
            patience=_patience(scene, guarded),
            starting=starting,
            clock=time.time,
            heard=_listener(progress, scene, guarded),
        )

    return dict(zip(order, await asyncio.gather(*(play(*item) for item in order)), strict=True))


def program_of(scene: Scene, guarded: bool) -> Path:
    """Return the program that plays this side of the scene."""
    return Path(__file__).with_name(scene.program(guarded))


def _judged(scene: Scene, bare: RunRecord, guarded: RunRecord) -> SceneRecord:
    found = differences(scene, bare, guarded)
    return SceneRecord(scene=scene, bare=bare, guarded=guarded, differences=found)


def _patience(scene: Scene, guarded: bool) -> float:
    return HUNG if guarded or scene.is_healthy else STILL_WAITING


def _duration(scene: Scene, guarded: bool) -> float:
    """Guess how long a run takes, so that the longest start first."""
    if scene.is_healthy:
        return scene.pause * len(scene.pause_after) + 2.0
    if not guarded:
        return STILL_WAITING
    return scene.allowed if scene.must_be_cut else scene.allowed + 1.0


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
