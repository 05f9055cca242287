"""What the doctor looks at without making a call: each finding says what is so here."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import openai
import openai._base_client as base
import pytest
from openai.resources.chat import completions
from wrapt import FunctionWrapper

import stallwatch
from stallwatch.cli.doctor import attachment, network, others, telemetry, versions
from stallwatch.cli.doctor.attachment import By
from stallwatch.cli.doctor.examination import asked_for, examine, sections
from stallwatch.cli.doctor.limits import Asked, limits, resolved_for, settings
from stallwatch.cli.doctor.report import Finding, Level, Section
from stallwatch.governing import patched
from stallwatch.sdk.seams import CARRIES
from stallwatch.settings import load
from support.markdown import ROOT
from support.telemetry import instrumented


def by_key(section: Section) -> dict[str, Finding]:
    found = {finding.key: finding for finding in section.findings}
    assert len(found) == len(section.findings), "keys are unique within a section"
    return found


@pytest.fixture(autouse=True)
def no_settings_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("STALLWATCH_", "OTEL_", "OPENAI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


# Versions


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


# What is patched


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


# Who else


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


# Where spans and metrics go

OTEL: dict[str, tuple[dict[str, str], str, Level, str]] = {
    "switched off by name": (
        {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "requests, stallwatch"},
        "disabled",
        Level.PROBLEM,
        "'stallwatch'",
    ),
    "all switched off": ({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"}, "disabled", Level.PROBLEM, "'*'"),
    "others switched off": (
        {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "requests"},
        "disabled",
        Level.NOTE,
        "requests",
    ),
    "the SDK switched off": (
        {"OTEL_SDK_DISABLED": "True"},
        "sdk-disabled",
        Level.WARNING,
        "OTEL_SDK_DISABLED",
    ),
    "otlp over http": (
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
        "exporter.traces",
        Level.OK,
        "http://localhost:4318",
    ),
    "an endpoint with everything": (
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://u:p@otel.example:4318/x?y=z",
        },
        "exporter.metrics",
        Level.OK,
        "https://otel.example:4318",
    ),
    "one signal elsewhere": (
        {
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:1/",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:2/",
        },
        "exporter.traces",
        Level.OK,
        "http://traces:1",
    ),
    "the port of the other protocol": (
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317",
        },
        "exporter.traces",
        Level.WARNING,
        "use port 4318",
    ),
    "an endpoint without a scheme": (
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
        "exporter.traces",
        Level.WARNING,
        "write http://collector:4318",
    ),
    "a file that decides": ({"OTEL_CONFIG_FILE": "otel.yaml"}, "config-file", Level.NOTE, "otel.yaml"),
    "a sampler that keeps nothing": (
        {"OTEL_TRACES_SAMPLER": "always_off"},
        "sampler",
        Level.WARNING,
        "no span",
    ),
    "a sampler": (
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
        "sampler",
        Level.NOTE,
        "traceidratio 0.1",
    ),
    "none": ({"OTEL_METRICS_EXPORTER": "none"}, "exporter.metrics", Level.NOTE, "OTEL_METRICS_EXPORTER"),
    "console": ({"OTEL_TRACES_EXPORTER": "console"}, "exporter.traces", Level.OK, "console"),
    "a protocol nobody speaks": (
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
        "exporter.traces",
        Level.WARNING,
        "smoke",
    ),
    "a protocol without its exporter": (
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        "exporter.traces",
        Level.WARNING,
        "pip install opentelemetry-exporter-otlp-proto-grpc",
    ),
}


@pytest.mark.parametrize(("environ", "key", "level", "told"), OTEL.values(), ids=OTEL.keys())
def test_otels_variables_are_understood(
    environ: Mapping[str, str], key: str, level: Level, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"opentelemetry-sdk", "opentelemetry-distro", "opentelemetry-exporter-otlp-proto-http"}
    monkeypatch.setattr(telemetry, "installed", lambda name: "1" if name in there else None)
    found = by_key(telemetry.telemetry(environ, By.DOCTOR))[key]
    assert found.level is level
    assert told in f"{found.value} {found.detail} {found.advice}"


def test_switched_off_for_the_loader_does_not_matter_to_a_program_that_instruments_itself() -> None:
    environ = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "stallwatch"}
    assert by_key(telemetry.telemetry(environ, By.PROGRAM))["disabled"].level is Level.NOTE


def test_the_providers_of_the_process_are_told_with_their_exporters(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    tracers = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter("http://u:sentinel@collector:4318/v1/traces")
    tracers.add_span_processor(BatchSpanProcessor(exporter))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    monkeypatch.setattr(telemetry.trace, "get_tracer_provider", lambda: tracers)
    monkeypatch.setattr(telemetry.metrics, "get_meter_provider", lambda: meters)
    try:
        found = by_key(telemetry.telemetry({}, By.PROGRAM))
    finally:
        tracers.shutdown()
        meters.shutdown()
    assert found["tracer-provider"].data["exporters"] == ["OTLPSpanExporter to http://collector:4318"]
    assert found["meter-provider"].data["exporters"] == ["InMemoryMetricReader"]


# What is set

FILE = """
[default]
total = 60

