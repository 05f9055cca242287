"""What the page on security says in numbers and names is so."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata

import pytest

from stallwatch import settings
from stallwatch.catalogue import ATTEMPT_EVENT_CAP, ERROR_CAP, MODEL_CAP, STALL_EVENT_CAP
from stallwatch.core import budget, opening
from stallwatch.runtime import run_state
from stallwatch.sdk import chunks, codes
from stallwatch.telemetry.values import TEXT_CAP
from stallwatch.testing import FaultGateway
from support.children import spawn
from support.markdown import ROOT, prose

PAGE = " ".join(prose(ROOT / "SECURITY.md").split())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    "told",
    [
        f"{MODEL_CAP} combinations of operation, provider and model, {codes._UNKNOWN_CAP} unknown",
        f"{codes._UNKNOWN_CAP} unknown codes, {ERROR_CAP} error types, then `_OTHER`",
        f"up to {codes._UNKNOWN_CAP} unknown short codes are on metrics",
        f"{TEXT_CAP} characters of each, {chunks._REASONS_CAP} finish reasons",
        f"cut to {TEXT_CAP} characters",
        f"if it has {run_state._SECRET} characters or more",
    ],
)
def test_a_bound_is_that_of_the_code(told: str) -> None:
    assert told in PAGE


def test_bounds_told_in_words_are_those_of_the_code() -> None:
    assert (opening.LONGEST, settings._LONGEST) == (1 << 20, 1 << 20)
    assert "at most the first megabyte of a body is held back" in PAGE
    assert "an ordinary file of at most 1 MB" in PAGE
    assert budget.LONGEST_SERVER_WAIT == 120
    assert "waits over two minutes" in PAGE
    assert (STALL_EVENT_CAP, ATTEMPT_EVENT_CAP) == (8, 16)
    assert "events capped" in PAGE


def test_what_it_stands_on_is_what_it_requires() -> None:
    required = {re.split(r"[<>=~! ]", line)[0] for line in PROJECT["dependencies"]}
    table = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("| at run time |")[2]
    firsts = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in firsts for name in re.findall(r"`([\w-]+)`", cell)} == required | {
        "opentelemetry-semantic-conventions"
    }


@pytest.mark.parametrize("name", ["openai", "opentelemetry-api", "wrapt", "packaging"])
def test_its_licence_is_the_one_that_is_told(name: str) -> None:
    told = metadata(name)
    said = " ".join(
        [told.get("License-Expression") or "", told.get("License") or "", *told.get_all("Classifier", [])]
    )
    (row,) = (
        line
        for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{name}`")
    )
    licence = row.split(" | ")[1]
    words = {"Apache-2.0": "Apache", "BSD-2-Clause": "BSD"}
    assert (
        {word for short, word in words.items() if short in licence}
        == {word for word in words.values() if word in said}
        != set()
    )


WITHOUT_COMPILED_CODE = """
import asyncio, json, sys
import openai, stallwatch
from stallwatch.sdk.patches import FunctionWrapper

stallwatch.OpenAIInstrumentor().instrument(first_token=0.2, max_retries=0)
ASKED = {"model": "silent", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
OPTIONS = {"base_url": sys.argv[1], "api_key": "test"}
ended = []

def sync():
    with openai.OpenAI(**OPTIONS) as client:
        list(client.chat.completions.create(**ASKED))

async def asynchronous():
    async with openai.AsyncOpenAI(**OPTIONS) as client:
        [chunk async for chunk in await client.chat.completions.create(**ASKED)]

for run in (sync, lambda: asyncio.run(asynchronous())):
    try:
        run()
    except stallwatch.StreamTimeoutError as stall:
        ended.append(stall.phase)
print(json.dumps([type(FunctionWrapper.__init__).__name__, ended]))
"""


def test_calls_are_guarded_without_wrapts_compiled_code() -> None:
    with FaultGateway() as gateway:
        child = spawn(WITHOUT_COMPILED_CODE, gateway.base_url, WRAPT_DISABLE_EXTENSIONS="1")
        (said,), err = child.finish(30)
    assert said == ["function", ["first_token", "first_token"]]
    assert err == ""
    assert "the only dependency of ours with compiled code, and it works without" in PAGE
