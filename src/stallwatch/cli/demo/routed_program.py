"""The plain program with a second route: the same call, made through a router.

``stallwatch demo`` runs this file as ``opentelemetry-instrument python routed_program.py ...``, where the bare side is
``program.py``. Both routes are the same service here; with real ones each client would have a base URL of its own.
"""

from __future__ import annotations

import argparse
import asyncio

import openai

from stallwatch import AsyncRouter, HedgePolicy, Route, Router
from stallwatch.cli.demo import program


def main() -> None:
    parser = program.command_line()
    parser.add_argument("--backup", required=True, help="the second route's model")
    parser.add_argument("--hedge", type=float, help="seconds after which the second route is asked beside it")
    options = parser.parse_args()
    if options.api == "async":
        asyncio.run(with_async_clients(options))
    else:
        with_clients(options)


def with_clients(options: argparse.Namespace) -> None:
    with openai.OpenAI() as first, openai.OpenAI() as second:
        routes = [
            Route(client=first, model=options.model, name="primary"),
            Route(client=second, model=options.backup, name="backup"),
        ]
        program.ask(Router(routes, hedge=hedging(options)).chat.completions, options)


async def with_async_clients(options: argparse.Namespace) -> None:
    async with openai.AsyncOpenAI() as first, openai.AsyncOpenAI() as second:
        routes = [
            Route(client=first, model=options.model, name="primary"),
            Route(client=second, model=options.backup, name="backup"),
        ]
        await program.ask_async(AsyncRouter(routes, hedge=hedging(options)).chat.completions, options)


def hedging(options: argparse.Namespace) -> HedgePolicy | None:
    # A share of 1, because the program makes one call only.
    return None if options.hedge is None else HedgePolicy(delay=options.hedge, max_share=1.0)


if __name__ == "__main__":
    main()
