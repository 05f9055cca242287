"""All books of one soak, and the rows made of them: calls = spans = ledger = metrics, and nothing left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from soak.cases import CASES
from soak.judging import Row, equal, grown, nothing
from soak.sink import Received

__all__ = ["Soaked", "rows"]

TRACED_LEAST = 256 * 1024.0
"""Bytes: what the standard library's caches and the exporters' buffers hold at one rest and not at the next."""
RESIDENT_LEAST = 8 * 2**20.0
"""Bytes: in half a minute the allocator took five MiB more from the system while Python's objects had become fewer."""
LATE = 0.5
"""Seconds that a stall may be told late under load; how late the machine itself was comes on top."""

_STREAMS = {case.name for case in CASES if case.stream}
_MAY_MISS = frozenset(case.name for case in CASES if case.may_miss_the_server)
RESOURCES = ("descriptors", "threads")
"""Exporters and the process itself have some at rest, too."""
UNDER_WAY = ("tasks", "runs", "spans")
"""At rest there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """What everybody has told."""

    rests: list[dict[str, Any]]
    """Readings, those of the warm-up left out but for its last."""
    told: Mapping[str, Any]
    gateway: Mapping[str, Any]
    sink: Received


def rows(soaked: Soaked) -> list[Row]:
    """Return the table."""
    return [*_accounts(soaked), *_exports(soaked), *_left(soaked), *_complaints(soaked)]


def _accounts(soaked: Soaked) -> list[Row]:
    told, sink = soaked.told, soaked.sink
    ended, spans = told["ended"], told["spans"]
    streams = {name: number for name, number in ended.items() if name.partition(":")[0] in _STREAMS}
    return [
        equal("calls that ended", told["calls"], _by_model(ended)),
        nothing("calls that ended as they should not", told["errors"]),
        equal("spans, by case and outcome", ended, spans["ended"]),
        equal(
            "requests in the gateway's ledger",
            spans["attempts"],
            soaked.gateway["requests"],
            at_most=_MAY_MISS,
        ),
        equal("attempts in the metrics", spans["attempts"], sink.total("stallwatch.attempt.duration")),
        equal("calls in the metrics", told["calls"], sink.total("gen_ai.client.operation.duration")),
        equal(
            "streams in the metrics, by case and outcome",
            streams,
            sink.total("stallwatch.streams", "stallwatch.outcome"),
        ),
        equal(
            "stalls in the metrics",
            {"all": spans["stalls"]},
            {"all": sum(sink.total("stallwatch.stalls").values())},
        ),
        nothing("streams open, by the metrics", sink.total("stallwatch.streams.active")),
    ]


def _exports(soaked: Soaked) -> list[Row]:
    """Spans have left by three ways: delivered, refused while the sink was away, dropped by a full queue."""
    exported = soaked.told["exported"]
    ended, got = Counter(soaked.told["spans"]["ended"]), soaked.sink.spans
    delivered, refused = Counter(exported["delivered"]), Counter(exported["refused"])
    dropped = ended - delivered - refused
    lost = refused.total() + dropped.total()
    return [
        equal("spans delivered, refused or dropped by the exporter", ended, delivered + refused + dropped),
        nothing("spans delivered that the sink lacks", delivered - got),
        nothing("spans at the sink that nobody sent", got - delivered - refused),
        Row(
            what="spans at the sink; the rest was lost while it was away",
            found=f"{got.total()} and {lost} lost",
            allowed=f"{ended.total()} in all",
            # One that was refused may have come in all the same: the answer came too late.
            holds=ended.total() - lost <= got.total() <= ended.total(),
        ),
    ]


def _left(soaked: Soaked) -> list[Row]:
    first, last = soaked.rests[0], soaked.rests[-1]
    calls = last["calls"] - first["calls"]
    found = [
        grown("memory of Python's objects at rest", [r["traced"] for r in soaked.rests], calls, TRACED_LEAST),
        grown("memory of the process at rest", [r["resident"] for r in soaked.rests], calls, RESIDENT_LEAST),
    ]
    found += [
        Row(
            what=f"{name} at rest",
            found=" ".join(str(rest[name]) for rest in _thinned(soaked.rests)),
            allowed=f"{first[name] if name in RESOURCES else 0} at the end",
            holds=last[name] <= (first[name] if name in RESOURCES else 0),
        )
        for name in (*RESOURCES, *UNDER_WAY)
    ]
    found.append(nothing("connections open at the gateway", {"open": soaked.gateway["open"]}))
    return found


def _complaints(soaked: Soaked) -> list[Row]:
    told = soaked.told
    lag, (latest, who) = told["lag"], told["latest"]
    late = [hundredths / 100 for hundredths in told["late"]]
    typical = quantiles(late, n=100, method="inclusive") if len(late) > 1 else [0.0] * 99
    return [
        nothing("complaints: logs, loops, threads, finalisers", told["complaints"]),
        Row(
            what="stalls told late, median, 99th, last",
            found=f"{typical[49]:.2f} s, {typical[98]:.2f} s, {latest:.3f} s ({who})",
            # Twice: the deadline is judged in one turn, and its caller goes on in another.
            allowed=f"{LATE:g} s + twice the {lag:.3f} s that sleeps were late",
            holds=latest <= LATE + 2 * lag,
        ),
    ]


def _by_model(lines: Mapping[str, int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for name, number in lines.items():
        found[name.rpartition(": ")[0]] += number
    return dict(found)


def _thinned(rests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rests if len(rests) <= 8 else [*rests[:4], *rests[-4:]]
