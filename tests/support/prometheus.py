"""A real Prometheus on loopback, on data that is there before it starts."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["installed", "running"]

installed = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus (Debian package prometheus) is missing"
)

READY_WITHIN = 30.0


@contextmanager
def running(folder: Path, *, rules: Path | None = None) -> Iterator[str]:
    """Start one on the blocks in ``folder/data``, scraping nothing; yields its address, and stops it in the end."""
    config = folder / "prometheus.yml"
    loaded = "" if rules is None else f"rule_files: ['{rules}']\n"
    config.write_text(f"global: {{evaluation_interval: 1s}}\n{loaded}", encoding="utf-8")
    address = f"127.0.0.1:{_free_port()}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=60d",
                f"--web.listen-address={address}",
                f"--web.external-url=http://{address}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            _wait_until_ready(f"http://{address}", process, folder / "prometheus.log")
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(10)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + READY_WITHIN
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"Prometheus did not become ready:\n{log.read_text(encoding='utf-8')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