[[rule]]
name = "good"
model = "big-*"
idle = 7

[[rule]]
name = "bad"
idel = 7
"""


def test_a_setting_that_is_understood_is_ok_and_one_that_is_not_is_a_problem() -> None:
    found = by_key(
        settings(
            {
                "STALLWATCH_IDLE_TIMEOUT": "soon",
                "STALLWATCH_TOTAL_TIMEOUT": "2m",
                "STALLWATCH_TOTLE_TIMEOUT": "1",
                "STALLWATCH_GAPS": " ",
                "OTHER": "x",
            }
        )
    )
    assert len(found) == 4
    bad = found["variable.STALLWATCH_IDLE_TIMEOUT"]
    assert (bad.level, bad.value, bad.data["understood"]) == (Level.PROBLEM, "soon", False)
    assert "120 s" in bad.detail
    assert "'500ms'" in bad.advice
    assert found["variable.STALLWATCH_TOTAL_TIMEOUT"].level is Level.OK
    unknown = found["variable.STALLWATCH_TOTLE_TIMEOUT"]
    assert (unknown.level, "did you mean STALLWATCH_TOTAL_TIMEOUT?" in unknown.advice) == (
        Level.PROBLEM,
        True,
    )
    assert found["variable.STALLWATCH_GAPS"].level is Level.NOTE


def test_the_policy_file_is_told_with_what_is_wrong_in_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    found = by_key(settings({"STALLWATCH_POLICY_FILE": str(path)}))["policy-file"]
    assert (found.level, found.value) == (Level.PROBLEM, str(path))
    assert "idel is not a setting" in found.detail
    assert "1 rule and a [default]" in found.detail
    assert found.data["rules"] == ["good"]
    path.write_text(FILE.replace("idel", "idle"))
    found = by_key(settings({"STALLWATCH_POLICY_FILE": str(path)}))["policy-file"]
    assert (found.level, found.detail) == (Level.OK, "2 rules and a [default]")


def test_a_policy_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    found = by_key(settings({"STALLWATCH_POLICY_FILE": str(tmp_path / "no.toml")}))
    assert found["policy-file"].level is Level.PROBLEM
    assert found["variable.STALLWATCH_POLICY_FILE"].level is Level.OK


# Which limits a call gets


def _limits(environ: dict[str, str], **asked: Any) -> dict[str, Finding]:
    what = Asked(**asked)
    return by_key(limits(resolved_for(None, environ, what), environ, what))


def test_each_limit_is_told_with_the_layer_that_decided_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(FILE.replace("idel", "thinking"))
    environ = {"STALLWATCH_POLICY_FILE": str(path), "STALLWATCH_FIRST_TOKEN_TIMEOUT": "9"}
    found = _limits(environ, model="big-one", client_policy=stallwatch.Policy.of(connect=3))
    told = {key: (finding.value, finding.detail) for key, finding in found.items()}
    assert told["idle"] == ("7 s", "rule:good")
    assert told["total"] == ("60 s", "file")
    assert told["first_token"] == ("9 s", "environment")
    assert told["connect"] == ("3 s", "client")
    assert told["gaps"] == ("all", "built-in")
    assert found["decided-by"].value == "built-in < environment < rule:good < rule:bad < client"


WAITS = {
    "as built in": ({}, 2, Level.OK, 960.0),
    "a client that retries no more": ({}, 0, Level.OK, 240.0),
    "nothing bounds it": (
        {"STALLWATCH_TOTAL_TIMEOUT": "0", "STALLWATCH_FIRST_TOKEN_TIMEOUT": "0"},
        2,
        Level.WARNING,
        None,
    ),
}


@pytest.mark.parametrize(("environ", "retries", "level", "seconds"), WAITS.values(), ids=WAITS.keys())
def test_the_longest_wait_is_told(
    environ: dict[str, str], retries: int, level: Level, seconds: float | None
) -> None:
    found = _limits(environ, model="gpt-4o", max_retries=retries)["longest.first_token"]
    assert (found.level, found.data["seconds"]) == (level, seconds)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_mode_that_ends_nothing_is_one_warning(mode: str) -> None:
    found = _limits({"STALLWATCH_MODE": mode}, model="m")
    assert [key for key, finding in found.items() if finding.level is not Level.OK] == ["mode"]


def test_what_an_instrumented_program_has_set_in_code_counts() -> None:
    with instrumented(idle=4):
        found = by_key(next(s for s in examine(model="m").sections if s.key == "policy"))
    assert (found["idle"].value, found["idle"].detail) == ("4 s", "code")


# The network


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:sentinel@proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "direct.example")
    return


def _network(base_url: str, *, http2: bool = False) -> dict[str, Finding]:
    import os

    return by_key(network.network(os.environ, base_url, http2=http2))


def test_ending_a_call_is_proven_on_the_default_clients() -> None:
    found = _network("https://api.example/v1")
    assert found.keys() == {"default.sync", "default.async"}
    assert all(finding.data["proof"] == "proven" for finding in found.values())
    assert [finding.data["async"] for finding in found.values()] == [False, True]


@pytest.mark.usefixtures("proxied")
def test_a_proxy_of_the_environment_is_told_without_its_credentials() -> None:
    found = _network("https://api.example/v1")
    assert found["proxy.https"].value == "http://proxy.example:3128"
    assert found["default.sync"].data["by"] == "through the proxy http://proxy.example:3128"
    assert "sentinel" not in str(found)
    direct = _network("https://direct.example/v1")
    assert direct["default.async"].data["by"] == ""


@pytest.mark.skipif("socksio" in sys.modules, reason="SOCKS can be had")
def test_a_socks_proxy_without_its_library_is_told_before_the_program_finds_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:sentinel@proxy.example:1080")
    monkeypatch.setitem(sys.modules, "socksio", None)
    found = _network("https://api.example/v1")
    assert found["default.sync"].level is Level.PROBLEM
    assert "[socks]'" in found["default.sync"].advice
    assert "sentinel" not in str(found)


def test_http2_without_its_library_is_a_problem_with_the_command_that_mends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "importable", lambda _: False)
    found = _network("https://api.example/v1", http2=True)["http2"]
    assert (found.level, "[http2]'" in found.advice) == (Level.PROBLEM, True)


def test_http2_clients_are_told_of_by_themselves() -> None:
    pytest.importorskip("h2")
    found = _network("https://api.example/v1", http2=True)
    assert {"http2.sync", "http2.async"} <= found.keys()
    assert found["http2.sync"].data["transport"] == "HTTP/2"


# All of it


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
