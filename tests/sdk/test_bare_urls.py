"""The address that rules see: without credentials, query and fragment, and otherwise as it was given."""

from __future__ import annotations

import pytest

from stallwatch.sdk.requests import bare_url


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("https://API.Example.com:8443/V1/", "https://api.example.com:8443/V1/"),
        ("https://user:pa@ss@api.example.com/v1?api-key=secret#part", "https://api.example.com/v1"),
        ("http://[::1]/v1", "http://[::1]/v1"),
        ("http://user:pass@[2001:DB8::1]:8080/v1", "http://[2001:db8::1]:8080/v1"),
        ("http://host:/v1", "http://host:/v1"),
        ("", "://"),
    ],
)
def test_what_rules_see_of_an_address(given: str, seen: str) -> None:
    assert bare_url(given) == seen
