"""Which releases the doctor takes for good."""

from __future__ import annotations

import openai
import pytest

from stallwatch.cli.doctor import telemetry, versions
from stallwatch.cli.doctor.attachment import By
from stallwatch.cli.doctor.report import Level
from support.findings import by_key
from support.markdown import ROOT


def test_the_newest_tested_releases_are_those_of_the_requirements() -> None:
    text = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    pins = dict(line.split("==") for line in text.splitlines() if "==" in line)
    assert {name: pins[name] for name in versions.NEWEST_TESTED} == versions.NEWEST_TESTED


RELEASES = {
    "the oldest": ("1.66.0", Level.OK),
    "the newest tested": (versions.NEWEST_TESTED["openai"], Level.OK),
    "a newer one": ("3.999.0", Level.NOTE),
    "too old": ("1.65.5", Level.PROBLEM),
    "too new": ("4.0.0", Level.PROBLEM),
    "not there": (None, Level.PROBLEM),
}


@pytest.mark.parametrize(("release", "level"), RELEASES.values(), ids=RELEASES.keys())
def test_the_sdks_release_is_judged(
    release: str | None, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = versions.installed
    monkeypatch.setattr(versions, "installed", lambda name: release if name == "openai" else real(name))
    found = by_key(versions.versions())["openai"]
    assert found.level is level
    assert found.data["version"] == release
    assert (">= 1.66, < 4" in found.detail + found.advice.replace(">=1.66,<4", ">= 1.66, < 4")) is (
        level is not Level.NOTE
    )


def test_the_http_library_is_the_one_the_sdk_stands_on() -> None:
    found = by_key(versions.versions())["http-library"]
    assert found.data["library"] == openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]
    assert found.value == f"{found.data['library']} {found.data['installed'][found.data['library']]}"


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ((), "asyncio and threads"),
        (("trio", "uvloop"), "asyncio and threads; installed: uvloop 9.9, trio 9.9"),
    ],
    ids=["none", "some"],
)
def test_loops_that_are_installed_are_told_beside_those_that_are_always_there(
    there: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, loops = versions.installed, ("uvloop", "trio", "gevent", "eventlet")
    monkeypatch.setattr(versions, "importable", lambda name: name in there)
    monkeypatch.setattr(versions, "installed", lambda name: "9.9" if name in loops else real(name))
    found = by_key(versions.versions())["event-loops"]
    assert found.value == told
    assert found.data["packages"] == dict.fromkeys(there, "9.9")


def test_without_the_otel_sdk_calls_are_guarded_and_nothing_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = versions.installed

    def without(name: str) -> str | None:
        return None if name.startswith(("opentelemetry-sdk", "opentelemetry-exporter")) else real(name)

    monkeypatch.setattr(versions, "installed", without)
    monkeypatch.setattr(telemetry, "installed", without)
    found = by_key(versions.versions())["opentelemetry"]
    assert (found.level, "spans and metrics go nowhere" in found.detail) == (Level.NOTE, True)
    exporters = by_key(telemetry.telemetry({}, By.NOBODY))["exporter"]
    assert (exporters.level, "pip install opentelemetry-distro" in exporters.detail) == (Level.NOTE, True)
