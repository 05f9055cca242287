"""The doctor's page shows what the command prints, and names every key of its JSON."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import openai
import openai._base_client as base
import pytest

from stallwatch.cli.doctor.attachment import By, instrumented_to_look
from stallwatch.cli.doctor.collector import collector
from stallwatch.cli.doctor.endpoint import endpoint
from stallwatch.cli.doctor.examination import examine
from stallwatch.cli.doctor.limits import Asked
from stallwatch.cli.doctor.probe import probe
from stallwatch.cli.doctor.report import Level
from stallwatch.cli.doctor.telemetry import telemetry
from stallwatch.cli.main import main
from stallwatch.testing import FaultGateway
from support.markdown import ROOT

PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
LISTENING = "What listens where spans and metrics go"
OF_THIS_MACHINE = ("Versions", "Who else instruments the SDK", "Where spans and metrics go", LISTENING)


@pytest.fixture(autouse=True)
def no_settings_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("STALLWATCH_", "OTEL_", "OPENAI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def _shown() -> tuple[dict[str, str], list[str], str]:
    """Return the variables, the command and the output of the page's example."""
    block = re.search(r"<!-- doctor -->\n```console\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    lines = block[1].splitlines()
    exports = [line.removeprefix("$ export ").split() for line in lines if line.startswith("$ export ")]
    environ = dict(pair.split("=", 1) for pairs in exports for pair in pairs)
    (command,) = [line.split()[3:] for line in lines if line.startswith("$ stallwatch")]
    return environ, command, "\n".join(line for line in lines if not line.startswith("$"))


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"\n\n", re.sub(r"\d+\.\d\d s", "#.## s", text).strip())
    return {title: rest for title, _, rest in (part.partition("\n") for part in parts)}


def _titles(section: str) -> list[str]:
    # The level, the title, and two spaces after it.
    return [line[11:].split("  ")[0] for line in section.splitlines() if line[2:9].strip()]


def test_the_output_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environ, command, output = _shown()
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "112")
    main(["doctor", *command])
    printed, shown = _sections(capsys.readouterr().out), _sections(output)
    if "_sleep_for_retry" not in base.SyncAPIClient.__dict__:
        shown = {title: text.replace("_sleep_for_retry", "_retry_request  ") for title, text in shown.items()}
    if LISTENING not in printed:
        # No exporter is installed here.
        del shown[LISTENING]
    *titles, summary = shown
    assert list(printed)[:-1] == titles
    for title in titles:
        if title in OF_THIS_MACHINE:
            # What differs between machines: versions, and what is installed.
            assert _titles(printed[title]) == _titles(shown[title])
        else:
            assert printed[title] == shown[title]
    assert summary.startswith("1 problem")
    assert list(printed)[-1].startswith("1 problem")
    assert shown[summary].splitlines()[0] == printed[list(printed)[-1]].splitlines()[0]


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
