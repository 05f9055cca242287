"""The program under test: ``python -m soak.program PLAN``. It says what happens as lines of JSON on stdout.

It works in rounds. In each, threads and tasks make calls, picked by weight, one after the other; then it comes to rest
and reads what is still there. The first rounds warm it up: caches fill, pools of memory find their size.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import sys
import threading
import time
import tracemalloc
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai

import stallwatch
from soak import resting
from soak.cases import CASES, LIMITS, Case
from soak.telemetry import Telemetry, key
from soak.ways import Ended, play, play_async
from stallwatch.runtime import registry

TELL_EVERY = 3.0
PAUSE = 2.0
"""Seconds at most that a worker rests between two calls."""

RAMP = 2.0
"""Seconds in which the workers of a round begin: 200 connections in one moment are another test than this."""


class Tally:
    """What the callers saw, and every complaint anybody had."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.complaints: Counter[str] = Counter()
        # By hundredths of a second, and the latest: a list of all would grow as a leak does.
        self.late: Counter[int] = Counter()
        self.latest: tuple[float, str] = (0.0, "none")
        self.lag = 0.0
        self.open = 0

    def begins(self, case: Case) -> None:
        """A call is made."""
        with self._lock:
            self.calls[case.name] += 1
            self.open += 1

    def ends(self, case: Case, how: Ended) -> None:
        """A call has ended."""
        with self._lock:
            self.open -= 1
            self.ended[key(case.name, how.outcome)] += 1
            if how.outcome != case.ends:
                self.errors[f"{case.name}: {how.outcome} {how.error}"] += 1
            if how.late is not None:
                self.late[round(how.late * 100)] += 1
                who = f"{case.name}, {how.error}, {threading.current_thread().name}"
                self.latest = max(self.latest, (how.late, who))

    def slept(self, until: float) -> None:
        """A sleep is over: how late that was is how late a deadline may be, too."""
        self.lag = max(self.lag, time.monotonic() - until)

    def complains(self, who: str) -> None:
        """Somebody complained where nobody should."""
        with self._lock:
            self.complaints[who] += 1

    def listen(self) -> None:
        """Take every complaint that a process can have."""
        sys.unraisablehook = lambda told: self.complains(
            f"{threading.current_thread().name}: unraisable {told.exc_value!r:.80} of {told.object!r:.50}"
        )
        threading.excepthook = lambda told: self.complains(f"thread {told.exc_type.__name__}")
        warnings.showwarning = lambda told, kind, *_: self.complains(f"{kind.__name__}: {told!s:.60}")
        logging.getLogger().addHandler(_Listener(self))


class _Listener(logging.Handler):
    """Logs of an exporter whose sink is away are no complaint, but all others are."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(logging.WARNING)
        self._tally = tally

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(
            ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal", "urllib3")
        ):
            self._tally.complains(f"log of {record.name}: {record.getMessage():.80}")


class Traffic:
    """One round of calls."""

    def __init__(self, base_url: str, tally: Tally, seed: int, until: float) -> None:
        self._options: dict[str, Any] = {"base_url": base_url, "api_key": "sk-soak", "timeout": 60.0}
        self._tally, self._until = tally, until
        self._seed = seed
        self.tasks_left = 0

    def in_threads(self, count: int) -> None:
        """Make calls in so many threads until the time is over."""
        with openai.OpenAI(**self._options) as client, ThreadPoolExecutor(count) as pool:
            for done in [pool.submit(self._work, client, number) for number in range(count)]:
                done.result()

    def _work(self, client: openai.OpenAI, number: int) -> None:
        dice = random.Random(f"{self._seed} thread {number}")
        time.sleep(dice.uniform(0, RAMP))
        while time.monotonic() < self._until:
            case = _pick(dice)
            self._tally.begins(case)
            self._tally.ends(case, play(client, case))
            until = time.monotonic() + (pause := dice.uniform(0, PAUSE))
            time.sleep(pause)
            self._tally.slept(until)

    async def in_tasks(self, count: int) -> None:
        """Make calls in so many tasks until the time is over, and count the tasks that are left then."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(
            lambda _, told: self._tally.complains(
                f"loop: {told['message']:.50} {told.get('exception')!r:.80}"
            )
        )
        before = asyncio.all_tasks()
        async with openai.AsyncOpenAI(**self._options) as client, asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(self._work_async(client, number))
        # Dropped streams are found by the collector and closed on this loop, as long as there is one.
        deadline = time.monotonic() + resting.PATIENCE
        while (asyncio.all_tasks() - before or registry.live()) and time.monotonic() < deadline:
            gc.collect()
            await asyncio.sleep(0.05)
        self.tasks_left = len(asyncio.all_tasks() - before)

    async def _work_async(self, client: openai.AsyncOpenAI, number: int) -> None:
        dice = random.Random(f"{self._seed} task {number}")
        await asyncio.sleep(dice.uniform(0, RAMP))
        while time.monotonic() < self._until:
            case = _pick(dice)
            self._tally.begins(case)
            self._tally.ends(case, await play_async(client, case))
            until = time.monotonic() + (pause := dice.uniform(0, PAUSE))
            await asyncio.sleep(pause)
            self._tally.slept(until)


