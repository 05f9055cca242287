"""celery's prefork pool, over a broker that is a folder: the worker's children guard their own calls.

Alone, where the tasks instrument, and under opentelemetry-instrument, where nothing in the tasks knows of it.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.children import spawn
from support.leaks import wait_until
from support.places import Place
from support.servers import LAUNCH, TELEMETRY, environment, outcomes
from support.traffic import STORIES, check

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


LAUNCHED = """
import os, platform
from celery import Celery
import openai
from support.drivers import SYNC
from support.stage import Stage
from support.traffic import STORIES, client_options, play_at_once

here = os.environ["HERE"]
app = Celery("tasks", broker="filesystem://", backend="file://" + here + "/results")
app.conf.broker_transport_options = {
    "data_folder_in": here + "/queue", "data_folder_out": here + "/queue", "control_folder": here + "/control"}
# The SDK asks for it in its first request, which takes a process of its own.
platform.platform()
NAMES = [name for name, story in STORIES.items() if story.ends not in ("own", "drop")]

@app.task
def play():
    return play_at_once(Stage(SYNC), openai.OpenAI(**client_options(os.environ["GATEWAY"])), NAMES)
"""


@contextmanager
def working(here: Path, tasks: str, *launcher: str, **variables: str) -> Iterator[Path]:
    """Run a worker with these tasks, and yield the file of what it writes."""
    (here / "tasks.py").write_text(tasks)
    for folder in ("queue", "results", "control"):
        (here / folder).mkdir()
    log = here / "worker.log"
    with log.open("w") as out:
        worker = subprocess.Popen(
            [
                *launcher,
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
            cwd=here,
            env=environment(here, **variables),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: worker.poll() is not None or " ready." in log.read_text(), log.read_text, 40)
        yield log
    finally:
        worker.terminate()
        worker.wait(20)


def test_prefork(plain: Place, tmp_path: Path) -> None:
    variables = {"HERE": str(tmp_path), "GATEWAY": plain.base_url}
    with working(tmp_path, TASKS, WARM="1", **variables) as log:
        (told,), _ = spawn(ASK, **variables).finish(50)
    assert len(told) == 2, log.read_text()
    for each in told:
        check(each)


@pytest.mark.skipif(importlib.util.find_spec("opentelemetry.distro") is None, reason="no distro is installed")
def test_prefork_under_opentelemetry_instrument(plain: Place, tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text(LAUNCH)
    variables = {"HERE": str(tmp_path), "GATEWAY": plain.base_url}
    launcher = (sys.executable, "launch.py")
    with working(tmp_path, LAUNCHED, *launcher, **variables, **TELEMETRY) as log:
        (told,), _ = spawn(ASK, **variables).finish(50)
        expected = sorted(2 * [STORIES[name].outcome for name in told[0]])
        wait_until(lambda: outcomes(log.read_text()) == expected, lambda: log.read_text()[-3000:], 10)
    for said in told:
        check({"said": said, "spans": {f"{n}: {STORIES[n].outcome}": 1 for n in said}, "left": []})
