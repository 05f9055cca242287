"""What the pages say in words is what the code does."""

from __future__ import annotations

import errno
import re

import openai
import pytest

from docs import telemetry_tables
from stallwatch.catalogue import ATTRIBUTES, EVENTS, METRICS, MODEL_CAP
from stallwatch.core import judging
from stallwatch.core.deadlines import EXTENDED_CAP, WHOLE_ANSWER_WAIT
from stallwatch.core.reasoning import asks_for_hidden_reasoning
from stallwatch.core.words import Mode, Outcome, Phase, Wire
from stallwatch.errors import StreamInactivityTimeoutError, StreamTimeoutError
from stallwatch.policy import Policy, Rule
from stallwatch.resolution import BUILT_IN, Layers, resolve
from stallwatch.testing.calls import LEDGER_PATH, RESET_PATH
from stallwatch.testing.ledger import RequestRecord
from support.markdown import ROOT, prose


def page(name: str) -> str:
    # Lines may be broken anywhere.
    return " ".join(prose(ROOT / "docs" / name).split())


def cells(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


@pytest.mark.parametrize("words", [Phase, Wire, Outcome, Mode])
def test_the_glossary_has_every_word_of_the_closed_lists(words: type[Phase | Wire | Outcome | Mode]) -> None:
    assert {word.value for word in words} <= cells(page("glossary.md"))


def test_every_attribute_and_event_has_a_meaning_and_no_other_has() -> None:
    assert set(telemetry_tables.MEANINGS) == set(ATTRIBUTES)
    assert set(telemetry_tables.EVENT_MEANINGS) == set(EVENTS)
    assert len(telemetry_tables.MEANINGS) == sum(
        map(len, (telemetry_tables.REQUEST, telemetry_tables.RESPONSE, telemetry_tables.OWN))
    )


def test_the_telemetry_page_counts_right() -> None:
    numbers = {13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen"}
    assert f"{numbers[len(METRICS)]} instruments" in page("telemetry.md")
    words = " ".join(page("telemetry.md").split())
    assert f"After {MODEL_CAP} combinations of operation, provider and model" in words


def test_every_outcome_is_explained_with_its_status() -> None:
    table = page("telemetry.md").partition("| outcome |")[2].partition("Before the request")[0]
    assert {outcome.value for outcome in Outcome} <= cells(table)


def test_the_errors_page_has_every_field() -> None:
    fields = set(StreamTimeoutError.__annotations__)
    assert fields <= cells(page("errors.md"))


@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high", "xhigh", "max", "none"])
def test_the_efforts_named_are_those_that_mean_silence(effort: str) -> None:
    sentence = re.search(r"asks for reasoning effort (.*?), or if its model", page("deadlines.md"))
    assert sentence is not None
    assert (effort in cells(sentence[1])) is asks_for_hidden_reasoning(None, effort)


@pytest.mark.parametrize(
    "model", ["openai/o3", "us.anthropic.o3", "ft:gpt-5", "azure/openai/gpt-5.2"], ids=lambda model: model
)
def test_vendor_prefixes_are_ignored(model: str) -> None:
    assert asks_for_hidden_reasoning(model, None)
    assert not asks_for_hidden_reasoning(model, "none")


def test_the_numbers_in_the_text_are_those_of_the_code() -> None:
    deadlines, design = page("deadlines.md"), page("design.md")
    assert (
        f"`keepalive_factor` ({BUILT_IN.keepalive_factor:g}) times as long, but at most {EXTENDED_CAP:g} s"
        in deadlines
    )
    assert f"after {WHOLE_ANSWER_WAIT:g} s of silence" in deadlines
    assert f"at most {judging.ROUNDS} rounds and {judging.PATIENCE * 1000:g} ms" in design
    assert f"more than {judging.LATE * 1000:g} ms late" in design
    assert f"grant {judging.GRACE * 1000:g} ms once" in design


LAYERS = Layers(
    environment=Policy.of(idle=5),
    code=Policy.of(idle=4),
    rules=[Rule(name="early", policy=Policy.of(idle=3.5)), Rule(name="late", policy=Policy.of(idle=3))],
)


@pytest.mark.parametrize(
    ("layers", "client", "calls", "idle", "rule"),
    [
        (LAYERS, Policy.of(idle=2), [Policy.of(idle=1.5), Policy.of(idle=1)], 1, "call"),
        (LAYERS, Policy.of(idle=2), [], 2, "client"),
        (LAYERS, None, [], 3, "rule:late"),
        (Layers(environment=LAYERS.environment, code=LAYERS.code), None, [], 4, "code"),
        (Layers(environment=LAYERS.environment), None, [], 5, "environment"),
        (Layers(), None, [], 120, "default"),
    ],
)
def test_layers_win_in_the_order_of_the_table(
    layers: Layers, client: Policy | None, calls: list[Policy], idle: float, rule: str
) -> None:
    resolved = resolve(layers, model="gpt-4o", base_url=None, client=client, calls=calls)
    assert (resolved.limits.idle, resolved.rule) == (idle, rule)
    assert f"`{rule.replace('late', 'NAME')}`" in page("configuration.md")


def test_the_ledger_is_described_with_its_own_names() -> None:
    testing = page("testing-your-app.md")
    table = testing.partition("| per request | |")[2].partition("Times are seconds")[0]
    described = {name for name in cells(table) if name.isidentifier()} - {"fin", "rst", "server"}
    assert described <= set(RequestRecord.__annotations__)
    assert LEDGER_PATH in testing
    assert RESET_PATH in testing


def test_modules_named_in_the_text_exist() -> None:
    named = {name for name in cells(page("design.md")) if name.endswith(".py")}
    assert named
    assert all((ROOT / "src" / "stallwatch" / name).is_file() for name in named)


DEADLINES = ("connect", "first_token", "thinking", "idle", "total")


@pytest.mark.parametrize("name", DEADLINES)
@pytest.mark.parametrize("off", [0, None, "off", -1])
def test_each_deadline_is_switched_off_by_itself(name: str, off: float | str | None) -> None:
    def limits(policy: Policy) -> dict[str, float | None]:
        found = resolve(Layers(code=policy), model="gpt-4o", base_url=None).limits
        return {deadline: getattr(found, deadline) for deadline in DEADLINES}

    built_in = limits(Policy())
    assert None not in built_in.values()
    assert limits(Policy.of(**{name: off})) == {**built_in, name: None}


def test_a_stall_has_the_code_that_the_readme_names() -> None:
    stall = StreamInactivityTimeoutError(phase=Phase.IDLE, limit=1, waited=1)
    assert (stall.errno, stall.code) == (errno.ETIMEDOUT, "ETIMEDOUT")
    assert "`errno.ETIMEDOUT`" in prose(ROOT / "README.md")


def test_the_readmes_first_table_tells_the_defaults_of_both() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("```\n")[2].partition("```")[0]
    rows = {line[:23].strip(): (line[23:66], line[66:]) for line in table.splitlines()}
    limits = resolve(Layers(), model="gpt-4o", base_url=None).limits
    patient = resolve(Layers(), model="o3", base_url=None).limits
    read = f"{openai.DEFAULT_TIMEOUT.read:g} s"
    for row in ("200, then silence", "stall in mid-answer", "not streamed,"):
        assert read in rows[row][0]
    assert (openai.DEFAULT_MAX_RETRIES, BUILT_IN.retry.max_retries) == (2, 2)
    assert "three times" in rows["not streamed,"][0]
    assert (
        f"asks again after {limits.first_token:g} s ({patient.first_token:g} s for models that"
        in (rows["200, then silence"][1])
    )
    assert "twice at most; then fails" in table
    for row in ("stall in mid-answer", "keepalives there"):
        assert rows[row][1] == f"fails after {limits.idle:g} s, phase idle"
    assert limits.first_token is not None
    extended = limits.first_token * BUILT_IN.keepalive_factor
    assert rows["empty chunks"][1] == f"fails after {extended:g} s, phase first_token"
