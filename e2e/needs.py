"""The programs that the tests start: where they are, and how they get here if they are not.

The collector is built from the manifest in ``deploy/collector`` and kept in the user's cache. Prometheus and
Alertmanager are Debian's packages; they are installed if they are missing and the user may do so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from stallwatch.cli.demo.runner import check_runnable
from stallwatch.cli.extras import CannotRun

__all__ = ["ROOT", "Missing", "collector", "debian", "launcher", "provide"]

ROOT = Path(__file__).parents[1]

PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
}
"""Programs, and Debian's packages that bring them."""


class Missing(Exception):
    """Something the tests need is not there and cannot be brought."""


def provide() -> Iterator[str]:
    """Bring everything that is missing, telling what is used."""
    yield f"launcher      {launcher()}"
    if find_spec("opentelemetry.exporter.prometheus") is None:
        raise Missing("opentelemetry-exporter-prometheus is not installed: see requirements/dev.txt")
    yield from _install()
    for program in ("prometheus", "prometheus-alertmanager"):
        yield f"{program:<13} {debian(program)}"
    yield f"collector     {collector()}"


def launcher() -> str:
    """Return the path of ``opentelemetry-instrument``."""
    try:
        return check_runnable()
    except CannotRun as problem:
        raise Missing(str(problem)) from None


def debian(program: str) -> str:
    """Return the path of one of the programs of ``PACKAGES``."""
    found = which(program)
    if found is None:
        raise Missing(f"{program} is not installed: apt-get install {PACKAGES[program]}")
    return found


@cache
def collector() -> str:
    """Return the path of the collector; builds it the first time, which takes minutes and says so."""
    built = subprocess.run(
        [str(ROOT / "scripts" / "build-collector")], stdout=subprocess.PIPE, text=True, check=False
    )
    if built.returncode != 0:
        raise Missing("the collector could not be built; see above")
    return built.stdout.strip()


def _install() -> Iterator[str]:
    packages = sorted({package for program, package in PACKAGES.items() if which(program) is None})
    if not packages:
        return
    if which("apt-get") is None or os.geteuid() != 0:
        raise Missing(f"not installed, and not to be installed by this user: {', '.join(packages)}")
    yield f"installing    {', '.join(packages)}"
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if done.returncode != 0:
            sys.stderr.write(done.stdout.decode(errors="replace"))
            raise Missing(f"{' '.join(command)} failed; see above")
