"""Pictures of pages, taken by a headless Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
WITHIN = 120.0


def camera() -> str | None:
    """Return the browser that can take pictures; None when there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def take(browser: str, page: Path, picture: Path, width: int, height: int) -> None:
    """Take a picture of a whole page.

    Raises subprocess.CalledProcessError, with what the browser said, or TimeoutExpired after two minutes.
    """
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            f"--screenshot={picture.resolve()}",
            page.resolve().as_uri(),
        ]
        if os.geteuid() == 0:
            # As root the browser refuses to start with its sandbox; the page is our own and runs no script.
            command.insert(1, "--no-sandbox")
        subprocess.run(command, check=True, capture_output=True, timeout=WITHIN)