def _pick(dice: random.Random) -> Case:
    return dice.choices(CASES, _WEIGHTS)[0]


_WEIGHTS = [case.weight for case in CASES]


def main() -> None:
    """Play all rounds and say everything there is to say."""
    plan = json.loads(sys.argv[1])
    tracemalloc.start()
    tally, telemetry = Tally(), Telemetry(plan["sink"])
    tally.listen()
    stallwatch.OpenAIInstrumentor().instrument(
        tracer_provider=telemetry.tracers, meter_provider=telemetry.meters, skip_dep_check=True, **LIMITS
    )
    sink, over = int(plan["sink"].rpartition(":")[2]), threading.Event()
    teller = threading.Thread(target=_tell_now_and_then, args=(tally, telemetry, over), daemon=True)
    teller.start()
    for number in range(plan["rounds"]):
        _say(round=number)
        left = _round(plan, tally, number)
        _say(resting=number)
        # The sink comes back now, and its word is waited for: a flush before that would be in vain.
        sys.stdin.readline()
        telemetry.flush()
        resting.come_to_rest(telemetry.books)
        _say(
            rest=number, calls=sum(tally.calls.values()), **resting.reading(telemetry.books, sink), tasks=left
        )
    telemetry.flush()
    over.set()
    teller.join()
    books, exporter = telemetry.books, telemetry.exporter
    _say(
        calls=tally.calls,
        ended=tally.ended,
        errors=tally.errors,
        complaints=tally.complaints,
        late=sorted(tally.late.elements()),
        latest=tally.latest,
        lag=tally.lag,
        spans={
            "started": books.started,
            "ended": books.ended,
            "attempts": books.attempts,
            "stalls": books.stalls,
        },
        exported={"delivered": exporter.delivered, "refused": exporter.refused},
    )
    # Once the gateway has told of its connections, nothing is left to be seen here.
    sys.stdin.readline()
    telemetry.shutdown()


def _round(plan: dict[str, Any], tally: Tally, number: int) -> int:
    half = plan["together"] // 2
    traffic = Traffic(plan["base_url"], tally, plan["seed"] + number, time.monotonic() + plan["seconds"])
    threads = threading.Thread(target=traffic.in_threads, args=(half,))
    threads.start()
    asyncio.run(traffic.in_tasks(plan["together"] - half))
    threads.join()
    return traffic.tasks_left


def _tell_now_and_then(tally: Tally, telemetry: Telemetry, over: threading.Event) -> None:
    while not over.wait(TELL_EVERY):
        _say(
            made=sum(tally.calls.values()),
            open=tally.open,
            spans=sum(telemetry.books.ended.values()),
            resident=resting.resident(),
        )


_saying = threading.Lock()


def _say(**what: Any) -> None:
    with _saying:
        print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
