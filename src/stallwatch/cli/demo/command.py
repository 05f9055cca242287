"""The ``demo`` command: its options, what it prints and its exit code."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stallwatch.cli.demo.scenes import SCENES
from stallwatch.cli.extras import CannotRun, need
from stallwatch.cli.help_text import HelpLayout

if TYPE_CHECKING:
    from rich.console import Console

    from stallwatch.cli.demo.record import Demonstration

__all__ = ["add_parser", "run"]

_DESCRIPTION = (
    "Runs a plain OpenAI program against a local gateway that misbehaves on purpose, ten scenes, each once bare and "
    "once under opentelemetry-instrument with short limits. Shows side by side what became of them, and writes an HTML "
    "page with a timeline of every stream. Everything stays on this machine."
)

_COLLECTOR = (
    "If OTEL_EXPORTER_OTLP_ENDPOINT (or a signal's own endpoint variable) is set, the traces and metrics of the "
    "guarded runs go there as well, as OTLP over HTTP (a collector listens on port 4318 for that), with the headers of "
    "OTEL_EXPORTER_OTLP_HEADERS. The demo's own sink takes them in first and passes them on unchanged, so the table is "
    "the same with and without a collector. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are respected; other "
    "OTEL_*, STALLWATCH_* and OPENAI_* variables of this shell are not passed to the programs."
)

_EPILOG = f"""\
exit code:
  0  every guarded run did what it should
  1  one did not; it is named
  2  the demo could not run

with a collector:
  {_COLLECTOR}
"""

_MODULES = ("rich", "opentelemetry.sdk", "opentelemetry.distro", "opentelemetry.exporter.otlp.proto.http")
_PLAIN_WIDTH = 160


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``demo`` command; its ``run`` default is the function to call with the parsed arguments."""
    parser = subparsers.add_parser(
        "demo",
        help="show dead and healthy streams, bare and guarded, side by side",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=HelpLayout,
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("stallwatch-demo.html"),
        metavar="FILE",
        help="where the page goes (default: stallwatch-demo.html in the current directory)",
    )
    parser.add_argument(
        "--scene",
        action="append",
        choices=[scene.name for scene in SCENES],
        metavar="NAME",
        help=f"play only this scene; may be repeated ({', '.join(scene.name for scene in SCENES)})",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON instead of a table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo."""
    need(*_MODULES)
    from rich.console import Console

    from stallwatch.cli.demo.child_env import surroundings
    from stallwatch.cli.demo.forward import collector_from
    from stallwatch.cli.demo.page import page
    from stallwatch.cli.demo.runner import Progress, check_runnable, demonstrate
    from stallwatch.cli.demo.table import live_line

    # With --json stdout belongs to the JSON alone.
    console = Console(stderr=options.json)
    if not console.is_terminal and console.width < _PLAIN_WIDTH and "COLUMNS" not in surroundings():
        console.width = _PLAIN_WIDTH
    launcher = check_runnable()
    _check_writable(options.output)
    scenes = [scene for scene in SCENES if not options.scene or scene.name in options.scene]
    progress = Progress()
    with live_line(console, progress, len(scenes)):
        demo = demonstrate(
            launcher, scenes=scenes, collector=collector_from(surroundings()), progress=progress
        )
    options.output.write_text(page(demo), encoding="utf-8")
    _tell(demo, options, console)
    return 0 if demo.ok else 1


def _check_writable(path: Path) -> None:
    """Find out before the demo runs, not after."""
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as problem:
        raise CannotRun(
            f"the page cannot be written to {path}: {problem.strerror}; choose another --output"
        ) from None


def _tell(demo: Demonstration, options: argparse.Namespace, console: Console) -> None:
    if options.json:
        sys.stdout.write(demo.to_json() + "\n")
        return
    from rich.padding import Padding
    from rich.text import Text

    from stallwatch.cli.demo.runner import program_of
    from stallwatch.cli.demo.table import results

    console.print(results(demo, console.width))
    programs = dict.fromkeys(
        str(program_of(record.scene, guarded)) for guarded in (False, True) for record in demo.scenes
    )
    console.print(Padding(Text(f"What was run: {', '.join(programs)}", style="dim"), (0, 1)))
    console.print(
        Padding(
            Text("The page with all timelines: ").append(str(options.output.resolve()), style="bold"), (0, 1)
        )
    )
