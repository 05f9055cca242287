"""``stallwatch gateway``: the fault gateway as a process of its own."""

from __future__ import annotations

import argparse
import signal
import ssl
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from stallwatch.cli import scenario_list
from stallwatch.cli.help_text import HelpLayout
from stallwatch.testing.calls import BadCall
from stallwatch.testing.gateway import FaultGateway
from stallwatch.testing.scenarios import SCENARIOS


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``gateway`` command; its ``run`` default is the function to call with the parsed arguments."""
    parser = subparsers.add_parser(
        "gateway",
        help="run a local model gateway that misbehaves on purpose",
        description="A local OpenAI-compatible server. The model name in the request chooses what goes wrong.",
        formatter_class=HelpLayout,
    )
    parser.add_argument(
        "--port", type=_port, default=8080, help="TCP port, 0 for any free one (default 8080)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1)")
    parser.add_argument("--list", action="store_true", help="print the scenarios and leave")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        type=_mapping,
        metavar="NAME=SCENARIO",
        help="let a model name play a scenario, e.g. gpt-4o=stall-after:tokens=3; may be repeated",
    )
    parser.add_argument(
        "--default", metavar="SCENARIO", help="scenario for every model name not known otherwise"
    )
    parser.add_argument("--certfile", help="PEM certificate chain; serves HTTPS")
    parser.add_argument("--keyfile", help="PEM private key, if not in the certificate file")
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: 0 to 65535")
    return int(text)


def _mapping(text: str) -> tuple[str, str]:
    name, equals, scenario = text.partition("=")
    if not (name and equals and scenario):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: NAME=SCENARIO")
    return name, scenario


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted; return the exit code."""
    if args.list:
        scenario_list.show(SCENARIOS.values())
        return 0
    if args.keyfile and not args.certfile:
        print("stallwatch gateway: --keyfile needs --certfile", file=sys.stderr)
        return 2
    try:
        gateway = _gateway(args)
        gateway.start()
    except (OSError, BadCall) as problem:
        where = f"{args.host}:{args.port}: " if isinstance(problem, OSError) else ""
        print(f"stallwatch gateway: {where}{problem}", file=sys.stderr)
        return 2
    try:
        with _until_told() as told:
            _say(f"base URL    {gateway.base_url}")
            _say(f"ledger      {gateway.ledger_url}")
            _say(
                "scenarios   by model name, e.g. healthy, silent, stall-after:tokens=5; all: stallwatch gateway --list"
            )
            _say("stop        Ctrl-C")
            told.wait()
    finally:
        gateway.stop()
    _say("stopped")
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _gateway(args: argparse.Namespace) -> FaultGateway:
    context = None
    if args.certfile:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(args.certfile, args.keyfile)
    gateway = FaultGateway(args.port, args.host, context, default=args.default, log=_say)
    for name, scenario in args.model:
        gateway.script(name, scenario)
    return gateway


@contextmanager
def _until_told() -> Generator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; puts the old handlers back."""
    told = threading.Event()

    def tell(_: int, __: FrameType | None) -> None:
        told.set()

    previous = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
