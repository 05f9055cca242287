"""Every message reaches the app as if nobody stood between: in order, no sooner, as often as it asks."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from asgi.fakes import BODY, DISCONNECT, END, PIECE, START, FakeServer, here, played, scope, turns
from stallwatch.asgi import StallwatchMiddleware
from stallwatch.run import current_run


def body(*pieces: bytes) -> list[dict[str, Any]]:
    last = len(pieces) - 1
    return [
        {"type": "http.request", "body": piece, "more_body": number < last}
        for number, piece in enumerate(pieces)
    ]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("slowly", [False, True])
def test_a_body_arrives_in_order_and_is_followed_by_the_disconnect(count: int, slowly: bool) -> None:
    pieces = body(*(str(number).encode() for number in range(count)))
    server = FakeServer(*pieces, DISCONNECT)

    async def app(_: Any, receive: Any, send: Any) -> None:
        for piece in pieces:
            assert await receive() is piece
            if slowly:
                await turns()
        assert await receive() == DISCONNECT

    played(lambda: server.serve(app))


def test_the_body_is_read_no_further_ahead_than_one_message() -> None:
    pieces = body(b"a", b"b", b"c", b"d")
    server = FakeServer(*pieces)

    async def app(_: Any, receive: Any, send: Any) -> None:
        for taken in range(4):
            await turns()
            assert server.given == taken + 1
            assert server.asked == taken + (2 if taken == 3 else 1), (
                "after the body only the disconnect can come"
            )
            await receive()

    played(lambda: server.serve(app))


def test_what_is_said_after_the_body_is_kept_in_order_without_reading_further() -> None:
    odd = {"type": "http.extension"}
    server = FakeServer(BODY, odd, odd, DISCONNECT)

    async def app(_: Any, receive: Any, send: Any) -> None:
        await turns()
        assert server.given == 2
        assert [await receive() for _ in range(4)] == [BODY, odd, odd, DISCONNECT]

    played(lambda: server.serve(app))


def test_the_disconnect_is_told_as_often_as_the_app_asks_and_to_all_that_ask() -> None:
    server = FakeServer(BODY)

    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        waiting = [asyncio.create_task(receive()) for _ in range(3)]
        await turns()
        server.says(dict(DISCONNECT))
        assert await asyncio.gather(*waiting) == [DISCONNECT] * 3
        told = [await receive() for _ in range(3)]
        told[0]["changed"] = True
        assert told[1:] == [DISCONNECT] * 2
        assert await receive() == DISCONNECT
        assert server.asked == 2

    played(lambda: server.serve(app))


def test_readers_side_by_side_get_one_message_each() -> None:
    pieces = body(b"a", b"b", b"c")
    server = FakeServer()

    async def app(_: Any, receive: Any, send: Any) -> None:
        waiting = [asyncio.create_task(receive()) for _ in range(3)]
        await turns()
        for piece in pieces:
            server.says(piece)
        assert sorted(piece["body"] for piece in await asyncio.gather(*waiting)) == [b"a", b"b", b"c"]

    played(lambda: server.serve(app))


def test_a_reader_that_gives_up_loses_no_message() -> None:
    """The way frameworks look whether the client is still there: read, but do not wait."""
    server = FakeServer()

    async def app(_: Any, receive: Any, send: Any) -> None:
        for _ in range(3):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await receive()
        server.says(BODY)
        waiting = asyncio.create_task(receive())
        await turns()
        assert waiting.result() is BODY
        server.says(DISCONNECT)
        await turns()
        with anyio.CancelScope() as scope:
            scope.cancel()
            assert await receive() == DISCONNECT

    played(lambda: server.serve(app))


@pytest.mark.parametrize("error", [OSError("gone"), asyncio.CancelledError("server's own")])
def test_what_the_server_raises_reaches_the_reader_who_may_ask_again(error: BaseException) -> None:
    server = FakeServer(error)

    async def app(_: Any, receive: Any, send: Any) -> None:
        await turns()
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                await receive()
            assert caught.value is error
            server.says(error)
            await turns()
        server.says(BODY)
        with pytest.raises(type(error)):
            await receive()
        assert await receive() is BODY

    played(lambda: server.serve(app))


def test_two_readers_of_an_error_get_the_error_and_what_follows() -> None:
    server = FakeServer()

    async def app(_: Any, receive: Any, send: Any) -> None:
        waiting = [asyncio.create_task(receive()) for _ in range(2)]
        await turns()
        server.says(OSError("gone"))
        server.says(BODY)
        first, second = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(first, OSError)
        assert second is BODY

    played(lambda: server.serve(app))


def test_an_error_nobody_reads_is_forgotten() -> None:
    async def app(_: Any, receive: Any, send: Any) -> None:
        await turns()

    played(lambda: FakeServer(OSError("gone")).serve(app))


@pytest.mark.parametrize("begins", ["reads", "answers"])
def test_a_client_that_waits_for_100_continue_is_not_told_to_before_the_app_is_ready(begins: str) -> None:
    server = FakeServer(BODY, DISCONNECT)

    async def app(_: Any, receive: Any, send: Any) -> None:
        await turns()
        assert server.asked == 0
        await (receive() if begins == "reads" else send(START))
        await turns()
        assert here().cancelled

    request = scope((b"Expect", b"100-continue"))
    played(lambda: StallwatchMiddleware(app)(request, server.receive, server.send))


def test_who_reads_on_after_the_app_has_returned_speaks_to_the_server() -> None:
    server = FakeServer(BODY)

    async def story() -> None:
        left_over: list[asyncio.Task[Any]] = []

        async def app(_: Any, receive: Any, send: Any) -> None:
            await receive()
            left_over.append(asyncio.create_task(receive()))
            await turns()

        await server.serve(app)
        await turns()
        server.says(DISCONNECT)
        assert await left_over[0] == DISCONNECT

    played(story)


def test_who_began_to_read_just_before_the_app_has_returned_does_so_too() -> None:
    server = FakeServer()

    async def story() -> None:
        left_over: list[asyncio.Task[Any]] = []

        async def app(_: Any, receive: Any, send: Any) -> None:
            left_over.append(asyncio.create_task(receive()))
            await asyncio.sleep(0)

        # Nobody reads before the app does, so the middleware's task is so young that it has not even begun.
        await StallwatchMiddleware(app)(scope((b"expect", b"100-continue")), server.receive, server.send)
        server.says(BODY)
        await turns()
        assert left_over[0].result() is BODY
        assert server.asked == 1

    played(story)


@pytest.mark.parametrize("kind", ["websocket", "lifespan", "something.new"])
def test_what_is_no_http_request_passes_untouched(kind: str) -> None:
    server = FakeServer()

    async def app(*given: Any) -> None:
        assert given == (request, server.receive, server.send)
        assert current_run() is None

    request = scope(kind=kind)
    played(lambda: StallwatchMiddleware(app)(request, server.receive, server.send))
    assert server.asked == 0


def test_what_the_app_sends_is_passed_on_as_it_is() -> None:
    server = FakeServer()
    answer = [START, {"type": "http.response.early_hint", "links": []}, PIECE, PIECE, END]

    async def app(_: Any, receive: Any, send: Any) -> None:
        for message in answer:
            await send(message)

    played(lambda: server.serve(app))
    assert all(sent is message for sent, message in zip(server.sent, answer, strict=True))


def test_without_an_asyncio_loop_the_disconnect_is_seen_when_the_app_reads() -> None:
    given = iter([BODY, DISCONNECT])
    seen: list[Any] = []

    async def receive() -> Any:
        return next(given)

    async def send(message: Any) -> None:
        raise AssertionError(message)

    async def app(_: Any, receive: Any, send: Any) -> None:
        seen.append(await receive())
        assert not here().cancelled
        seen.append(await receive())
        assert here().cancelled
        seen.append(await receive())

    by_hand = StallwatchMiddleware(app)(scope(), receive, send)
    with pytest.raises(StopIteration):
        by_hand.send(None)
    assert seen == [BODY, DISCONNECT, DISCONNECT]
