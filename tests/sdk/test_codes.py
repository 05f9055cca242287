"""Which codes of a response's own failure may become a metric attribute."""

from __future__ import annotations

from typing import Any

import pytest

from stallwatch.sdk import codes
from stallwatch.sdk.codes import code_of


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "_seen", codes._Seen())


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("server_error", "server_error"),
        ("Rate_Limit_Exceeded", "rate_limit_exceeded"),
        ("invalid_base64_image", "invalid_base64_image"),
        ("vendor.overloaded-now", "vendor.overloaded-now"),
        ("InternalServerError", "internalservererror"),
        ("429", "429"),
        ("http_503", "http_503"),
        ("utf8_decode", "utf8_decode"),
        ("x" * 40, "x" * 40),
        ("x" * 41, None),
        ("", None),
        ("your prompt was bad", None),
        ("naïve", None),
        ("a\n", None),
        ("lone\ud800", None),
        ("token_1234", None),
        ("error-20250101", None),
        ("req_000001", None),
        ("req_abcdefghijkl", None),
        ("resp-abcdefghijklmnop", None),
        ("deadbeef00c0ffee", None),
        ("3f2b8c1e-aaaa-bbbb-cccc-ddddeeeeffff", None),
        ("a1b2c3", None),
        (None, None),
        (429, None),
        (["server_error"], None),
    ],
    ids=repr,
)
def test_a_code_passes_in_lower_case_or_not_at_all(value: Any, code: str | None) -> None:
    assert code_of(value) == code


def test_every_code_that_the_sdk_lists_passes_and_counts_for_nothing() -> None:
    from typing import get_args

    from openai.types.responses import ResponseError

    listed = get_args(ResponseError.model_fields["code"].annotation)
    assert len(listed) > 10
    assert [code_of(code) for code in listed] == list(listed)
    assert not codes._seen._codes


def test_only_the_first_twenty_unknown_codes_of_a_process_pass() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    passed = [code for letter in letters if (code := code_of(f"vendor_{letter}")) is not None]
    assert passed == [f"vendor_{letter}" for letter in letters[:20]]
    assert code_of("VENDOR_A") == "vendor_a"
    assert code_of("vendor_z") is None
    assert code_of("server_error") == "server_error"
