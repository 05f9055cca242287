"""``stallwatch doctor --client``: an object of the user's program, found by name and told as it is."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import stallwatch
from stallwatch import OpenAIInstrumentor
from stallwatch.cli.main import main
from stallwatch.governing import patched
from support.http_library import legacy

MODULE = """
import openai, stallwatch

print("a line of the program's")

class Box:
    client = openai.AsyncOpenAI(
        api_key="sentinel-of-the-key",
        base_url="https://user:sentinel-pass@gw.example:8443/sentinel/v1?k=sentinel-query",
        max_retries=0,
        timeout=30,
    )

client = openai.OpenAI(api_key="sentinel-of-the-key")
guarded = openai.OpenAI(api_key="sentinel-of-the-key", http_client=openai.DefaultHttpxClient(trust_env=False))
text = "not a client"

def make():
    return openai.OpenAI(api_key="sentinel-of-the-key")

def fail():
    raise ValueError("sentinel-of-an-error")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of a user's in the current directory; each test has its own, under the same name."""
    path = tmp_path / "shop_of_the_test.py"
    path.write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    yield path
    sys.modules.pop("shop_of_the_test", None)
    if OpenAIInstrumentor().is_instrumented_by_opentelemetry:
        OpenAIInstrumentor().uninstrument()
    # The module's clients are in cycles; unguarding any client takes the patches away when the last is gone.
    gc.collect()
    with openai.OpenAI(api_key="k") as client:
        stallwatch.unguard(client)
    assert patched() == []


def _told(name: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    main(["doctor", "--client", f"shop_of_the_test:{name}", "--model", "gpt-4o", "--json", *more])
    out = capsys.readouterr().out
    assert "sentinel" not in out
    sections = json.loads(out)["sections"]
    return {
        key: {finding["key"]: finding for finding in section["findings"]} for key, section in sections.items()
    }


@pytest.mark.usefixtures("program")
def test_a_client_is_told_with_its_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    told = _told("Box.client", capsys)
    client = told["client"]
    assert client["class"]["data"]["kind"] == "openai.AsyncOpenAI"
    assert client["class"]["data"]["default_http_client"] is not legacy()
    assert client["base-url"]["value"] == "https://gw.example:8443"
    assert client["max-retries"]["data"]["max_retries"] == 0
    assert client["transport"]["data"] == {
        "proof": "proven",
        "transport": "HTTP/1.1",
        "async": True,
        "by": "",
    }
    assert told["policy"]["decided-by"]["data"]["base_url"] == "https://gw.example:8443"
    assert told["policy"]["longest.first_token"]["data"]["seconds"] == 240
    # Tighter than the deadlines: its own timeout ends a silence first.
    assert (client["timeout"]["level"], client["timeout"]["data"]["read"]) == ("note", 30)


def test_a_client_without_a_timeout_of_its_own_is_told(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text(MODULE + "\nclient = client.with_options(timeout=None)\n")
    timeout = _told("client", capsys)["client"]["timeout"]
    assert (timeout["level"], timeout["data"]) == ("note", {"connect": None, "read": None})
    assert "wait for ever" in timeout["detail"]


@pytest.mark.usefixtures("program")
def test_a_client_that_nobody_governs_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("client", "make()"):
        told = _told(name, capsys)["client"]
        assert (told["governed"]["level"], told["governed"]["data"]["governed"]) == ("warning", False)
        assert told["timeout"]["level"] == "ok"
    assert patched() == []


def test_a_guarded_client_is_told_with_its_policy(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program.write_text(MODULE + "\nstallwatch.guard(guarded, policy=stallwatch.Policy.of(idle=7))\n")
    told = _told("guarded", capsys)
    assert told["client"]["governed"]["data"] == {"governed": True, "guarded": True}
    assert (told["policy"]["idle"]["value"], told["policy"]["idle"]["detail"]) == ("7 s", "client")


def test_a_program_that_instruments_itself_is_looked_at_as_it_is(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text(MODULE + "\nstallwatch.OpenAIInstrumentor().instrument(idle=9)\n")
    told = _told("client", capsys)
    assert told["seams"]["instrumented"]["data"]["by"] == "program"
    assert told["client"]["governed"]["level"] == "ok"
    assert (told["policy"]["idle"]["value"], told["policy"]["idle"]["detail"]) == ("9 s", "code")
    assert patched()


@pytest.mark.usefixtures("program")
def test_what_the_program_prints_does_not_get_into_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--client", "shop_of_the_test:client", "--json"])
    told = capsys.readouterr()
    assert "a line of the program's" in told.err
    json.loads(told.out)


WRONG = {
    "no name": ("shop_of_the_test", "write it as module:name"),
    "no module": ("no_such_module_here:client", "no module named 'no_such_module_here'"),
    "no attribute": ("shop_of_the_test:clint", "there is no 'clint'"),
    "no client": ("shop_of_the_test:text", "is a str, which is no client"),
    "a function not called": ("shop_of_the_test:make", "is a function, which is no client"),
    "a function that fails": ("shop_of_the_test:fail()", "the function raised ValueError"),
}


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(("name", "told"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_found_is_told_in_one_sentence(
    name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--client", name]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err
    assert "sentinel" not in said.err


def test_a_module_that_fails_is_told_without_its_text(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for raised in ("ValueError('sentinel')", "SystemExit(0)"):
        program.write_text(f"raise {raised}\n")
        assert main(["doctor", "--client", "shop_of_the_test:client"]) == 2
        told = capsys.readouterr().err
        assert f"importing shop_of_the_test raised {raised.partition('(')[0]}" in told
        assert "sentinel" not in told
