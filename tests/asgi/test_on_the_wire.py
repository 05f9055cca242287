"""What the middleware must not disturb between a real server and its clients."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from asgi.served import Wire, served
from stallwatch.asgi import StallwatchMiddleware
from stallwatch.run import Run, current_run
from support.places import eventually

polled: list[Run] = []


async def digest(request: Request) -> Response:
    """Read the body slowly, piece by piece."""
    seen = hashlib.sha256()
    async for piece in request.stream():
        seen.update(piece)
        await asyncio.sleep(0)
    return PlainTextResponse(seen.hexdigest())


async def refuse(request: Request) -> Response:
    return PlainTextResponse("too large", 413)


async def stream(request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"piece %d " % number

    return StreamingResponse(pieces(), media_type="text/event-stream")


async def poll(request: Request) -> Response:
    """Look again and again whether the client is still there, without reading anything else."""
    run = current_run()
    assert run is not None
    while not await request.is_disconnected():
        await asyncio.sleep(0.005)
    polled.append(run)
    return PlainTextResponse("gone")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    routes = [
        Route("/digest", digest, methods=["POST"]),
        Route("/refuse", refuse, methods=["POST"]),
        Route("/stream", stream),
        Route("/poll", poll),
    ]
    with served(StallwatchMiddleware(Starlette(routes=routes))) as port:
        yield port


def test_requests_one_after_another_and_in_advance_are_all_answered(port: int) -> None:
    with Wire(port) as wire:
        for number in range(3):
            wire.asks("GET /stream HTTP/1.1")
            wire.reads(b"0\r\n\r\n", number + 1)
        for _ in range(3):
            wire.asks("GET /stream HTTP/1.1")
        assert wire.reads(b"0\r\n\r\n", 6).answer.count(b"piece 2") == 6


def test_an_answer_to_head_has_headers_only(port: int) -> None:
    with Wire(port) as wire:
        wire.asks("HEAD /stream HTTP/1.1")
        wire.asks("GET /stream HTTP/1.1")
        first, _, rest = wire.reads(b"0\r\n\r\n").answer.partition(b"\r\n\r\n")
        assert b"x-accel-buffering: no" in first.lower()
        assert rest.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_an_upload_arrives_whole(port: int, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    with Wire(port) as wire:
        wire.asks("POST /digest HTTP/1.1", f"Content-Length: {size}", body=body)
        wire.reads(hashlib.sha256(body).hexdigest().encode())


@pytest.mark.parametrize(("path", "first"), [("/digest", b"HTTP/1.1 100 "), ("/refuse", b"HTTP/1.1 413 ")])
def test_only_an_app_that_reads_invites_the_body(port: int, path: str, first: bytes) -> None:
    with Wire(port) as wire:
        wire.asks(f"POST {path} HTTP/1.1", "Content-Length: 5", "Expect: 100-continue")
        assert wire.reads(b"\r\n\r\n").answer.startswith(first)
        if b"100" in first:
            wire.sends(b"hello")
            wire.reads(hashlib.sha256(b"hello").hexdigest().encode())


def test_an_app_that_looks_for_itself_finds_out_as_well(port: int) -> None:
    with Wire(port) as wire:
        wire.asks("GET /poll HTTP/1.1")
    eventually(lambda: polled)
    assert polled.pop().reason == "client disconnected"
