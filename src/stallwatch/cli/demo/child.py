"""One run of the plain program as a child process: start it, read its lines, end it if nothing else would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from stallwatch.cli.demo.record import End, Failure, Got, Pause

__all__ = ["HUNG", "Told", "run_child"]

HUNG = 10.0
"""Seconds after its request at which any program is ended: no scene takes half as long."""

STARTUP = 60.0
"""Seconds a program may take to import its libraries; a busy machine can need ten."""


@dataclass(slots=True)
class Told:
    """What the program said, line by line; times are still Unix times."""

    started: float | None = None
    end: End | None = None
    ended_at: float = 0.0
    got: list[Got] = field(default_factory=list[Got])
    pauses: list[Pause] = field(default_factory=list[Pause])
    failure: Failure | None = None
    stderr: str = ""

    def hear(self, line: Mapping[str, Any]) -> None:
        """Take in one line."""
        at = float(line["at"])
        match line["event"]:
            case "request":
                self.started = at
            case "chunk":
                self.got.append(Got(at=at, text=line["text"], finish=line["finish"]))
            case "pause":
                self.pauses.append(Pause(at=at, seconds=line["seconds"]))
            case "completed":
                self.finish(End.COMPLETED, at)
            case event:
                self.failure = Failure(type=line["type"], message=line["message"], code=line["code"])
                self.finish(End(event), at)

    def finish(self, end: End, at: float) -> None:
        """Note the end; the first one counts."""
        if self.end is None:
            self.end, self.ended_at = end, at


async def run_child(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    patience: float,
    starting: asyncio.Semaphore,
    clock: Callable[[], float],
    heard: Callable[[Told], None],
) -> Told:
    """Run the program to its end, or for ``patience`` seconds after its request.

    ``starting`` limits how many programs import their libraries at once: a busy machine would blur every time.
    ``heard`` is called after each line.
    """
    told = Told()
    requested = asyncio.Event()
    async with starting:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        reading = asyncio.create_task(_read(process.stdout, told, requested, heard))
        errors = asyncio.create_task(_text_of(process.stderr))
        try:
            await asyncio.wait_for(requested.wait(), STARTUP)
        except TimeoutError:
            _kill(process)
        except BaseException:
            _kill(process)
            raise
    try:
        await _read_to_the_end(reading, told, patience, clock)
    finally:
        if not reading.done():
            _kill(process)
        await process.wait()
        await reading
        told.stderr = (await errors).strip()
    told.finish(End.CRASHED, clock())
    heard(told)
    return told


async def _read_to_the_end(
    reading: asyncio.Task[None], told: Told, patience: float, clock: Callable[[], float]
) -> None:
    try:
        async with asyncio.timeout(patience):
            await asyncio.shield(reading)
    except TimeoutError:
        told.finish(End.STILL_WAITING, clock())


async def _read(
    stdout: asyncio.StreamReader | None, told: Told, requested: asyncio.Event, heard: Callable[[Told], None]
) -> None:
    while stdout is not None and (line := await stdout.readline()):
        try:
            told.hear(json.loads(line))
        except (ValueError, KeyError, TypeError):
            # Not one of the program's own lines; some library printed it.
            continue
        if told.started is not None:
            requested.set()
        heard(told)
    # A program that ends without a request must not be waited for either.
    requested.set()


async def _text_of(stream: asyncio.StreamReader | None) -> str:
    return "" if stream is None else (await stream.read()).decode(errors="replace")


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
