"""What rides on each seam in the SDK, and which of them this release of the SDK has: for warnings and for reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import openai._base_client as base
import openai._streaming as streaming

__all__ = ["CARRIES", "SeamState", "carried_by", "survey"]

CARRIES: dict[tuple[type, str], str] = {
    (base.SyncAPIClient, "request"): "sync calls: runs, deadlines, spans",
    (base.AsyncAPIClient, "request"): "async calls: runs, deadlines, spans",
    (base.BaseClient, "_build_request"): "attempts up to the headers: waits, number",
    (base.BaseClient, "_should_retry"): "verdicts on HTTP errors the SDK would retry",
    (base.BaseClient, "_calculate_retry_timeout"): "the pause before a retry of the SDK, and why",
    (base.SyncAPIClient, "_sleep_for_retry"): "waking that pause on a cancel, sync",
    (base.SyncAPIClient, "_process_response"): "retries after the headers, sync",
    (base.AsyncAPIClient, "_process_response"): "retries after the headers, async",
    (streaming.Stream, "__init__"): "chunks, sync: what each carries, as the SDK reads it",
    (streaming.AsyncStream, "__init__"): "chunks, async: what each carries, as the SDK reads it",
}
"""In the order of a call. Releases before 1.109 have ``_retry_request`` in place of ``_sleep_for_retry``."""

_EARLIER_NAMES = {"_sleep_for_retry": "_retry_request"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeamState:
    """A seam as it is in this process: ``name`` as this release has it, ``carries`` what rides on it."""

    owner: type
    name: str
    carries: str
    present: bool
    patched: bool


def survey(patched: Iterable[tuple[type, str]]) -> Iterator[SeamState]:
    """Yield every seam; ``patched`` is what ``governing.patched`` returns."""
    ours = set(patched)
    for (owner, name), carries in CARRIES.items():
        earlier = _EARLIER_NAMES.get(name)
        here = name if earlier is None or name in owner.__dict__ or earlier not in owner.__dict__ else earlier
        yield SeamState(
            owner=owner,
            name=here,
            carries=carries,
            present=here in owner.__dict__,
            patched=(owner, here) in ours,
        )


def carried_by(owner: type, name: str) -> str:
    """Return what rides on a seam."""
    later = next((later for later, earlier in _EARLIER_NAMES.items() if earlier == name), name)
    return CARRIES.get((owner, later), "what rides on it")
