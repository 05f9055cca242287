"""The examples in the documentation do what the pages say they do."""

from __future__ import annotations

import gc
import inspect
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import stallwatch
from stallwatch import OpenAIInstrumentor
from stallwatch.governing import patched
from stallwatch.settings import load
from stallwatch.testing import FaultGateway
from support.markdown import PAGES, Block, blocks

# Examples leave their clients to the collector, as programs do. Early releases of the SDK do not close them there.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

# Those that need a framework run in tests/frameworks, in its environment.
BLOCKS = [block for page in PAGES for block in blocks(page) if block.needs is None]


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultGateway]:
    """Examples reach the gateway the way programs reach a service: through the SDK's own variables."""
    with FaultGateway(default="healthy") as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        try:
            yield running
        finally:
            if OpenAIInstrumentor().is_instrumented_by_opentelemetry:
                OpenAIInstrumentor().uninstrument()
            # Clients that an example guarded are garbage by now; taking back a last one takes the patches away.
            gc.collect()
            with openai.OpenAI() as client:
                stallwatch.unguard(client)
            assert patched() == []


def alike(text: str) -> str:
    """Blur measured times, which are never the same twice."""
    return re.sub(r"\d+\.\d+ s", "#.## s", re.sub(r"received: \d+", "received: #", text)).strip()


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=str)
def test_an_example_runs_and_prints_what_the_page_says(
    block: Block, gateway: FaultGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    if block.model is not None:
        gateway.script(block.model, *(block.scenario or "healthy").split(">"))
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block.code, str(block), "exec", dont_inherit=True), names)
    for name, test in list(names.items()):
        if name.startswith("test_") and callable(test):
            wanted = {"stall_gateway": gateway}
            test(*(wanted[parameter] for parameter in inspect.signature(test).parameters))
            gateway.reset_ledger()
    if block.prints is not None:
        assert alike(capsys.readouterr().out) == alike(block.prints)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=str)
def test_a_policy_file_is_understood_whole(
    block: Block, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(block.code, encoding="utf-8")
    layers = load({}, policy_file=path)
    assert caplog.messages == []
    assert len(layers.rules) == len(tomllib.loads(block.code)["rule"])


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.scenario not in (None, "healthy")], ids=str
)
def test_an_example_with_a_fault_names_the_gateway_that_reproduces_it(block: Block) -> None:
    command = shlex.split(block.code.splitlines()[0])
    assert command[:4] == ["#", "stallwatch", "gateway", "--port"]
    assert command[command.index("--model") + 1] == f"{block.model}={block.scenario}"
    assert ("gpt-4o-mini" in block.code) is (command[-2:] == ["--default", "healthy"])


def test_every_marked_block_is_of_a_kind_that_is_run() -> None:
    assert {block.language for block in BLOCKS} <= {"python", "toml"}
    assert len(BLOCKS) >= 10
