"""Who has instrumented the process, what is patched, and who else has patched it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import openai._base_client as base
import pytest
from openai.resources.chat import completions
from wrapt import FunctionWrapper

import stallwatch
from stallwatch.cli.doctor import attachment, others, versions
from stallwatch.cli.doctor.attachment import By
from stallwatch.cli.doctor.report import Level
from stallwatch.governing import patched
from stallwatch.sdk.seams import CARRIES
from support.findings import by_key
from support.telemetry import instrumented


def test_who_instrumented_is_told_and_each_seam() -> None:
    with instrumented():
        found = by_key(attachment.attachment(attachment.instrumented_by()))
    assert found["instrumented"].data["by"] == "program"
    seams = [finding for key, finding in found.items() if key.startswith("seam.")]
    assert len(seams) == len(CARRIES)
    assert all(finding.level is Level.OK and finding.data["patched"] for finding in seams)
    assert found["seam.SyncAPIClient.request"].detail == "sync calls: runs, deadlines, spans"


def test_looking_instruments_and_takes_it_back() -> None:
    with attachment.instrumented_to_look() as by:
        assert by is By.DOCTOR
        assert len(patched()) == len(CARRIES)
    assert patched() == []


def test_looking_leaves_a_process_that_is_instrumented_as_it_is() -> None:
    with instrumented():
        before = patched()
        with attachment.instrumented_to_look() as by:
            assert by is By.PROGRAM
        assert patched() == before


def test_an_sdk_that_is_not_supported_is_not_patched_and_that_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        stallwatch.OpenAIInstrumentor, "instrumentation_dependencies", lambda _: ("openai >= 99",)
    )
    with attachment.instrumented_to_look() as by:
        found = by_key(attachment.attachment(by))
    assert (by, found["instrumented"].level) == (By.NOBODY, Level.PROBLEM)
    assert by_key(versions.versions())["openai"].level is Level.PROBLEM
    assert patched() == []


def test_a_guarded_client_stays_guarded_after_looking() -> None:
    with openai.OpenAI(api_key="k") as client:
        stallwatch.guard(client)
        try:
            assert attachment.instrumented_by() is By.GUARD
            with attachment.instrumented_to_look() as by:
                assert by is By.DOCTOR
            assert attachment.instrumented_by() is By.GUARD
        finally:
            stallwatch.unguard(client)
    assert patched() == []


def test_a_process_that_is_not_instrumented_is_a_problem() -> None:
    found = by_key(attachment.attachment(By.NOBODY))
    assert found["instrumented"].level is Level.PROBLEM
    assert found["seam.Stream.__init__"].level is Level.NOTE


def test_a_launcher_that_has_started_the_process_and_left_it_alone_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert by_key(attachment.attachment(By.DOCTOR))["instrumented"].level is Level.NOTE
    monkeypatch.setattr(attachment, "launched_by_opentelemetry", lambda: True)
    found = by_key(attachment.attachment(By.DOCTOR))["instrumented"]
    assert (found.level, found.value) == (Level.PROBLEM, "not by opentelemetry-instrument")


def test_a_missing_seam_is_told_with_what_is_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(base.BaseClient, "_should_retry")
    with attachment.instrumented_to_look() as by:
        found = by_key(attachment.attachment(by))["seam.BaseClient._should_retry"]
    assert (found.level, found.value) == (Level.WARNING, "missing")
    assert "verdicts on HTTP errors" in found.detail
    # Told as a finding, not as a line of the log as well.
    assert caplog.messages == []


def test_a_seam_that_is_there_and_not_patched_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    with instrumented():
        monkeypatch.setattr(attachment, "patched", lambda: patched()[1:])
        found = by_key(attachment.attachment(By.PROGRAM))["seam.SyncAPIClient.request"]
    assert (found.level, found.value) == (Level.PROBLEM, "not patched")


def _patch_as(module: str, owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch a method as code of another tool's module would."""
    names: dict[str, Any] = {"__name__": module}
    exec("def wrapper(wrapped, instance, args, kwargs):\n    return wrapped(*args, **kwargs)", names)
    monkeypatch.setattr(owner, name, FunctionWrapper(owner.__dict__[name], names["wrapper"]))


NEIGHBOURS = {
    "a tool that is known": (
        "opentelemetry.instrumentation.openai_v2.patch",
        "tool.opentelemetry-instrumentation-openai-v2",
        Level.NOTE,
        "told on that span",
    ),
    "a tool nobody knows": ("acme_tracing.openai", "tool.acme_tracing", Level.WARNING, "told twice"),
}


@pytest.mark.parametrize(("module", "key", "level", "told"), NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_who_has_patched_the_sdk_is_told(
    module: str, key: str, level: Level, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _patch_as(module, completions.Completions, "create", monkeypatch)
    found = by_key(others.others({}))[key]
    assert (found.level, found.data["active"]) == (level, True)
    assert told in found.detail
    assert "on Completions.create" in found.detail


@pytest.mark.parametrize(
    ("disabled", "off"), [("", False), ("requests, acme", True), ("*", True), ("stallwatch", False)]
)
def test_an_instrumentor_that_the_loader_would_load_is_told(
    disabled: str, off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, requires in {"acme": 'openai>=1; extra == "instruments"', "other": "requests"}.items():
        info = tmp_path / f"{name}_tracing-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}-tracing\nVersion: 1.0\n"
            f"Requires-Dist: {requires}\nRequires-Dist: not a requirement\n"
        )
        (info / "entry_points.txt").write_text(
            f"[opentelemetry_instrumentor]\n{name} = {name}_tracing:Instrumentor\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = by_key(others.others({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": disabled}))
    assert found.keys() & {"entry-point.acme", "entry-point.other", "nobody"} == {"entry-point.acme"}
    acme = found["entry-point.acme"]
    assert (acme.level, acme.data["distribution"], acme.data["disabled"]) == (Level.NOTE, "acme-tracing", off)
