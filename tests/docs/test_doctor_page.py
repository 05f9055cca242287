"""The doctor's page shows what the command prints, and names every key of its JSON."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import openai
import pytest

from docs import doctor_example
from stallwatch.cli.doctor.attachment import By, instrumented_to_look
from stallwatch.cli.doctor.collector import collector
from stallwatch.cli.doctor.endpoint import endpoint
from stallwatch.cli.doctor.examination import examine
from stallwatch.cli.doctor.limits import Asked
from stallwatch.cli.doctor.probe import probe
from stallwatch.cli.doctor.report import Level
from stallwatch.cli.doctor.telemetry import telemetry
from stallwatch.testing import FaultGateway

PAGE = doctor_example.PAGE.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def no_settings_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("STALLWATCH_", "OTEL_", "OPENAI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def _titles(section: str) -> list[str]:
    # The level, the title, and two spaces after it.
    return [line[11:].split("  ")[0] for line in section.splitlines() if line[2:9].strip()]


def test_the_output_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = doctor_example.example()
    for name, value in {**shown.environ, "COLUMNS": str(doctor_example.WIDTH)}.items():
        monkeypatch.setenv(name, value)
    printed = doctor_example.printed(shown)
    kept = doctor_example.kept(shown.output, printed)
    assert doctor_example.alike(kept) == doctor_example.alike(shown.output), (
        "run python -m docs.doctor_example"
    )
    theirs, ours = doctor_example.sections(shown.output), doctor_example.sections(printed)
    for title in doctor_example.OF_THE_MACHINE:
        if title in ours and title != "Who else instruments the SDK":
            assert _titles(ours[title]) == _titles(theirs[title])
    *_, summary = ours
    assert summary.startswith("1 problem")
    assert ours[summary].splitlines()[0] == theirs[list(theirs)[-1]].splitlines()[0]


def _documented(section: str) -> list[re.Pattern[str]]:
    row = re.search(rf"^\| `{section}` \| (.*) \|$", PAGE, re.MULTILINE)
    assert row is not None, section
    names = re.findall(r"`([^`]+)`", row[1])
    # What is written in capitals stands for a name.
    return [re.compile(re.sub(r"[A-Z]{2,}", r"[\\w.-]+", name.replace(".", r"\."))) for name in names]


def test_every_key_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "STALLWATCH_IDLE_TIMEOUT": "30",
        "STALLWATCH_POLICY_FILE": "/nowhere/policy.toml",
        "OTEL_SDK_DISABLED": "true",
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "stallwatch",
        "HTTPS_PROXY": "http://proxy.example",
        "NO_PROXY": "direct.example",
    }.items():
        monkeypatch.setenv(name, value)
    found: list[Any] = []
    with openai.OpenAI(api_key="k") as client, instrumented_to_look():
        found += examine(client, http2=True).sections
        found.append(probe())
        found += filter(None, [collector(telemetry({"OTEL_TRACES_EXPORTER": "otlp"}, By.NOBODY))])
        with FaultGateway(default="healthy:tokens=1") as gateway:
            asked = Asked(model="m", base_url=gateway.base_url)
            found += [endpoint({"OPENAI_API_KEY": "k"}, asked), endpoint({}, asked)]
    for name in ("STALLWATCH_IDLE_TIMEOUT", "STALLWATCH_POLICY_FILE"):
        monkeypatch.delenv(name)
    found += examine().sections
    assert {section.key for section in found} == set(
        re.findall(r"^\| `([a-z]+)` \| (?:with|`)", PAGE, re.MULTILINE)
    )
    for section in found:
        known = _documented(section.key)
        unknown = [
            finding.key
            for finding in section.findings
            if not any(each.fullmatch(finding.key) for each in known)
        ]
        assert unknown == [], section.key


def test_every_level_and_field_is_documented() -> None:
    cells = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    told = json.loads(examine().to_json())
    assert {*map(str, Level), *told} <= cells
    fields = told["sections"]["versions"]["findings"][0]
    assert all(f"`{field}`" in PAGE for field in fields)
