"""Writes the dashboards and the rules into this folder: ``python -m dashboards.generate``, from the project's root."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards import idle_timeout_slo, llm_streams, pipeline_health, rules
from dashboards.classic import JSONEncoder, models
from dashboards.objective import Objective

HERE = Path(__file__).parent


def boards(goal: Objective) -> dict[str, models.Dashboard]:
    """Return every dashboard by the name of its file."""
    return {
        "llm-streams.json": llm_streams.build(goal),
        "idle-timeout-slo.json": idle_timeout_slo.build(goal),
        "pipeline-health.json": pipeline_health.build(),
    }


def files(goal: Objective) -> dict[str, str]:
    """Return every generated file: its name and its text."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    written = {name: encoder.encode(board) + "\n" for name, board in boards(goal).items()}
    return {**written, "rules.yml": rules.render(goal)}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files, or with ``--check`` tell whether they are as they would be written."""
    options = _parser().parse_args(argv)
    try:
        goal = Objective(
            target=options.target,
            stuck_after=options.stuck_after,
            first_token=options.first_token,
            runbooks=options.runbooks.rstrip("/"),
            grafana=options.grafana.rstrip("/"),
        )
    except ValueError as problem:
        print(f"generate: {problem}", file=sys.stderr)
        return 2
    differing = []
    for name, text in files(goal).items():
        path = options.folder / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        differing.append(name)
        if not options.check:
            path.write_text(text, encoding="utf-8")
    for name in differing:
        print(f"{'differs' if options.check else 'written'}: {options.folder / name}")
    return 1 if options.check and differing else 0


def _parser() -> argparse.ArgumentParser:
    usual = Objective()
    parser = argparse.ArgumentParser(prog="python -m dashboards.generate", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a file would change"
    )
    parser.add_argument("--folder", type=Path, default=HERE, help="where to write (default: this folder)")
    parser.add_argument(
        "--target",
        type=float,
        default=usual.target,
        help=f"share of streams without a stall (default {usual.target})",
    )
    parser.add_argument(
        "--stuck-after",
        type=float,
        default=usual.stuck_after,
        metavar="SECONDS",
        help=f"a wait that none of your deadlines allows (default {usual.stuck_after:g})",
    )
    parser.add_argument(
        "--first-token",
        type=float,
        default=usual.first_token,
        metavar="SECONDS",
        help=f"within which 95 %% of the answers should have begun (default {usual.first_token:g})",
    )
    parser.add_argument(
        "--runbooks", default=usual.runbooks, metavar="URL", help="where runbooks.md is published"
    )
    parser.add_argument(
        "--grafana", default=usual.grafana, metavar="URL", help="your Grafana, for links in alerts"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
