"""Draws the dashboards with the data of a Prometheus: ``python -m dashboards.preview URL --output DIR``.

A page for each dashboard, and a picture of it where there is a Chromium. What is drawn is a preview, not Grafana.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards.preview import page, photograph
from dashboards.preview.asking import Source
from dashboards.probe import HERE, Moment


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages and pictures; the status is 2 when there is no Prometheus to ask, or no picture to be had."""
    options = _parser().parse_args(argv)
    moment = Moment(until=options.until, span=options.span, window=options.window)
    options.output.mkdir(parents=True, exist_ok=True)
    browser = None if options.pages_only else photograph.camera()
    if browser is None and not options.pages_only:
        print("preview: no Chromium was found, so there are pages and no pictures", file=sys.stderr)
    for path in sorted(HERE.glob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        written = options.output / f"{path.stem}.html"
        try:
            written.write_text(page.draw(board, Source(options.prometheus, board, moment)), encoding="utf-8")
            print(written)
            if browser is not None:
                picture = options.output / f"{path.stem}.png"
                photograph.take(browser, written, picture, page.WIDTH + page.GAP, page.height(board))
                print(picture)
        except subprocess.CalledProcessError as problem:
            print(f"preview: {problem.stderr.decode(errors='replace')[-500:]}", file=sys.stderr)
            return 2
        except (OSError, subprocess.TimeoutExpired) as problem:
            print(f"preview: {problem}", file=sys.stderr)
            return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dashboards.preview", description=__doc__)
    parser.add_argument("prometheus", help="address of a Prometheus")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where to write")
    parser.add_argument(
        "--span", type=int, default=3600, metavar="SECONDS", help="how far to look back (default 3600)"
    )
    parser.add_argument("--until", type=float, metavar="UNIX", help="end of the time shown (default: now)")
    parser.add_argument(
        "--window", default="1m", metavar="DURATION", help="four times your scrape interval (default 1m)"
    )
    parser.add_argument("--pages-only", action="store_true", help="take no pictures")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
