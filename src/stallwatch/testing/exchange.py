"""Playing a script on one request: head, framing, pacing and the ways a body can end.

An exchange runs in a task that is cancelled the moment the connection goes away, so nothing here watches for
that. A step is written to the ledger just before its bytes are handed to the network: whoever has received
something finds it in the ledger.

What does not stream plays the same script. The time passes, the content is collected, and the whole answer
goes out at `Done`, at `Eof` or when the script ends; a connection that breaks earlier takes half of it along.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

from stallwatch.testing import steps as do
from stallwatch.testing.calls import Incoming, api_key, error_body, last_prompt
from stallwatch.testing.entries import RequestEntry
from stallwatch.testing.expansion import expand
from stallwatch.testing.journal import Journal
from stallwatch.testing.ledger import SentKind
from stallwatch.testing.wire import EVENT_STREAM, Form, Frame, UnplayableStep, comment, encode, sse

# A burst lets other connections, and the news that its own is gone, through after this many pieces.
_BURST = 32
_JSON = "application/json"


class Line(Protocol):
    """The connection as an exchange sees it."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    async def close(self) -> None: ...
    async def reset(self) -> None: ...


class Exchange:
    """One request being answered."""

    def __init__(self, *, line: Line, incoming: Incoming, entry: RequestEntry, journal: Journal) -> None:
        self._line = line
        self._incoming = incoming
        self._entry = entry
        self._journal = journal
        self._head_sent = False
        self._framing = "chunked"
        self._over = False
        self._since_rest = 0
        self._bare_body = False
        self._collected = False
        self._stream = False
        self._body: Mapping[str, object] = {}
        self.reusable = incoming.headers.get("connection", "").lower() != "close"

    # --- playing ---

    async def play(
        self, script: Iterable[do.Step], form: Form, *, stream: bool, body: Mapping[str, object]
    ) -> None:
        """Play a script to its end; afterwards `reusable` says whether the connection can take another request."""
        self._form, self._stream, self._body = form, stream, body
        try:
            for step in script:
                for single in expand(step):
                    await self._do(single)
                    if self._over:
                        return
            await self._end()
        except UnplayableStep as problem:
            if self._head_sent:
                self.reusable = False
                await self._line.close()
            else:
                await self.reply(400, error_body(400, f"model: {problem}", param="model"))

    async def reply(self, status: int, body: Mapping[str, object]) -> None:
        """Answer with a whole JSON body."""
        await self._send_whole(status, encode(dict(body)), {"content-type": _JSON})

    async def _do(self, step: do.Step) -> None:
        match step:
            case do.Wait():
                await asyncio.sleep(step.seconds)
            case do.Silence() | do.RefuseHeaders():
                await asyncio.get_running_loop().create_future()
            case do.Comment():
                await self._send(self._comment(step))
            case do.Raw():
                self._bare_body = True
                await self._send(Frame(SentKind.RAW, step.data))
            case do.Event():
                await self._send(Frame(step.kind, sse(dict(step.data), event=step.event)))
            case do.Headers():
                self._send_head(200, step.extra)
            case do.CloseDelimited():
                self._framing = "close"
            case do.DripHeaders():
                await self._drip_head(step)
            case do.Status():
                await self._answer_status(step)
            case do.Eof():
                await self._end()
            case do.CloseAbruptly() | do.Reset():
                await self._break(step)
            case _:
                await self._send_content(step)

    def _comment(self, step: do.Comment) -> Frame:
        if self._stream and self._form.media_type != EVENT_STREAM:
            raise UnplayableStep(f"Comment has no place in {self._form.media_type}")
        # Services keep connections of requests that do not stream alive with blank lines.
        return Frame(SentKind.COMMENT, comment(step.text) if self._stream else b"\n")

    async def _send_content(self, step: do.Step) -> None:
        frames = self._form.frames(step)
        self._collected = True
        if self._stream:
            for frame in frames:
                await self._send(frame)
        elif isinstance(step, do.Done):
            await self._end()
            # What follows Done, such as lingering, still plays.
            self._over = False

    # --- sending ---

    async def _send(self, frame: Frame) -> None:
        if self._entry.completed_at is not None:
            return
        if not self._head_sent:
            self._send_head(200, {})
        data = frame.data
        self._journal.sent(self._entry, frame.kind, len(data))
        self._line.write(b"%x\r\n%b\r\n" % (len(data), data) if self._framing == "chunked" and data else data)
        await self._line.drain()
        self._since_rest += 1
        if self._since_rest >= _BURST:
            self._since_rest = 0
            await asyncio.sleep(0)

    def _head(self, status: int, extra: Mapping[str, str], length: int | None = None) -> bytes:
        headers = {"content-type": _JSON}
        if self._stream and status == 200:
            headers = {"content-type": self._form.media_type, "cache-control": "no-cache"}
        headers["x-request-id"] = self._entry.request_id
        headers |= {name.lower(): value for name, value in extra.items()}
        if length is not None:
            headers["content-length"] = str(length)
        elif self._framing == "chunked":
            headers["transfer-encoding"] = "chunked"
        else:
            self.reusable = False
        if not self.reusable:
            headers["connection"] = "close"
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = "Unknown"
        lines = [
            f"HTTP/1.1 {status} {phrase}",
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
            "",
        ]
        return "\r\n".join(lines).encode("latin-1")

    def _send_head(self, status: int, extra: Mapping[str, str], length: int | None = None) -> None:
        if self._head_sent:
            return
        self._head_sent = True
        head = self._head(status, extra, length)
        self._journal.sent(self._entry, SentKind.HEADERS, len(head), status=status)
        self._line.write(head)

    async def _drip_head(self, step: do.DripHeaders) -> None:
        self._head_sent = True
        head = self._head(200, {})
        written = 0
        try:
            while written < len(head):
                piece = head[written : written + step.size]
                self._line.write(piece)
                written += len(piece)
                await asyncio.sleep(step.every)
        finally:
            self._journal.sent(
                self._entry, SentKind.HEADERS, written, status=200 if written == len(head) else None
            )

    async def _send_whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._framing = "length"
        self._send_head(status, headers, len(body))
        if body:
            await self._send(Frame(SentKind.ERROR if status >= 400 else SentKind.BODY, body))
        self._complete()

    async def _answer_status(self, step: do.Status) -> None:
        body = self._status_body(step)
        headers: dict[str, str] = {
            "content-type": _JSON if not isinstance(step.body, str | bytes) else "text/plain"
        }
        if step.retry_after is not None:
            headers["retry-after"] = _retry_after(step.retry_after)
        if step.retry_after_ms is not None:
            headers["retry-after-ms"] = step.retry_after_ms
        await self._send_whole(
            step.code, body, headers | {name.lower(): value for name, value in step.headers.items()}
        )

    def _status_body(self, step: do.Status) -> bytes:
        if isinstance(step.body, bytes):
            return step.body
        if isinstance(step.body, str):
            return step.body.encode()
        if step.body is not None:
            return encode(dict(step.body))
        if step.code < 400:
            return b""
        message = f"scripted error {step.code}"
        if step.echo == "prompt":
            message += f": cannot process {last_prompt(self._body)!r}"
        elif step.echo == "key":
            message += f": incorrect API key provided: {api_key(self._incoming.headers)}"
        return encode(error_body(step.code, message, code=f"scripted_{step.code}"))

    # --- ending ---

    async def _end(self) -> None:
        """End the body cleanly, once."""
        if self._entry.completed_at is not None:
            self._over = True
            return
        if not self._stream and not self._bare_body:
            whole = encode(self._form.whole())
            if not self._head_sent:
                await self._send_whole(200, whole, {})
                return
            await self._send(Frame(SentKind.BODY, whole))
        elif not self._head_sent:
            self._send_head(200, {})
        if self._framing == "chunked":
            self._journal.sent(self._entry, SentKind.END, 0)
            self._line.write(b"0\r\n\r\n")
        await self._line.drain()
        self._complete()
        if self._framing == "close":
            self.reusable = False
            await self._line.close()

    def _complete(self) -> None:
        self._over = True
        self._journal.completed(self._entry)

    async def _break(self, step: do.CloseAbruptly | do.Reset) -> None:
        self._over = True
        self.reusable = False
        if not self._stream and self._collected and not self._head_sent and self._entry.completed_at is None:
            whole = encode(self._form.whole())
            self._framing = "length"
            self._send_head(200, {}, len(whole))
            await self._send(Frame(SentKind.BODY, whole[: len(whole) // 2]))
        if isinstance(step, do.Reset):
            await self._line.reset()
        else:
            await self._line.close()


def _retry_after(value: str) -> str:
    prefix, plus, seconds = value.partition("+")
    if prefix == "date" and plus:
        return formatdate(time.time() + float(seconds), usegmt=True)
    return value
