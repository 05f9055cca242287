"""A client that leaves before the answer is complete cancels the run; nothing else does, and nothing else is hidden."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from asgi.fakes import BODY, DISCONNECT, END, PIECE, START, FakeServer, here, played, scope, turns
from stallwatch import RunCancelledError
from stallwatch.asgi import StallwatchMiddleware
from stallwatch.run import Run, current_run
from support.children import spawn

WITH_TRAILERS = {**START, "trailers": True}
TRAILERS = {"type": "http.response.trailers", "headers": []}

LEFT = RunCancelledError("client disconnected")


@pytest.mark.parametrize("messages", [[], [START], [START, PIECE], [WITH_TRAILERS, PIECE, END]])
@pytest.mark.parametrize("reads", [False, True])
def test_a_client_that_leaves_cancels_the_run(messages: list[Any], reads: bool) -> None:
    server = FakeServer(BODY)

    async def app(_: Any, receive: Any, send: Any) -> None:
        run = here()
        if reads:
            await receive()
        for message in messages:
            await send(message)
        await turns()
        assert not run.cancelled
        server.says(DISCONNECT)
        await turns()
        assert run.reason == "client disconnected"

    played(lambda: server.serve(app))


@pytest.mark.parametrize(
    "messages",
    [
        [START, END],
        [START, PIECE, END],
        [START, {"type": "http.response.pathsend", "path": "/x"}],
        [START, {"type": "http.response.zerocopysend", "file": 3}],
        [WITH_TRAILERS, END, {**TRAILERS, "more_trailers": True}, TRAILERS],
    ],
)
def test_once_the_answer_is_complete_nothing_is_cancelled(messages: list[Any]) -> None:
    server = FakeServer(BODY)

    async def app(_: Any, receive: Any, send: Any) -> None:
        run = here()
        for message in messages:
            await send(message)
        server.says(DISCONNECT)
        await turns()
        assert not run.cancelled
        assert [await receive(), await receive()] == [BODY, DISCONNECT]

    played(lambda: server.serve(app))


def test_a_server_that_says_disconnect_as_soon_as_the_answer_is_sent_cancels_nothing() -> None:
    server = FakeServer(BODY)

    async def send(message: Any) -> None:
        if message is END:
            server.says(DISCONNECT)
            await turns()

    async def app(_: Any, receive: Any, send: Any) -> None:
        run = here()
        await send(START)
        await send(END)
        assert not run.cancelled

    played(lambda: StallwatchMiddleware(app)(scope(), server.receive, send))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_follows_a_complete_answer_is_outside_of_the_run(elsewhere: bool) -> None:
    """Background tasks go on: neither cancelled nor bounded by the request's total."""
    outer: list[Run] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        assert here().total == 30
        await send(START)
        # Frameworks send from a task of their own, too, which cannot change what this one sees.
        await (asyncio.create_task(send(END)) if elsewhere else send(END))
        assert here() is outer[0]

    async def story() -> None:
        with Run() as run:
            outer.append(run)
            await FakeServer(BODY, DISCONNECT).serve(app, total=30)
            assert here() is run

    played(story)


def test_each_request_is_a_run_of_its_own() -> None:
    runs: list[Run] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        runs.append(here())

    async def story() -> None:
        for _ in range(2):
            await FakeServer().serve(app)
            assert current_run() is None

    played(story)
    assert runs[0] is not runs[1]


@pytest.mark.parametrize(
    ("method", "name"),
    [({}, "http POST"), ({"method": "QUERY"}, "http QUERY"), ({"method": "my-secret"}, "http")],
)
def test_a_runs_name_says_nothing_a_client_has_chosen(method: dict[str, str], name: str) -> None:
    """It stands on spans."""
    server = FakeServer()

    async def app(_: Any, receive: Any, send: Any) -> None:
        assert here().name == name

    played(lambda: StallwatchMiddleware(app)(scope(**method), server.receive, server.send))


def raising(error: BaseException, *, gone: bool) -> Coroutine[Any, Any, None]:
    """A request whose app raises, while the client is still there or after it has left."""
    server = FakeServer(BODY)

    async def app(_: Any, receive: Any, send: Any) -> None:
        await turns()
        if gone:
            server.says(DISCONNECT)
            await turns()
        raise error

    return server.serve(app)


