"""Whether the process is instrumented and by whom, and what is patched in the SDK."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider

from stallwatch.cli.doctor.report import Finding, Section, note, ok, problem, warning
from stallwatch.governing import in_force, patched
from stallwatch.instrumentor import OpenAIInstrumentor
from stallwatch.sdk.seams import SeamState, survey

__all__ = ["By", "attachment", "instrumented_by", "instrumented_to_look", "launched_by_opentelemetry"]


class By(StrEnum):
    """Who has instrumented the process."""

    AUTO = "opentelemetry-instrument"
    PROGRAM = "program"
    GUARD = "guard"
    DOCTOR = "doctor"
    NOBODY = "nobody"


def launched_by_opentelemetry() -> bool:
    """Tell whether this process was started by ``opentelemetry-instrument``, or by what does the same."""
    module = sys.modules.get("sitecustomize")
    path = Path(getattr(module, "__file__", None) or "")
    if path.parent.name == "auto_instrumentation":
        return True
    return "opentelemetry.instrumentation.auto_instrumentation.sitecustomize" in sys.modules


def instrumented_by() -> By:
    """Return who has instrumented the process so far."""
    wiring = in_force()
    if wiring is None:
        return By.NOBODY
    if not wiring.everywhere:
        return By.GUARD
    return By.AUTO if launched_by_opentelemetry() else By.PROGRAM


@contextmanager
def instrumented_to_look() -> Generator[By]:
    """Instrument a process that is not yet, for as long as it is looked at, and tell who has; nothing is recorded."""
    before = instrumented_by()
    if before not in (By.NOBODY, By.GUARD):
        yield before
        return
    with _nothing_logged():
        OpenAIInstrumentor().instrument(
            tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider()
        )
    mine = OpenAIInstrumentor().is_instrumented_by_opentelemetry
    try:
        yield By.DOCTOR if mine else before
    finally:
        if mine:
            with _nothing_logged():
                OpenAIInstrumentor().uninstrument()


@contextmanager
def _nothing_logged() -> Generator[None]:
    """Keep quiet: what would be logged of settings and seams is among the findings."""
    logger = logging.getLogger("stallwatch")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


def attachment(by: By) -> Section:
    """Look at the seams."""
    findings = [_who(by), *_seams(by)]
    return Section(key="seams", title="What is patched in the SDK", findings=tuple(findings))


def _who(by: By) -> Finding:
    title = "instrumented"
    match by:
        case By.AUTO:
            return ok("instrumented", title, "by opentelemetry-instrument", by=by)
        case By.PROGRAM:
            return ok("instrumented", title, "by the program", by=by)
        case By.GUARD:
            return note(
                "instrumented", title, "single clients", "guarded one by one; other clients are not", by=by
            )
        case By.DOCTOR if launched_by_opentelemetry():
            return problem(
                "instrumented",
                title,
                "not by opentelemetry-instrument",
                "see below whether it is switched off; else look at its log, with OTEL_LOG_LEVEL=debug",
                "which has started this process; what follows was patched by this command, to look",
                by=by,
            )
        case By.DOCTOR:
            return note(
                "instrumented",
                title,
                "by this command",
                "just to look; in yours: opentelemetry-instrument, or instrument() in the program",
                by=by,
            )
        case By.NOBODY:
            pass
    return problem(
        "instrumented",
        title,
        "no",
        "run the program under opentelemetry-instrument, call OpenAIInstrumentor().instrument(), or guard(client)",
        "no call is watched",
        by=by,
    )


def _seams(by: By) -> Iterator[Finding]:
    for seam in survey(patched()):
        key, title = f"seam.{seam.owner.__name__}.{seam.name}", f"{seam.owner.__name__}.{seam.name}"
        data = {"present": seam.present, "patched": seam.patched, "carries": seam.carries}
        if not seam.present:
            yield warning(
                key,
                title,
                "missing",
                "use a release of openai that has it, if you need this",
                f"not in this release of the SDK, so this is off: {seam.carries}",
                **data,
            )
        elif seam.patched:
            yield ok(key, title, "patched", seam.carries, **data)
        else:
            yield _not_patched(by, key, title, seam, data)


def _not_patched(by: By, key: str, title: str, seam: SeamState, data: Mapping[str, object]) -> Finding:
    if by is By.NOBODY:
        return note(key, title, "not patched", seam.carries, **data)
    return problem(
        key,
        title,
        "not patched",
        "look for the warning of the logger 'stallwatch' when the process began",
        f"there, but not patched, so this is off: {seam.carries}",
        **data,
    )
