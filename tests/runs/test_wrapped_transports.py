"""A transport that stands around the library's own hides nothing that a cancel needs."""

from __future__ import annotations

import importlib
import importlib.util
import threading
import time
from typing import Any

import openai
import pytest

import stallwatch
from stallwatch.testing import FaultGateway
from support.bounds import LATE
from support.drivers import MESSAGES

library: Any = importlib.import_module("httpx2" if importlib.util.find_spec("httpx2") else "httpx")


class Around(library.BaseTransport):  # type: ignore[misc,name-defined]
    """Hands on to another transport, as those that log or sign do."""

    def __init__(self) -> None:
        self.wrapped = library.HTTPTransport()

    def handle_request(self, request: Any) -> Any:
        return self.wrapped.handle_request(request)

    def close(self) -> None:
        self.wrapped.close()


@pytest.mark.parametrize("model", ["never-responds", "stall-after:tokens=0"])
def test_a_cancel_reaches_through_it(gateway: FaultGateway, guarded: Any, model: str) -> None:
    http = library.Client(transport=Around(), timeout=30)
    with (
        guarded(first_token=20, idle=20) as captured,
        openai.OpenAI(
            base_url=gateway.base_url, api_key="sk-test", http_client=http, max_retries=0
        ) as client,
        stallwatch.Run() as run,
    ):
        threading.Timer(0.2, run.cancel).start()
        began = time.monotonic()
        with pytest.raises(stallwatch.RunCancelledError):
            list(client.chat.completions.create(model=model, messages=MESSAGES, stream=True))
        assert time.monotonic() - began < 0.2 + LATE
    assert captured.attributes()["stallwatch.outcome"] == "cancelled"
