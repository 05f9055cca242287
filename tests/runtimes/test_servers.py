"""gunicorn with each kind of worker, preloaded or not, uvicorn with several; alone and under opentelemetry-instrument.

The application has a client of its own and uses it while it is imported: preloaded, that is before the fork.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from support.leaks import wait_until
from support.places import Place
from support.servers import LAUNCH, TELEMETRY, outcomes, serving
from support.traffic import STORIES, check

pytestmark = pytest.mark.slow

WSGI = """
import json, os, platform, threading
import openai, stallwatch
from support.drivers import SYNC
from support.stage import Stage
from support.telemetry import Captured
from support.traffic import LIMITS, STORIES, client_options, play_at_once, play_now, played, tell

platform.platform()
captured = Captured()
stallwatch.OpenAIInstrumentor().instrument(
    tracer_provider=captured.tracer_provider, meter_provider=captured.meter_provider, skip_dep_check=True, **LIMITS)
client = openai.OpenAI(**client_options(os.environ["GATEWAY"]))
play_now(tell(Stage(SYNC), client, "cancelled"))
captured.forget()

def app(environ, start_response):
    known = {thread.name for thread in threading.enumerate()}
    captured.forget()
    names = [name for name, story in STORIES.items() if story.ends != "own"]
    told = played(play_at_once(Stage(SYNC), client, names), captured, known=known)
    start_response("200 OK", [("content-type", "application/json")])
    return [json.dumps(told).encode()]
"""

ASGI = """
import asyncio, json, os
import openai, stallwatch
from support.traffic import async_traffic

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    told = await async_traffic(os.environ["GATEWAY"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(told).encode()})
"""


def _needs(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["", "preloaded"])
@pytest.mark.parametrize("worker", ["sync", "gthread", "gevent"])
def test_gunicorn(plain: Place, tmp_path: Path, worker: str, preload: list[str]) -> None:
    _needs("gunicorn", *(["gevent"] if worker == "gevent" else []))
    (tmp_path / "app.py").write_text(WSGI)
    if worker == "gevent" and preload:
        # Preloading imports the application before the worker can patch anything; see docs/runtimes.md.
        (tmp_path / "gunicorn.conf.py").write_text("from gevent import monkey\nmonkey.patch_all()\n")
    command = ("gunicorn", "-b", "127.0.0.1:PORT", "-k", worker, "-w", "2", "--threads", "4", *preload)
    with serving(tmp_path, *command, "app:app", GATEWAY=plain.base_url) as server:
        for _ in range(2):
            check(json.loads(server.get()))
    if worker != "gevent":
        # Under gevent the greenlets of the master go on in its forked children, and threading is loud about those.
        assert "Traceback" not in server.log


@pytest.mark.parametrize("how", ["uvicorn", "gunicorn"])
def test_uvicorn_workers(plain: Place, tmp_path: Path, how: str) -> None:
    _needs("uvicorn", *(["gunicorn", "uvicorn_worker"] if how == "gunicorn" else []))
    (tmp_path / "app.py").write_text(ASGI)
    command = ["uvicorn", "--port", "PORT", "--workers", "2"]
    if how == "gunicorn":
        command = ["gunicorn", "-b", "127.0.0.1:PORT", "-w", "2", "-k", "uvicorn_worker.UvicornWorker"]
    with serving(tmp_path, *command, "app:app", GATEWAY=plain.base_url) as server:
        for _ in range(2):
            check(json.loads(server.get()))


LAUNCHED = """
import asyncio, json, os, platform
import openai
from support.drivers import ASYNC, SYNC
from support.stage import Stage
from support.traffic import STORIES, client_options, play_at_once, tell

platform.platform()
NAMES = [name for name, story in STORIES.items() if story.ends not in ("own", "drop")]

def wsgi(environ, start_response):
    client = openai.OpenAI(**client_options(os.environ["GATEWAY"]))
    told = play_at_once(Stage(SYNC), client, NAMES)
    start_response("200 OK", [("content-type", "application/json")])
    return [json.dumps(told).encode()]

async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    async with openai.AsyncOpenAI(**client_options(os.environ["GATEWAY"])) as client:
        told = dict(zip(NAMES, await asyncio.gather(*(tell(Stage(ASYNC), client, name) for name in NAMES))))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(told).encode()})
"""

LAUNCHES = {
    "gunicorn sync": ("gunicorn", "-b", "127.0.0.1:PORT", "-w", "1", "app:wsgi"),
    "gunicorn gthread": ("gunicorn", "-b", "127.0.0.1:PORT", "-w", "1", "-k", "gthread", "app:wsgi"),
    "gunicorn preloaded": ("gunicorn", "-b", "127.0.0.1:PORT", "-w", "1", "--preload", "app:wsgi"),
    "uvicorn": ("uvicorn", "--port", "PORT", "app:asgi"),
}


@pytest.mark.parametrize("how", LAUNCHES)
def test_under_opentelemetry_instrument(plain: Place, tmp_path: Path, how: str) -> None:
    _needs(LAUNCHES[how][0], "opentelemetry.distro")
    (tmp_path / "app.py").write_text(LAUNCHED)
    (tmp_path / "launch.py").write_text(LAUNCH)
    launcher = ("launch", sys.executable, "-m", *LAUNCHES[how])
    expected = sorted(story.outcome for story in STORIES.values() if story.ends not in ("own", "drop"))
    with serving(tmp_path, *launcher, GATEWAY=plain.base_url, **TELEMETRY) as server:
        said = json.loads(server.get())
        wait_until(lambda: outcomes(server.log) == expected, lambda: server.log[-3000:], 10)
    check({"said": said, "spans": {f"{n}: {STORIES[n].outcome}": 1 for n in said}, "left": []})
