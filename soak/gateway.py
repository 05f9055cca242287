"""The fault gateway with the cases' scripts: ``python -m soak.gateway``; ``count`` on its stdin is answered on stdout.

The ledger keeps the newest requests only; its log has a line for each, and they are what is counted.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections import Counter

from soak.cases import CASES
from stallwatch.testing import FaultGateway

_REQUEST = re.compile(r"request \d+: .* model=(\S+) attempt=")


def main() -> None:
    """Serve until stdin ends."""
    lock, requests = threading.Lock(), Counter[str]()

    def note(line: str) -> None:
        if found := _REQUEST.match(line):
            with lock:
                requests[found[1]] += 1

    with FaultGateway(log=note, keep_requests=10, keep_sent=10) as gateway:
        for case in CASES:
            # The SDK's own count of attempts tells which one this is: many calls use one name at a time.
            gateway.script(case.name, *case.attempts, by_header=True)
        print(json.dumps({"base_url": gateway.base_url}), flush=True)
        for _ in sys.stdin:
            with lock:
                said = {"requests": dict(requests), "open": gateway.open_connections}
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
