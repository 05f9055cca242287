"""The ``doctor`` command: its options, the calls it makes when asked to, its exit code."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stallwatch.cli.extras import CannotRun
from stallwatch.cli.help_text import HelpLayout
from stallwatch.cli.policy import add_effort

if TYPE_CHECKING:
    from stallwatch.cli.doctor.report import Section

__all__ = ["add_parser", "run"]

_DESCRIPTION = (
    "Says whether stallwatch works in this environment, and what it would do: versions, what is patched in the SDK, "
    "where spans and metrics go, what is set, which limits a call gets and why, and whether ending a call can be "
    "proven on its transport. Sends nothing unless --probe is given. Keys, credentials in addresses and query strings "
    "are never shown."
)
_EPILOG = """\
exit code:
  0  nothing is wrong; there may be warnings
  1  there is a problem: calls are not guarded, not observed, or not as they were meant to be
  2  the command was not understood or could not run

as your program is started:
  opentelemetry-instrument stallwatch doctor
  looks at a process that the loader has set up, with the providers and exporters that it gets.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``doctor`` command; its ``run`` default is the function to call with the parsed arguments."""
    parser = subparsers.add_parser(
        "doctor",
        help="say whether stallwatch works here, and what it would do",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=HelpLayout,
    )
    parser.add_argument("--model", help="the model of the call whose limits are asked for, e.g. gpt-5")
    parser.add_argument(
        "--base-url",
        type=_url,
        metavar="URL",
        help="where the call goes (default: the client's, OPENAI_BASE_URL, or OpenAI's own)",
    )
    add_effort(parser)
    parser.add_argument(
        "--client",
        metavar="MODULE:NAME",
        help="import a client object of your program and look at it, e.g. shop.llm:client; NAME() calls a function",
    )
    parser.add_argument("--http2", action="store_true", help="look also at clients that speak HTTP/2")
    parser.add_argument(
        "--probe",
        action="store_true",
        help="make calls against a server on loopback that misbehaves, and see that each ends as it must; see whether "
        "anything listens where spans and metrics go; with "
        "--base-url and --model also one small call to that endpoint, with the key in OPENAI_API_KEY",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        well = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        well = False
    if not well:
        # Not quoted: it may hold a password.
        raise argparse.ArgumentTypeError("this is not allowed; allowed: http://HOST... or https://HOST...")
    return text


def run(options: argparse.Namespace) -> int:
    """Look, tell, and return the exit code."""
    from stallwatch.cli.doctor.report import Report
    from stallwatch.cli.doctor.show import show

    if options.probe and options.base_url is not None and not options.model:
        raise CannotRun("--probe with --base-url needs --model: it makes one call to that endpoint")
    found, hide = _found(options)
    report = Report(sections=tuple(found)).without(hide)
    if options.json:
        print(report.to_json())
    else:
        show(report)
    return report.exit_code


def _found(options: argparse.Namespace) -> tuple[list[Section], Callable[[str], str]]:
    """Instrument where nobody has, look, and make the calls that were asked for."""
    from stallwatch.cli.doctor import attachment, examination, your_client
    from stallwatch.cli.doctor.collector import collector
    from stallwatch.governing import is_governed

    client = None if options.client is None else your_client.find(options.client)
    governed = client is not None and is_governed(client)
    secrets = examination.secrets_of(os.environ, client, options.base_url)
    with attachment.instrumented_to_look() as by:
        asked = examination.asked_for(
            os.environ, client, model=options.model, base_url=options.base_url, effort=options.effort
        )
        found = examination.sections(
            os.environ, asked, by=by, client=client, governed=governed, http2=options.http2
        )
        if options.probe:
            listening = collector(next(section for section in found if section.key == "telemetry"))
            found += [] if listening is None else [listening]
            found += _calls(options)
    return found, secrets.hide


def _calls(options: argparse.Namespace) -> list[Section]:
    from stallwatch.cli.doctor.endpoint import endpoint
    from stallwatch.cli.doctor.limits import Asked
    from stallwatch.cli.doctor.probe import probe
    from stallwatch.governing import in_force

    logger = logging.getLogger("stallwatch")
    level = logger.level
    # That the calls stall is what they are for; it need not be logged.
    logger.setLevel(logging.ERROR)
    try:
        made = [probe()]
        if options.base_url is not None and in_force() is not None:
            # The address as it was given, with what it may hold for the server alone.
            made.append(endpoint(os.environ, Asked(model=options.model, base_url=options.base_url)))
    finally:
        logger.setLevel(level)
    return made
