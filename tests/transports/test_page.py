"""The page on transports has a row for each transport that is run here, and says of it what spans say."""

from __future__ import annotations

from typing import Any

from support.markdown import ROOT
from transports.roads import NAMES

TITLES = {
    "tcp": "TCP",
    "tls": "TLS",
    "proxy": "HTTP proxy, TLS inside",
    "tls in tls": "TLS in TLS",
    "unix": "Unix socket",
    "wrapped": "wrapped transport",
    "legacy httpx": "legacy `httpx` client on SDK 3.x",
    "aiohttp": "aiohttp",
    "http2": "HTTP/2",
}
WITHOUT_SOCKET = {
    ("custom, without a socket", "sync"): "none",
    ("custom, without a socket", "async"): "unproven",
}


def _rows() -> dict[tuple[str, str], dict[str, Any]]:
    text = (ROOT / "docs" / "transports.md").read_text(encoding="utf-8")
    table = text.split("## The table")[1].split("## ")[0]
    head, _, *lines = [line for line in table.splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in head.strip("|").split("|")]
    rows = [
        dict(zip(names, (cell.strip() for cell in line.strip("|").split("|")), strict=True)) for line in lines
    ]
    return {(row["transport"], row["kind"]): row for row in rows}


def test_each_transport_has_its_rows_and_the_rows_their_word() -> None:
    expected = {
        (TITLES[name], kind): "proven"
        for name in NAMES
        for kind in (("async",) if name == "aiohttp" else ("sync", "async"))
    }
    told = {key: row["interrupt"].strip("`") for key, row in _rows().items()}
    # What spans say on each of them is asserted by the tests of the roads, and of transports without a socket.
    assert told == {**expected, **WITHOUT_SOCKET}
