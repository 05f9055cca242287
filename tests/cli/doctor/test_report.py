"""Findings, the report for people and for programs, and what is never told."""

from __future__ import annotations

import json

import pytest

from stallwatch.cli.doctor.report import Finding, Level, Report, Section, note, ok, problem, warning
from stallwatch.cli.doctor.secrets import Secrets, origin
from stallwatch.cli.doctor.show import plain
from stallwatch.version import __version__


def _report(*findings: Finding) -> Report:
    return Report(sections=(Section(key="one", title="One", findings=findings, lead="A sentence."),))


GOOD = ok("a", "title a", "value a", "detail a", number=1)
KNOWN = note("b", "title b", "value b")
ODD = warning("c", "title c", "value c", "do this", "detail c")
BAD = problem("d", "title d", "value d", "do that", "detail d")


@pytest.mark.parametrize("level", [Level.OK, Level.NOTE])
def test_advice_stands_only_where_something_is_wrong(level: Level) -> None:
    with pytest.raises(ValueError, match="advice"):
        Finding(key="k", level=level, title="t", advice="do")


@pytest.mark.parametrize("level", [Level.WARNING, Level.PROBLEM])
def test_what_is_wrong_has_advice(level: Level) -> None:
    with pytest.raises(ValueError, match="advice"):
        Finding(key="k", level=level, title="t")


WORST = {
    "nothing": ((), Level.OK, 0),
    "fine": ((GOOD,), Level.OK, 0),
    "a note": ((KNOWN, GOOD), Level.NOTE, 0),
    "a warning": ((GOOD, ODD, KNOWN), Level.WARNING, 0),
    "a problem": ((BAD, ODD), Level.PROBLEM, 1),
}


@pytest.mark.parametrize(("findings", "worst", "code"), WORST.values(), ids=WORST.keys())
def test_only_a_problem_makes_the_exit_code_1(findings: tuple[Finding, ...], worst: Level, code: int) -> None:
    report = _report(*findings)
    assert (report.worst, report.exit_code) == (worst, code)


def test_the_json_has_every_finding_under_its_section() -> None:
    told = json.loads(_report(GOOD, BAD).to_json())
    assert told == {
        "format": 1,
        "stallwatch": __version__,
        "worst": "problem",
        "exit_code": 1,
        "sections": {
            "one": {
                "title": "One",
                "lead": "A sentence.",
                "findings": [
                    {
                        "key": "a",
                        "level": "ok",
                        "title": "title a",
                        "value": "value a",
                        "detail": "detail a",
                        "advice": "",
                        "data": {"number": 1},
                    },
                    {
                        "key": "d",
                        "level": "problem",
                        "title": "title d",
                        "value": "value d",
                        "detail": "detail d",
                        "advice": "do that",
                        "data": {},
                    },
                ],
            }
        },
    }


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_text_fits_and_says_what_to_do_and_where(width: int) -> None:
    lines = list(plain(_report(GOOD, KNOWN, ODD, BAD), width))
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "-> do this" in text
    assert "-> do that" in text
    assert lines[-3:] == [
        "1 problem, 1 warning:",
        "  problem  One: title d value d",
        "  warning  One: title c value c",
    ]


def test_when_nothing_is_wrong_it_says_so_last() -> None:
    assert list(plain(_report(GOOD, KNOWN)))[-1] == "Nothing is wrong."


HIDDEN = {
    "a key of the environment": "my sentinel-of-key here",
    "a header of the exporter": "x-token: sentinel-of-header",
    "a bearer header": "sentinel-of-bearer",
    "an encoded header": "sentinel of code",
    "credentials of an address": "http://sentinel-user:sentinel-pass@proxy:3128/x",
    "a user's name alone": "the name sentinel-user",
    "a query": "https://host/v1?api-key=sentinel-query",
    "something like a key": "sk-sentinel12345",
    "a header's value": "Authorization: Bearer sentinel",
}
ENVIRON = {
    "OPENAI_API_KEY": "sentinel-of-key",
    "OTEL_EXPORTER_OTLP_HEADERS": (
        "a=sentinel-of-header,authorization=Bearer%20sentinel-of-bearer,b=sentinel%20of%20code"
    ),
    "HTTPS_PROXY": "http://sentinel-user:sentinel-pass@proxy:3128",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN.keys())
def test_secrets_are_hidden_wherever_they_stand(text: str) -> None:
    hide = Secrets(ENVIRON).hide
    assert "sentinel" not in hide(text)
    data = {"deep": [text, {"deeper": text}], "number": 3}
    report = _report(warning(text, text, text, text, text, **data)).without(hide)
    assert "sentinel" not in report.to_json().replace('"key": ' + json.dumps(text), "")
    assert "sentinel" not in "\n".join(plain(report))


PLAIN_WORDS = (
    "STALLWATCH_FIRST_TOKEN_TIMEOUT",
    "did you mean STALLWATCH_TOTAL_TIMEOUT?",
    "authorization",
    "pip install 'httpx[http2]'",
    "http://localhost:4317",
    "first_token",
)


@pytest.mark.parametrize("text", PLAIN_WORDS)
def test_ordinary_words_are_left_alone(text: str) -> None:
    hide = Secrets({**ENVIRON, "STALLWATCH_FIRST_TOKEN_TIMEOUT": "120 seconds", "SHORT_KEY": "first"}).hide
    assert hide(text) == text
    assert hide("120 seconds") == "120 seconds"


def test_what_a_terminal_would_obey_or_cannot_encode_is_written_out() -> None:
    assert Secrets({}).hide("a\x1b[31mb\ud83dc\nd é") == r"a\x1b[31mb\ud83dc\nd é"


ORIGINS = {
    "https://user:pass@host.example:8443/v1/path?query=1#f": "https://host.example:8443",
    "http://[::1]:4318/v1/traces": "http://[::1]:4318",
    "localhost:4317": "localhost:4317",
    "host": "host",
    "http://host:notaport/": "(not an address)",
    "": "(no host)",
}


@pytest.mark.parametrize(("url", "told"), ORIGINS.items())
def test_of_an_address_scheme_host_and_port_are_told(url: str, told: str) -> None:
    assert origin(url) == told
