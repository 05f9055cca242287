"""The examination as a whole: for programs, without traces and without secrets."""

from __future__ import annotations

import asyncio

import openai
import pytest

from stallwatch.cli.doctor.attachment import By
from stallwatch.cli.doctor.examination import asked_for, examine, sections
from stallwatch.governing import patched
from stallwatch.settings import load


def test_examining_changes_nothing_and_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "OPENAI_API_KEY": "sk-sentinel-1",
        "OPENAI_BASE_URL": "https://u:sentinel-2@gw.example/v1/sentinel?k=sentinel-3",
        "OTEL_EXPORTER_OTLP_HEADERS": "k=sentinel-four",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:sentinel-5@otel.example:4317",
        "HTTP_PROXY": "http://u:sentinel-6@proxy.example",
        "STALLWATCH_IDLE_TIMEOUT": "sk-sentinel-7",
        "STALLWATCH_POLICY_FILE": "https://u:sentinel-8@files.example/p.toml?sentinel=9",
    }.items():
        monkeypatch.setenv(name, value)
    report = examine(model="gpt-4o")
    assert patched() == []
    assert "sentinel" not in report.to_json()
    assert "gw.example" in report.to_json()


def test_sections_come_in_a_fixed_order_and_a_client_adds_one() -> None:
    with openai.OpenAI(api_key="k") as client:
        asked = asked_for({}, client, model=None, base_url=None, effort=None)
        with_client = sections({}, asked, by=By.NOBODY, client=client, governed=False, http2=False)
    keys = ["versions", "seams", "others", "telemetry", "settings", "policy", "network"]
    assert [section.key for section in examine().sections] == keys
    assert [section.key for section in with_client] == [*keys[:5], "client", "policy"]


def test_a_process_can_be_examined_from_within_its_event_loop() -> None:
    async def story() -> str:
        async with openai.AsyncOpenAI(api_key="k") as client:
            return examine(client, model="m", http2=True).to_json()

    assert '"key": "default.async"' in asyncio.run(story())


def test_only_a_client_can_be_examined() -> None:
    with pytest.raises(ValueError, match="give an OpenAI client object"):
        examine(openai.OpenAI)


def test_rules_see_the_base_url_as_they_do_in_a_call() -> None:
    asked = asked_for({}, None, model="m", base_url="https://u:p@gw.example/v1?key=x", effort=None)
    assert asked.base_url == "https://gw.example/v1"
    assert load({}) == load({}, refused=lambda _: None)
