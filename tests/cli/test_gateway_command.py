"""``stallwatch gateway`` as a process: what it prints, what it serves, how it stops."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trustme

from stallwatch.cli import gateway as command

MAIN = """
import argparse, sys
from stallwatch.cli import gateway
parser = argparse.ArgumentParser(prog="stallwatch")
gateway.add_parser(parser.add_subparsers(required=True))
arguments = parser.parse_args()
sys.exit(arguments.run(arguments))
"""


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", MAIN, "gateway", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def _line(process: subprocess.Popen[str], start: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line.removeprefix(start).strip()
    raise AssertionError(f"no line {start!r}; {process.stderr.read() if process.stderr else ''}")


def _ask(base_url: str, model: str, context: ssl.SSLContext | None = None) -> int:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hello"}]}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", body, {"connection": "close"})
    try:
        with urllib.request.urlopen(request, context=context, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_logs_and_stops_cleanly(how: signal.Signals) -> None:
    with _start(
        "--port", "0", "--model", "gpt-4o=error-status:code=418", "--default", "error-status:code=503"
    ) as process:
        base_url = _line(process, "base URL")
        ledger_url = _line(process, "ledger")
        assert _ask(base_url, "gpt-4o") == 418
        assert _ask(base_url, "anything") == 503
        with urllib.request.urlopen(ledger_url, timeout=5) as answer:
            assert [request["status"] for request in json.load(answer)["requests"]] == [418, 503]
        process.send_signal(how)
        out, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (0, "")
    lines = out.splitlines()
    assert "request 1: POST /v1/chat/completions model=gpt-4o attempt=0" in lines
    assert any(line.startswith("connection 1 closed by the ") for line in lines)
    assert lines[-1] == "stopped"
    assert not any("ledger" in line for line in lines if line.startswith("request"))


def test_it_serves_https(tmp_path: Path) -> None:
    authority = trustme.CA()
    pem = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with _start("--port", "0", "--certfile", str(pem)) as process:
        base_url = _line(process, "base URL")
        assert base_url.startswith("https://")
        assert _ask(base_url, "healthy:gap=0", context) == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def _parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="stallwatch")
    command.add_parser(parser.add_subparsers(required=True))
    return parser.parse_args(["gateway", *arguments])


def test_list_prints_the_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(_parse("--list")) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = lines.index("stall-after          role, tokens, then nothing")
    assert lines[begin + 1].split() == ["tokens=5", "tokens", "sent"]
    assert not any("|" in line or "`" in line for line in lines)


def test_on_a_terminal_list_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert command.run(_parse("--list")) == 0
    text = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "parameters, with their defaults" in text
    (line,) = [line for line in text.splitlines() if line.startswith("stall-after ")]
    assert "role, tokens, then nothing" in line
    assert "tokens=5  tokens sent" in line
    assert max(map(len, text.splitlines())) <= 120


def test_without_rich_a_terminal_gets_the_plain_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert command.run(_parse("--list")) == 0
    assert "never-responds       reads the request and never replies" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "gpt-4o=nope"), "'nope' is not a scenario"),
        (("--default", "nope"), "'nope' is not a scenario"),
        (("--keyfile", "k.pem"), "--keyfile needs --certfile"),
        (("--certfile", "/does/not/exist.pem"), "No such file"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert command.run(_parse("--port", "0", *arguments)) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--port", "99999"), ("--port", "x"), ("--model", "gpt-4o")])
def test_an_impossible_option_is_refused_by_the_parser(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        _parse(*arguments)
