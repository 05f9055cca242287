"""The examples of docs/frameworks.md are programs that know nothing of us, run under ``opentelemetry-instrument``."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from frameworks.installed import FRAMEWORKS, HERE
from stallwatch.testing import FaultGateway
from support.markdown import ROOT, Block, blocks

if not HERE:
    pytest.skip("no framework is installed here; see requirements/framework-*.txt", allow_module_level=True)

BLOCKS = list(blocks(ROOT / "docs" / "frameworks.md"))

LIMITS = {"STALLWATCH_FIRST_TOKEN_TIMEOUT": "0.3", "STALLWATCH_IDLE_TIMEOUT": "0.3"}
TELEMETRY = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
AT_HOME = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false"}

WATCHED = """
import os, runpy, sys

def watch(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] != "127.0.0.1":
        os.write(2, f"it went to {arguments[1]}".encode())
        os._exit(77)

sys.addaudithook(watch)
runpy.run_path(sys.argv[1], run_name="__main__")
"""

ENDS = {
    "langchain_openai": ["stalled"],
    "agents": ["stalled"],
    "pydantic_ai": ["stalled", "completed"],
    "llama_index.llms.openai": ["failed"],
    "litellm": ["stalled", "completed"],
    "instructor": ["stalled"],
}
"""The outcomes of the spans of each example, one for each call of the SDK."""

SPAN = re.compile(r'\{\n    "name".*?^\}\n', re.DOTALL | re.MULTILINE)


def _here(module: str | None) -> bool:
    try:
        return module is not None and importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def told(output: str) -> tuple[str, list[dict[str, Any]]]:
    """What a program printed, and the spans the console exporter wrote between."""
    spans = [json.loads(span) for span in SPAN.findall(output)]
    return re.sub(r" +$", "", SPAN.sub("", output).strip(), flags=re.MULTILINE), spans


@pytest.mark.parametrize("block", [block for block in BLOCKS if _here(block.needs)], ids=str)
def test_a_program_runs_without_a_line_of_ours(block: Block, gateway: FaultGateway, tmp_path: Path) -> None:
    assert block.needs is not None
    assert block.scenario is not None
    assert "stallwatch" not in block.code.partition("\n")[2]
    gateway.script("gpt-4o", block.scenario)
    gateway.script("gpt-4o-mini", "healthy")
    program = tmp_path / "app.py"
    program.write_text(block.code, encoding="utf-8")
    watched = tmp_path / "watched.py"
    watched.write_text(WATCHED, encoding="utf-8")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "STALLWATCH_"))
    }
    served = {"OPENAI_BASE_URL": gateway.base_url, "OPENAI_API_KEY": "test"}
    done = subprocess.run(
        [Path(sys.executable).parent / "opentelemetry-instrument", sys.executable, watched, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env={**kept, **LIMITS, **TELEMETRY, **AT_HOME, **served},
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    text, spans = told(done.stdout)
    assert text == (block.prints or "").strip()
    outcomes = [span["attributes"]["stallwatch.outcome"] for span in spans]
    assert outcomes == ENDS[block.needs]


def test_every_framework_has_an_example_that_names_its_gateway() -> None:
    assert len(BLOCKS) == len(FRAMEWORKS)
    for block in BLOCKS:
        command = shlex.split(block.code.splitlines()[0])
        assert command[:4] == ["#", "stallwatch", "gateway", "--port"]
        assert command[command.index("--model") + 1] == f"{block.model}={block.scenario}"
        assert ("gpt-4o-mini" in block.code) is (command[-2:] == ["--default", "healthy"])
