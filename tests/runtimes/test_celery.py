"""celery's prefork pool, over a broker that is a folder: the worker's children guard their own calls."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from support.children import spawn
from support.leaks import wait_until
from support.places import Place
from support.servers import environment
from support.traffic import check

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("celery") is None, reason="celery is not installed"),
]

TASKS = """
import os
from celery import Celery
from support.traffic import sync_traffic

here = os.environ["HERE"]
app = Celery("tasks", broker="filesystem://", backend="file://" + here + "/results")
app.conf.broker_transport_options = {
    "data_folder_in": here + "/queue", "data_folder_out": here + "/queue", "control_folder": here + "/control"}
app.conf.worker_hijack_root_logger = False

# The worker has had calls of its own before it forks its children.
if os.environ.get("WARM"):
    sync_traffic(os.environ["GATEWAY"], names=["healthy", "cancelled"])

@app.task
def play():
    return sync_traffic(os.environ["GATEWAY"])
"""

ASK = """
import json, os, sys
sys.path.insert(0, os.environ["HERE"])
from tasks import play
waiting = [play.delay() for _ in range(2)]
print(json.dumps([each.get(timeout=40) for each in waiting]))
"""


def test_prefork(plain: Place, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    for folder in ("queue", "results", "control"):
        (tmp_path / folder).mkdir()
    log = tmp_path / "worker.log"
    variables = {"HERE": str(tmp_path), "GATEWAY": plain.base_url}
    with log.open("w") as out:
        worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "celery",
                "-A",
                "tasks",
                "worker",
                "-P",
                "prefork",
                "-c",
                "2",
                "-l",
                "INFO",
            ],
            cwd=tmp_path,
            env=environment(tmp_path, WARM="1", **variables),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: worker.poll() is not None or " ready." in log.read_text(), log.read_text, 40)
        (told,), _ = spawn(ASK, **variables).finish(50)
    finally:
        worker.terminate()
        worker.wait(20)
    assert len(told) == 2, log.read_text()
    for each in told:
        check(each)
