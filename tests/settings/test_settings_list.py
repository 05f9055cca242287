"""The one list of what can be set."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stallwatch
from stallwatch import settings
from stallwatch.known_settings import BY_VARIABLE
from stallwatch.policy import Policy
from stallwatch.resolution import Layers, resolve
from stallwatch.settings import SETTINGS, settings_table

DOCUMENTED = {
    "STALLWATCH_MODE",
    "STALLWATCH_CONNECT_TIMEOUT",
    "STALLWATCH_FIRST_TOKEN_TIMEOUT",
    "STALLWATCH_THINKING_TIMEOUT",
    "STALLWATCH_IDLE_TIMEOUT",
    "STALLWATCH_TOTAL_TIMEOUT",
    "STALLWATCH_MAX_RETRIES",
    "STALLWATCH_PROGRESS",
    "STALLWATCH_KEEPALIVE_FACTOR",
    "STALLWATCH_GAPS",
    "STALLWATCH_SPAN_BACKSTOP",
    "STALLWATCH_POLICY_FILE",
}


def test_the_documented_variables_are_those_of_the_table() -> None:
    assert set(BY_VARIABLE) == DOCUMENTED


def test_every_variable_named_in_the_code_is_in_the_table() -> None:
    named: set[str] = set()
    for path in Path(stallwatch.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(re.findall(r"STALLWATCH_[A-Z_]*[A-Z]", node.value))
    assert named <= DOCUMENTED


def test_the_table_tells_everything_about_each_setting() -> None:
    lines = settings_table().splitlines()
    assert len(lines) == len(SETTINGS) + 2
    assert {line.count("|") for line in lines} == {6}
    for item, line in zip(SETTINGS, lines[2:], strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells == [
            f"`{item.variable}`" if item.variable else "",
            f"`{item.keyword}`",
            item.default,
            item.allowed,
            item.meaning,
        ]
        assert all((item.name, item.default, item.allowed, item.meaning))


def test_the_defaults_in_the_table_are_those_that_apply() -> None:
    usual = resolve(Layers(), model="gpt-4o", base_url=None)
    patient = resolve(Layers(), model="gpt-5", base_url=None)
    defaults = {item.keyword: item.default for item in SETTINGS}
    for name in ("connect", "first_token", "thinking", "idle", "total"):
        values = [getattr(resolved.limits, name) for resolved in (usual, patient)]
        assert [float(text) for text in re.findall(r"(\d+) s\b", defaults[name])] == list(
            dict.fromkeys(values)
        )
    assert defaults["mode"] == usual.mode
    assert defaults["gaps"] == usual.gaps
    assert int(defaults["max_retries"]) == usual.max_retries
    assert float(defaults["keepalive_factor"]) == usual.limits.keepalive_factor
    assert (defaults["progress"] == "chunk") is usual.limits.any_chunk_is_progress
    assert defaults["span_backstop"].startswith(f"{usual.backstop:g} s")


def test_every_policy_field_can_be_set_flat() -> None:
    flat = {item.keyword for item in SETTINGS} - {"span_backstop", "policy_file"}
    with pytest.raises(ValueError, match="choose from") as caught:
        Policy.of(nothing=1)
    assert flat == set(str(caught.value).partition("choose from ")[2].split(", ")) - {"deadlines", "retry"}


def test_the_readme_shows_the_table_as_make_readme_puts_it_there() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("<!-- settings: begin -->\n")[2].partition("<!-- settings: end -->")[0]
    assert shown == settings_table()


def test_the_module_gives_the_list_away() -> None:
    assert set(settings.__all__) == {"SETTINGS", "Setting", "load", "settings_table"}
