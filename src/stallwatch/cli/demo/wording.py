"""How the results are said, the same on screen and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stallwatch.catalogue import Attr
from stallwatch.cli.demo.record import Demonstration, End, Exchange, RunRecord, SceneRecord

__all__ = [
    "NOTHING",
    "attribute",
    "close_seen",
    "closed",
    "completed",
    "ending",
    "phase",
    "seconds",
    "source_note",
    "still_waiting",
    "summary",
    "verdict",
    "wire",
]

NOTHING = "-"


def seconds(value: float | None) -> str:
    """Say a time the way the table does."""
    return NOTHING if value is None else f"{value:.2f} s"


def ending(run: RunRecord) -> str:
    """Say how the program's call ended, and when."""
    match run.end:
        case End.COMPLETED:
            return f"completed in {run.ended_at:.2f} s"
        case End.STILL_WAITING:
            return f"still waiting after {run.ended_at:.1f} s"
        case End.CRASHED:
            return "the program crashed"
        case _ if run.failure is None:
            return f"{run.end} after {run.ended_at:.2f} s"
        case _:
            return f"{run.failure.code or run.failure.type.rpartition('.')[2]} after {run.ended_at:.2f} s"


def verdict(record: SceneRecord) -> str:
    """Say what the guard did."""
    if record.differences:
        return "differs"
    if record.scene.must_recover:
        return "recovered"
    return "cut off" if record.scene.must_be_cut else "left alone"


def attribute(run: RunRecord, name: str) -> str:
    """Say a span attribute."""
    value: Any = None if run.span is None else run.span.get(name)
    return NOTHING if value is None else str(value)


def phase(run: RunRecord) -> str:
    return attribute(run, Attr.STALL_PHASE)


def wire(run: RunRecord) -> str:
    return attribute(run, Attr.STALL_WIRE)


def close_seen(run: RunRecord) -> str:
    """Say when the server saw the connection go, that of the last attempt."""
    last = run.last_exchange
    return "never" if last is None else closed(last)


def closed(exchange: Exchange) -> str:
    """Say when the server saw this connection go."""
    return "never" if exchange.closed_at is None else seconds(exchange.closed_at)


def summary(demo: Demonstration) -> str:
    """Say in a sentence for each sort of scene what came out."""
    dead, recovered, alive = demo.dead, demo.recovered, demo.healthy
    ended = [f"{record.guarded.ended_at:.1f}" for record in dead if record.guarded.end is End.TIMEOUT]
    span = " to ".join(sorted({min(ended, key=float), max(ended, key=float)}, key=float)) if ended else ""
    sentences = []
    if dead:
        after = f", after {span} s" if span else ""
        sentences.append(
            f"Dead streams: the bare SDK was still waiting in {still_waiting(dead)} of {len(dead)}; the guarded calls "
            f"ended with a timeout in {len(ended)} of {len(dead)}{after}."
        )
    if recovered:
        sentences.append(
            f"Calls worth a second attempt: the bare SDK was still waiting in {still_waiting(recovered)} of "
            f"{len(recovered)}; {completed(recovered)} of {len(recovered)} guarded ones completed."
        )
    if alive:
        sentences.append(f"Healthy streams: {completed(alive)} of {len(alive)} guarded ones completed.")
    return " ".join(sentences)


def still_waiting(records: Sequence[SceneRecord]) -> int:
    """Count the bare calls that the demo had to end."""
    return sum(record.bare.end is End.STILL_WAITING for record in records)


def completed(records: Sequence[SceneRecord]) -> int:
    """Count the guarded calls that completed."""
    return sum(record.guarded.end is End.COMPLETED for record in records)


def source_note(demo: Demonstration) -> str:
    """Say where the numbers come from."""
    missing = [record.scene.title for record in demo.scenes if record.guarded.span is None]
    note = (
        "Phase, wire, first token, longest gap, chunks, outcome and attempts: from the guarded call's span. "
        "Server saw close: from the gateway's ledger. Times count from the request."
    )
    if missing:
        note += f" No span came for {', '.join(missing)}: marked *, from what the program printed."
    return note
