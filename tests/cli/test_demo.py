"""The demo for real: twenty programs, real sockets, real telemetry, and a collector beside the sink."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("rich")
pytest.importorskip("opentelemetry.distro")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from cli.test_page import Document
from stallwatch.cli.demo.child_env import RUN_ATTRIBUTE
from stallwatch.cli.demo.runner import program_of
from stallwatch.cli.demo.scenes import PLAIN_PROGRAM, SCENES
from stallwatch.cli.demo.sink import Sink

pytestmark = pytest.mark.skipif(
    "stallwatch" not in metadata.entry_points(group="opentelemetry_instrumentor").names,
    reason="opentelemetry-instrument finds only an installed package",
)


def _demo(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-m", "stallwatch.cli", "demo", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=150, check=False
    )


# A busy machine takes long to start twenty programs; what they do then takes 4 s.
@pytest.mark.timeout(180)
def test_every_scene_does_what_it_should(tmp_path: Path) -> None:
    with Sink() as collector:
        done = _demo(
            tmp_path, "--json", OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint, STALLWATCH_MODE="off"
        )
        passed_on = {
            span.resource[RUN_ATTRIBUTE]: span for span in collector.spans() if span.scope == "stallwatch"
        }
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert {record["scene"]["name"]: record["differences"] for record in told["scenes"]} == {
        scene.name: [] for scene in SCENES
    }
    assert (told["ok"], done.returncode) == (True, 0)
    for record in told["scenes"]:
        dead = record["scene"]["must_be_cut"]
        hangs = dead or record["scene"]["answered_by"] != "first"
        ends = (record["bare"]["end"], record["guarded"]["end"])
        assert ends == ("still waiting" if hangs else "completed", "timeout" if dead else "completed")
        assert passed_on[record["scene"]["name"]].attributes == {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record["guarded"]["span"]["attributes"].items()
        }
    streams = {
        series["attributes"]["stallwatch.outcome"]: series["value"]
        for series in told["metrics"]
        if series["name"] == "stallwatch.streams" and series["value"]
    }
    assert streams == {"stalled": 4, "completed": 6}
    Document((tmp_path / "stallwatch-demo.html").read_text(encoding="utf-8"))


@pytest.mark.timeout(120)
def test_into_a_pipe_goes_a_plain_table_and_the_pages_name(tmp_path: Path) -> None:
    done = _demo(tmp_path, "--scene", "healthy", "--output", "page.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "Healthy stream (async)" in done.stdout
    assert str(tmp_path / "page.html") in done.stdout


def test_the_program_knows_nothing_of_us() -> None:
    (program,) = {program_of(scene, guarded=False) for scene in SCENES}
    assert program.name == PLAIN_PROGRAM
    names = [
        name
        for node in ast.walk(ast.parse(program.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        )
    ]
    assert not [name for name in names if name.startswith(("stallwatch", "opentelemetry"))]
