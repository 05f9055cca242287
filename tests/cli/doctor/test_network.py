"""Proxies, transports, and whether ending a call can be proven there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from stallwatch.cli.doctor import network
from stallwatch.cli.doctor.report import Finding, Level
from support.findings import by_key


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:sentinel@proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "direct.example")
    return


def _network(base_url: str, *, http2: bool = False) -> dict[str, Finding]:
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
