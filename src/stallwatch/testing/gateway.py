"""A local model gateway that misbehaves on purpose, and remembers exactly what happened.

It runs in one daemon thread with an event loop of its own, so tests of any kind can use it: synchronous,
asyncio, trio, threads. It speaks HTTP/1.1 over plain TCP or TLS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from stallwatch.testing.calls import LEDGER_PATH, Incoming
from stallwatch.testing.connection import Connection
from stallwatch.testing.entries import ConnectionEntry
from stallwatch.testing.journal import KEEP_REQUESTS, KEEP_SENT, Journal
from stallwatch.testing.ledger import Ledger
from stallwatch.testing.service import Service
from stallwatch.testing.steps import Step

_PATIENCE = 10.0

_HERE = str(Path(__file__).parent)


class FaultGateway:
    """An OpenAI-compatible server whose behaviour is chosen by the request's model name.

    The name is a built-in scenario (``stall-after:tokens=5,gap=0.05``), several for one attempt each
    (``silent>healthy``), or one given to `script`. Any other name gets ``default`` if that is set, else HTTP
    404.

    The ledger keeps the newest ``keep_requests`` requests and connections, and the newest ``keep_sent``
    pieces of each answer; counts stay exact. ``log`` is called with one line per request and per close, from
    the gateway's thread.
    """

    def __init__(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        ssl_context: ssl.SSLContext | None = None,
        *,
        default: str | None = None,
        keep_requests: int = KEEP_REQUESTS,
        keep_sent: int = KEEP_SENT,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._ssl_context = ssl_context
        self._journal = Journal(keep_requests=keep_requests, keep_sent=keep_sent, log=log)
        self._service = Service(self._journal, default)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._live: set[Connection] = set()
        self._arrivals: set[asyncio.Task[None]] = set()
        self._unwelcomed: set[socket.socket] = set()
        """Accepted, and not yet in the hands of a task that has begun."""
        self._failures: list[BaseException] = []

    # --- life ---

    def start(self) -> Self:
        """Bind the port and begin to serve; raises `OSError` if the port cannot be had."""
        if self._thread is not None:
            raise RuntimeError("the gateway is already running")
        listener = _listen(self._host, self._port)
        self._port = listener.getsockname()[1]
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(listener, ready), name="stallwatch-fault-gateway", daemon=True
        )
        self._thread.start()
        if not ready.wait(_PATIENCE) or self._loop is None:
            raise RuntimeError("the gateway's thread did not start")
        return self

    def stop(self) -> None:
        """Drop all connections and end the thread; raises what went wrong inside the gateway, if anything did."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or loop is None or stopping is None:
            return
        self._thread = None
        loop.call_soon_threadsafe(stopping.set)
        thread.join(_PATIENCE)
        if thread.is_alive():
            raise RuntimeError(f"the gateway's thread did not end within {_PATIENCE:g} s")
        if self._failures:
            raise RuntimeError("the gateway itself failed while serving") from self._failures[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # --- where ---

    @property
    def port(self) -> int:
        """The port; 0 until started if none was given."""
        return self._port

    @property
    def origin(self) -> str:
        """Scheme, host and port: what an Azure client wants as ``azure_endpoint``."""
        scheme = "http" if self._ssl_context is None else "https"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._port}"

    @property
    def base_url(self) -> str:
        """What an OpenAI client wants as ``base_url``."""
        return f"{self.origin}/v1"

    @property
    def ledger_url(self) -> str:
        """Where the ledger can be read as JSON."""
        return self.origin + LEDGER_PATH

    # --- what ---

    def script(self, model: str, *attempts: Sequence[Step] | str, by_header: bool = False) -> None:
        """Let this model name play these steps: one list per attempt, the last for all further attempts.

        A string instead of a list is a scenario name: ``gateway.script("gpt-5", "silent", "healthy")``.
        Attempts are counted per model name, or with ``by_header`` read from ``x-stainless-retry-count``.
        """
        if not attempts:
            raise ValueError("attempts: none given; allowed: one list of steps or scenario name per attempt")
        self._service.script(model, attempts, by_header=by_header)

    def store(self, model: str, kind: Literal["responses", "runs"] = "responses") -> str:
        """Make up a stored response, or a run, of this model and return its id.

        It can be retrieved, streamed from the start or resumed, as one that runs in the background.
        """
        return self._service.store(model, kind)

    # --- what happened ---

    def ledger(self) -> Ledger:
        """Return a snapshot of what has happened so far."""
        return self._journal.snapshot()

    def wait_for(self, condition: Callable[[Ledger], object], timeout: float = 2.0) -> Ledger:
        """Block until the condition holds and return the ledger it held for.

        A condition that raises `LookupError`, as for ``ledger.requests[0]`` before there is one, does not hold yet.
        Raises `AssertionError` with the ledger as text after ``timeout`` seconds. In async code use
        `wait_for_async`: this one would block the loop.
        """
        return self._journal.wait_for(condition, timeout)

    async def wait_for_async(self, condition: Callable[[Ledger], object], timeout: float = 2.0) -> Ledger:
        """Do the same as `wait_for` without blocking the running asyncio loop, and without another thread."""
        return await self._journal.wait_for_async(condition, timeout)

    @property
    def open_connections(self) -> int:
        """The number of client connections open now, handshakes included."""
        return self._journal.open_connections

    def reset_ledger(self) -> None:
        """Forget what has happened, and count attempts from 0 again."""
        self._journal.reset()

    # --- the thread ---

    def _run(self, listener: socket.socket, ready: threading.Event) -> None:
        # Not the policy's loop: the user's own choice of loop must not change how the gateway behaves.
        loop = asyncio.SelectorEventLoop()
        loop.set_exception_handler(lambda _, context: self._note_failure(context))
        try:
            loop.run_until_complete(self._serve(listener, ready))
        finally:
            listener.close()
            loop.close()
            ready.set()

    def _note_failure(self, context: dict[str, Any]) -> None:
        exception = context.get("exception")
        if exception is None or isinstance(exception, OSError) or _is_foreign(context.get("future")):
            return
        self._failures.append(exception)

    async def _serve(self, listener: socket.socket, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._listen_again(listener)
        ready.set()
        await self._stopping.wait()
        self._loop.remove_reader(listener)
        for connection in list(self._live):
            connection.stop()
        waiting = list(self._arrivals)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, *(c.gone.wait() for c in list(self._live)), return_exceptions=True)
        # Of tasks that were cancelled before their first step, which never runs then.
        for sock in self._unwelcomed:
            sock.close()
        # A transport dropped during its handshake frees its socket in the next rounds of the loop.
        for _ in range(3):
            await asyncio.sleep(0)

    def _listen_again(self, listener: socket.socket) -> None:
        if self._stopping is not None and not self._stopping.is_set():
            # Not by awaiting ``sock_accept``: a cancel at the wrong moment would drop a connection it has accepted.
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            sock, peer = listener.accept()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # Out of descriptors, or a client that left between SYN and accept: the next may fare better.
            loop.remove_reader(listener)
            loop.call_later(0.01, self._listen_again, listener)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        entry = self._journal.connection_opened(f"{peer[0]}:{peer[1]}")
        self._unwelcomed.add(sock)
        task = loop.create_task(self._welcome(sock, entry))
        self._arrivals.add(task)
        task.add_done_callback(self._arrivals.discard)

    async def _welcome(self, sock: socket.socket, entry: ConnectionEntry) -> None:
        self._unwelcomed.discard(sock)
        loop = asyncio.get_running_loop()
        connection = Connection(entry, self._journal, self._answer)
        try:
            await loop.connect_accepted_socket(lambda: connection, sock, ssl=self._ssl_context)
        except OSError as problem:
            # Only TLS can fail here: the client left or refused during the handshake.
            self._journal.connection_closed(
                entry, "rst" if isinstance(problem, ConnectionResetError) else "fin"
            )
            return
        except asyncio.CancelledError:
            connection.stop()
            sock.close()
            return
        self._live.add(connection)
        try:
            await connection.gone.wait()
        finally:
            self._live.discard(connection)

    async def _answer(self, connection: Connection, incoming: Incoming) -> bool:
        try:
            return await self._service.answer(connection, incoming)
        except Exception as failure:
            self._failures.append(failure)
            return False


def _is_foreign(future: Any) -> bool:
    """Tell whether a task is not the gateway's: a dropped client closes itself on whichever loop runs just then."""
    coroutine = future.get_coro() if isinstance(future, asyncio.Task) else None
    code = getattr(coroutine, "cr_code", None)
    return code is not None and not code.co_filename.startswith(_HERE)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
