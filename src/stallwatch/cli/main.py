"""``stallwatch``: the command line.

What a command needs beyond the package's own dependencies is imported when it runs, so that help always works.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from stallwatch.cli.extras import CannotRun
from stallwatch.cli.help_text import HelpLayout
from stallwatch.version import __version__

__all__ = ["main"]

_DESCRIPTION = (
    "Every OpenAI-SDK call either makes progress or fails in bounded time, with the reason on its span."
)
_EPILOG = (
    "In a program: opentelemetry-instrument python app.py, or stallwatch.OpenAIInstrumentor().instrument()."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] | None = getattr(options, "run", None)
    if run is None:
        parser.print_help()
        return 2
    try:
        return run(options)
    except CannotRun as problem:
        print(f"stallwatch: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of a pipe such as `| head` has what it wanted; nothing more can or need be said.
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    from stallwatch.cli import gateway, policy
    from stallwatch.cli.demo import command as demo
    from stallwatch.cli.doctor import command as doctor

    parser = argparse.ArgumentParser(
        prog="stallwatch", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=HelpLayout
    )
    parser.add_argument("--version", action="version", version=f"stallwatch {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    demo.add_parser(commands)
    gateway.add_parser(commands)
    policy.add_parser(commands)
    doctor.add_parser(commands)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
