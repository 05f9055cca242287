"""A bare HTTP client over a socket: shows what is on the wire, chunk by chunk, and closes as told."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "embeddings": "/v1/embeddings",
}


def body_for(api: str, model: str, *, stream: bool = True, **more: object) -> dict[str, object]:
    given: dict[str, object] = {"model": model, "stream": stream, **more}
    if api == "chat":
        return {"messages": [{"role": "user", "content": "hello"}], **given}
    return {("prompt" if api == "completions" else "input"): "hello", **given}


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    chunks: list[bytes] = field(default_factory=list)
    ended: str = "open"

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of each event, as JSON; comments as text, [DONE] as it is."""
        found: list[Any] = []
        for piece in self.body.decode().split("\n\n"):
            for line in piece.split("\n"):
                if line.startswith(":"):
                    found.append(line)
                elif line.startswith("data: "):
                    data = line.removeprefix("data: ")
                    found.append(data if data == "[DONE]" else json.loads(data))
        return found


class RawClient:
    """One connection; `ask` sends a request, `reply` reads until the body ends or nothing comes for ``patience``."""

    def __init__(self, port: int, *, patience: float = 2.0) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.sock.settimeout(patience)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.sock.close()

    def ask(self, body: object, path: str = PATHS["chat"], method: str = "POST", **headers: str) -> Self:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "host: gateway", f"content-length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode() + data)
        return self

    def model(self, model: str, api: str = "chat", *, stream: bool = True, **more: object) -> Self:
        return self.ask(body_for(api, model, stream=stream, **more), PATHS[api])

    def _more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        self._buffer += data

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def head(self) -> Reply:
        status = int(self._line().split()[1])
        headers: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        return Reply(status, headers)

    def chunks(self, reply: Reply) -> Iterator[bytes]:
        if "content-length" in reply.headers:
            yield self._exactly(int(reply.headers["content-length"]))
        elif reply.headers.get("transfer-encoding") == "chunked":
            while size := int(self._line(), 16):
                yield self._exactly(size + 2)[:-2]
            self._line()
        else:
            while True:
                try:
                    self._more()
                except EOFError:
                    yield self._buffer
                    return

    def reply(self) -> Reply:
        """Read a whole reply; ``ended`` says how: clean, fin, rst or silent."""
        reply = Reply(0, {})
        try:
            reply = self.head()
            for chunk in self.chunks(reply):
                reply.chunks.append(chunk)
            reply.ended = "clean"
        except TimeoutError:
            reply.ended = "silent"
        except EOFError:
            reply.chunks.append(self._buffer)
            reply.ended = "fin"
        except ConnectionResetError:
            reply.ended = "rst"
        return reply

    def reset(self) -> None:
        """Close so that the gateway sees RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