@pytest.mark.parametrize(
    "error",
    [
        LEFT,
        ExceptionGroup("", [LEFT]),
        ExceptionGroup("", [LEFT, ExceptionGroup("", [LEFT, RunCancelledError("client disconnected")])]),
    ],
)
def test_the_error_of_a_run_whose_client_has_left_goes_no_further(error: Exception) -> None:
    played(lambda: raising(error, gone=True))
    with pytest.raises(type(error)) as caught:
        played(lambda: raising(error, gone=False))
    assert caught.value is error


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_middlewares_further_out_see_an_answer_all_the_same(begun: bool, refuses: bool) -> None:
    server = FakeServer(BODY, DISCONNECT)

    async def send(message: Any) -> None:
        server.sent.append(message)
        if refuses and message is not START:
            raise OSError("closed")

    async def app(_: Any, receive: Any, send: Any) -> None:
        if begun:
            await send(START)
        await turns()
        here().raise_if_cancelled()

    played(lambda: StallwatchMiddleware(app)(scope(), server.receive, send))
    if begun:
        assert server.sent == [START]
    else:
        assert server.sent[0] == {**START, "status": 499}
        assert refuses or server.sent[1:] == [END]


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("the app's own"),
        RunCancelledError("user stop"),
        asyncio.CancelledError("own text"),
        ExceptionGroup("", [LEFT, ValueError()]),
        BaseExceptionGroup("", [LEFT, asyncio.CancelledError()]),
        OSError("written after the disconnect"),
    ],
)
def test_all_other_errors_pass_as_they_are(error: BaseException, gone: bool) -> None:
    async def story() -> None:
        with pytest.raises(type(error)) as caught:
            await raising(error, gone=gone)
        assert caught.value is error
        # Only what can be waited for leaves its task ended, and a group of this kind cannot.
        await turns()

    played(story)


def test_an_error_of_the_servers_send_passes() -> None:
    server = FakeServer(BODY, DISCONNECT)

    async def send(message: Any) -> None:
        raise OSError("closed")

    async def app(_: Any, receive: Any, send: Any) -> None:
        await turns()
        await send(START)

    with pytest.raises(OSError, match="closed"):
        played(lambda: StallwatchMiddleware(app)(scope(), server.receive, send))


def test_a_cancel_from_the_server_is_the_apps_and_leaves_no_task() -> None:
    async def app(_: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        task = asyncio.create_task(FakeServer(BODY).serve(app))
        await turns()
        task.cancel("own text")
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.args == ("own text",)

    played(story)


def test_a_cancel_while_an_error_is_on_its_way_does_not_hide_it() -> None:
    """Cancel scopes deliver again at every wait, and the middleware waits for its task to end."""
    error = ValueError("the app's own")

    async def app(_: Any, receive: Any, send: Any) -> None:
        await turns()
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        raise error

    async def story() -> None:
        with pytest.raises(ValueError) as caught:
            await asyncio.create_task(FakeServer(BODY).serve(app))
        assert caught.value is error

    played(story)


def test_a_cancel_beside_an_error_that_goes_no_further_is_not_lost() -> None:
    async def app(_: Any, receive: Any, send: Any) -> None:
        await turns()
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        raise LEFT

    async def story() -> None:
        server = FakeServer(BODY, DISCONNECT)

        async def waits() -> None:
            await server.serve(app)
            await asyncio.Event().wait()

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(waits())

    played(story)


def test_a_request_that_is_thrown_away_leaves_no_trace() -> None:
    async def app(_: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)

    async def story() -> None:
        request = FakeServer(BODY).serve(app)
        request.send(None)
        request.close()
        await turns()

    played(story)
    gc.collect()


CLOSES_ITS_LOOP = """
import asyncio
from asgi.fakes import BODY, FakeServer, turns

async def app(scope, receive, send):
    await asyncio.sleep(0)

async def begin():
    request = FakeServer(BODY).serve(app)
    request.send(None)
    await turns()
    return request

loop = asyncio.new_event_loop()
request = loop.run_until_complete(begin())
loop.close()
request.close()
print('"closed"')
"""


def test_a_loop_that_was_closed_in_the_middle_does_not_matter() -> None:
    # In a process of its own: asyncio complains of every wait that such a loop had, the server's included.
    said, _ = spawn(CLOSES_ITS_LOOP).finish()
    assert said == ["closed"]


def test_one_inside_the_other_agree() -> None:
    server = FakeServer(BODY)

    async def app(_: Any, receive: Any, send: Any) -> None:
        await turns()
        server.says(DISCONNECT)
        await turns()
        assert await receive() is BODY
        assert await receive() == DISCONNECT
        here().raise_if_cancelled()

    played(lambda: server.serve(StallwatchMiddleware(app)))
