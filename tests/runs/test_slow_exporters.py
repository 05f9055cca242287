"""An exporter that takes its time must not delay a cancel: ending what nobody ends and waking are two threads."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import stallwatch
from stallwatch.testing import FaultGateway
from support.bounds import LATE
from support.drivers import MESSAGES, SYNC


class Slow(SpanExporter):
    """Exports until it is let go."""

    def __init__(self) -> None:
        self.exporting, self.let_go = threading.Event(), threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        self.exporting.set()
        self.let_go.wait(10)
        return SpanExportResult.SUCCESS


def test_a_cancel_is_prompt_while_an_exporter_is_slow(gateway: FaultGateway, guarded: Any) -> None:
    slow = Slow()
    with guarded() as captured:
        captured.tracer_provider.add_span_processor(SimpleSpanProcessor(slow))
        with SYNC.client(gateway.base_url) as client:

            def opened() -> Any:
                stream = client.chat.completions.create(
                    model="stall-after:tokens=1,gap=0", messages=MESSAGES, stream=True
                )
                next(iter(stream))
                return stream

            dropped, read = opened(), opened()
            del dropped
            gc.collect()
            assert slow.exporting.wait(5), "the dropped stream's span is not ended"
            ended: list[float] = []
            with stallwatch.Run() as run:
                live = opened()

            def wait() -> None:
                with pytest.raises(stallwatch.RunCancelledError):
                    list(live)

            waiting = threading.Thread(target=wait)
            waiting.start()
            try:
                time.sleep(0.05)
                at = time.monotonic()
                run.cancel()
                ledger = gateway.wait_for(lambda ledger: ledger.requests[-1].peer_closed_at, 5)
                ended.append(ledger.requests[-1].peer_closed_at or 0.0)
            finally:
                slow.let_go.set()
                waiting.join()
            read.close()
    assert ended[0] - at < LATE
