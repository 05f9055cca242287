"""One small call to an endpoint of the user's, with its phases timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import openai

from stallwatch.cli.doctor.limits import Asked
from stallwatch.cli.doctor.measured import Measured, noting, quiet
from stallwatch.cli.doctor.report import Finding, Section, note, ok, problem, warning
from stallwatch.cli.doctor.secrets import origin
from stallwatch.clock import monotonic
from stallwatch.errors import StreamTimeoutError
from stallwatch.policy_blocks import policy

__all__ = ["endpoint"]

_PROMPT = "Answer with the single word: ready"
_ADVICE = {
    401: "check OPENAI_API_KEY",
    403: "check what this key may do, and proxies and firewalls on the way",
    404: "check --base-url (does it end in /v1?) and --model",
    429: "the endpoint refuses more calls now; try again later",
}


def endpoint(environ: Mapping[str, str], asked: Asked) -> Section:
    """Make the call; the process must be instrumented. The key is taken from OPENAI_API_KEY, and shown nowhere."""
    url = asked.base_url or ""
    lead = f"One streamed call of {asked.model} at {origin(url)}, without retries; nothing of it is exported."
    key = environ.get("OPENAI_API_KEY", "")
    if key:
        findings = _call(url, asked.model or "", key)
    else:
        findings = [
            problem(
                "key",
                "OPENAI_API_KEY",
                "not set",
                "set it to a key of this endpoint, or to any text if it needs none",
            )
        ]
    return Section(key="endpoint", title="Your endpoint", findings=tuple(findings), lead=lead)


class _Clock:
    """When the phases of the call were over, in seconds from its start."""

    def __init__(self) -> None:
        self._began = monotonic()
        self.at: dict[str, float] = {}

    def begin(self) -> None:
        """Count from now on: to make a client takes tens of milliseconds, which are nobody's connecting."""
        self._began = monotonic()

    def mark(self, phase: str) -> None:
        """Mark a phase as over, the first time."""
        self.at.setdefault(phase, monotonic() - self._began)

    def mark_at(self, phase: str, instant: float | None) -> None:
        """Mark a phase by who saw its end more exactly, on the same clock."""
        if instant is not None:
            self.at[phase] = instant - self._began

    def follow(self, request: Any) -> None:
        """Follow a request's connection; whoever follows it already goes on doing so."""
        theirs: Callable[..., Any] | None = request.extensions.get("trace")

        def trace(name: str, info: dict[str, Any]) -> None:
            if name.endswith(("connect_tcp.complete", "start_tls.complete")):
                self.at["connect"] = monotonic() - self._began
                # What has answered so far was a proxy.
                self.at.pop("headers", None)
            elif name.endswith("receive_response_headers.complete"):
                self.mark("headers")
            if theirs is not None:
                theirs(name, info)

        request.extensions["trace"] = trace


def _call(url: str, model: str, key: str) -> list[Finding]:
    clock, chunks = _Clock(), 0
    error: Exception | None = None
    with noting() as notes:
        try:
            http = openai.DefaultHttpxClient(event_hooks={"request": [clock.follow]})
            with (
                quiet(),
                policy(mode="enforce", max_retries=0),
                openai.OpenAI(base_url=url, api_key=key, max_retries=0, http_client=http) as client,
            ):
                clock.begin()
                for _ in client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": _PROMPT}], stream=True
                ):
                    clock.mark("chunk")
                    chunks += 1
        except Exception as raised:
            error = raised
        clock.mark("end")
    measured = notes.by_model.get(model)
    if measured is not None:
        clock.mark_at("chunk", measured.first_chunk_at)
        clock.mark_at("token", measured.first_token_at)
    return [*_phases(clock, measured), _end(clock, chunks, error, measured)]


def _phases(clock: _Clock, measured: Measured | None) -> list[Finding]:
    gap = None if measured is None else measured.longest_gap
    rows = (
        ("connect", "connected", clock.at.get("connect"), "TCP and TLS"),
        ("first-byte", "headers", clock.at.get("headers"), "the first bytes of the answer"),
        ("first-chunk", "first chunk", clock.at.get("chunk"), "of any kind"),
        ("first-token", "first token", clock.at.get("token"), "the first progress"),
        ("longest-gap", "longest gap", gap, "between two chunks"),
    )
    return [
        note(key, title, "none", detail, seconds=None)
        if seconds is None
        else ok(key, title, _shown(seconds), detail, seconds=round(seconds, 4))
        for key, title, seconds, detail in rows
    ]


def _shown(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _end(clock: _Clock, chunks: int, error: Exception | None, measured: Measured | None) -> Finding:
    outcome = None if measured is None else measured.outcome
    status = getattr(error, "status_code", None)
    data = {
        "outcome": outcome,
        "interrupt": None if measured is None else measured.interrupt,
        "seconds": round(clock.at["end"], 4),
        "chunks": chunks,
        "error": None if error is None else type(error).__name__,
        "status": status,
    }
    took = f"{outcome or 'not watched'} after {_shown(clock.at['end'])}"
    if error is None and outcome == "completed":
        return ok("call", "the call", took, f"{chunks} chunks", **data)
    if error is None:
        return warning(
            "call",
            "the call",
            took,
            "look at what the endpoint sends: is it an event stream, and whole?",
            f"{chunks} chunks",
            **data,
        )
    detail = type(error).__name__ + ("" if status is None else f", status {status}")
    if isinstance(error, StreamTimeoutError):
        detail += f", phase {error.phase}, {error.wire}, waited {error.waited:.1f} s"
    # The error's own text is not shown: servers quote keys in it.
    return problem("call", "the call", took, _advice(error, status), detail, **data)


def _advice(error: Exception, status: int | None) -> str:
    if status is not None:
        return _ADVICE.get(status, "the endpoint answered with an error; ask whoever runs it")
    if isinstance(error, StreamTimeoutError):
        return "the endpoint stalls: what stallwatch is for; look at its queue, and at what stands in between"
    return "check --base-url, the network and the proxies on the way"
