"""A real Alertmanager with the configuration in ``deploy``, and the webhook it notifies."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.request
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from e2e.needs import ROOT, debian
from e2e.processes import Processes, free_ports
from e2e.waiting import until

__all__ = ["Alertmanager", "Notification", "Webhook"]

CONFIG = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
_SHIPPED = "http://127.0.0.1:9095"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One alert in a notification: by which receiver, firing or resolved, and everything that came with it."""

    receiver: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Webhook:
    """Takes notifications and keeps them; a context manager."""

    def __init__(self) -> None:
        self._kept: list[Notification] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._keep))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The base address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def notifications(self) -> list[Notification]:
        """Return what has come so far, oldest first."""
        with self._lock:
            return [*self._kept]

    def wait_for(self, alert: str, *, status: str, seconds: float, **labels: str) -> Notification:
        """Return the first notification of this alert in this state and with these labels."""
        wanted = {"alertname": alert, **labels}
        return until(
            lambda: [
                one
                for one in self.notifications()
                if one.status == status and one.labels.items() >= wanted.items()
            ],
            f"{wanted} is {status} at the webhook",
            seconds=seconds,
            telling=lambda: [(one.labels, one.status) for one in self.notifications()],
        )[0]

    def _keep(self, body: dict[str, Any]) -> None:
        with self._lock:
            self._kept += [
                Notification(
                    receiver=body["receiver"],
                    status=alert["status"],
                    labels=alert["labels"],
                    annotations=alert["annotations"],
                )
                for alert in body["alerts"]
            ]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Alertmanager:
    """The server, with short waits and the given webhook in the place of the shipped ones."""

    def __init__(self, processes: Processes, folder: Path, webhook: Webhook) -> None:
        self.port = free_ports(1)[0]
        self._processes = processes
        self._folder = folder / "alertmanager"
        self._folder.mkdir()
        shipped = CONFIG.read_text(encoding="utf-8")
        assert shipped.count(_SHIPPED) == 2, f"{CONFIG}: the webhooks are not where they were"
        short = re.sub(r"group_interval: \w+", "group_interval: 2s", shipped.replace(_SHIPPED, webhook.url))
        self.config = self._folder / "alertmanager.yml"
        self.config.write_text(re.sub(r"group_wait: \w+", "group_wait: 1s", short), encoding="utf-8")

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def check(self) -> None:
        """Have amtool check the configuration as it is shipped."""
        self._amtool("check-config", str(CONFIG))

    def receiver_of(self, **labels: str) -> str:
        """Return the receiver that an alert with these labels goes to."""
        pairs = [f"{name}={value}" for name, value in labels.items()]
        return self._amtool("config", "routes", "test", f"--config.file={CONFIG}", *pairs).split()[-1]

    def start(self) -> None:
        """Start it and wait until it is ready."""
        process = self._processes.start(
            "alertmanager",
            [
                debian("prometheus-alertmanager"),
                f"--config.file={self.config}",
                f"--storage.path={self._folder / 'data'}",
                f"--web.listen-address={self.address}",
                f"--web.external-url=http://{self.address}",
                # Or it opens a port for its peers on every interface.
                "--cluster.listen-address=",
            ],
        )
        until(
            lambda: not process.running or self._request("/-/ready"),
            "Alertmanager is ready",
            seconds=30,
            telling=process.told,
        )
        assert process.running, process.told()

    def post(self, **labels: str) -> None:
        """Raise an alert by hand."""
        self._request("/api/v2/alerts", json.dumps([{"labels": labels}]).encode())

    def _request(self, path: str, body: bytes | None = None) -> bool:
        request = urllib.request.Request(
            f"http://{self.address}{path}", data=body, headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            answer.read()
        return True

    def _amtool(self, *arguments: str) -> str:
        done = subprocess.run(
            [debian("amtool"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


def _handler(keep: Any) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keep(json.loads(self.rfile.read(int(self.headers.get("content-length", 0)))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Keep quiet."""

    return Handler
