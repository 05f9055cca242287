"""How long a synchronous connect may take, all of it: name resolution and every address together.

The library's connect timeout counts anew for each address a name has, and does not count for resolving the name at
all: three dead addresses take three times the limit, a dead resolver takes as long as it likes. So the pool's network
backend is stood in for by one that resolves in a short-lived thread (a resolver cannot be interrupted; it is left to
finish) and connects address by address with what is left. It acts only for calls that are governed; for others, and
for what it does not know, it is the backend it stands for. A connect of a run that may be cancelled happens in a thread
as a whole, because on most systems nothing else wakes it. So it is where no thread can be started, at the exit of the
interpreter for one. Asynchronous connects need none of this: their library bounds the whole.

The backend is a private attribute of the pool. Where it is missing, connect is bounded per address, without
resolution.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from stallwatch.clock import monotonic

if TYPE_CHECKING:
    from stallwatch.runtime.inflight import InFlight

__all__ = ["BoundedConnects"]

_FLOOR = 0.001


class BoundedConnects:
    """Stands in for ``inner``; ``governing`` returns the run whose connect is under way, None for others."""

    def __init__(self, inner: Any, governing: Callable[[], InFlight | None]) -> None:
        self._inner = inner
        self._governing = governing

    @classmethod
    def install(cls, pool: Any, governing: Callable[[], InFlight | None]) -> None:
        """Put a stand-in into ``pool``, once."""
        backend = getattr(pool, "_network_backend", None)
        if backend is None or isinstance(backend, cls) or not hasattr(backend, "connect_tcp"):
            return
        pool._network_backend = cls(backend, governing)
        _pools.add(pool)

    @classmethod
    def remove_all(cls) -> None:
        """Give every pool its own backend back, unless somebody has put another there since."""
        for pool in list(_pools):
            backend = getattr(pool, "_network_backend", None)
            if isinstance(backend, cls):
                pool._network_backend = backend._inner
        _pools.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Any:
        """Connect within ``timeout`` seconds in all; raises the library's own errors."""
        run = self._governing()
        if run is None:
            return self._inner.connect_tcp(host, port, timeout=timeout, **options)
        connect = partial(self._connect, host, port, timeout, options)
        # Only then is a thread worth its price.
        return self._breakable(run, connect) if run.wakeable else connect()

    def _connect(self, host: str, port: int, timeout: float | None, options: dict[str, Any]) -> Any:
        if timeout is None or _is_address(host):
            return self._inner.connect_tcp(host, port, timeout=timeout, **options)
        until = monotonic() + timeout
        addresses = self._resolve(host, port, timeout)
        failure: Exception | None = None
        for address in addresses:
            left = until - monotonic()
            if left <= 0:
                break
            try:
                return self._inner.connect_tcp(address, port, timeout=max(left, _FLOOR), **options)
            except Exception as error:
                failure = error
        if addresses:
            raise self._timed_out() if until <= monotonic() or failure is None else failure
        # Not resolved: the library's own attempt does it, or raises the error it has always raised.
        return self._inner.connect_tcp(host, port, timeout=max(until - monotonic(), _FLOOR), **options)

    def _breakable(self, run: InFlight, connect: Callable[[], Any]) -> Any:
        """Connect in a thread of its own, which is left to itself when the run is cancelled meanwhile."""
        attempt = _Connect(connect)
        run.woken = attempt.over
        try:
            if not run.over:
                try:
                    threading.Thread(target=attempt.run, name="stallwatch-connect", daemon=True).start()
                except RuntimeError:
                    return connect()
                attempt.over.wait()
        finally:
            run.woken = None
        if attempt.abandon():
            raise self._timed_out()
        return attempt.result()

    def _resolve(self, host: str, port: int, timeout: float) -> list[str]:
        """Return the addresses of ``host``; none when it cannot be resolved, or not in a thread."""
        found: list[str] = []
        done = threading.Event()

        def look_up() -> None:
            try:
                entries = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
                found.extend(dict.fromkeys(str(entry[4][0]) for entry in entries))
            except Exception:
                # Not OSError alone: names that are too long or not encodable raise UnicodeError.
                pass
            finally:
                done.set()

        try:
            threading.Thread(target=look_up, name="stallwatch-resolver", daemon=True).start()
        except RuntimeError:
            return found
        if not done.wait(timeout):
            raise self._timed_out()
        return found

    def _timed_out(self) -> Exception:
        library = sys.modules.get(type(self._inner).__module__.partition(".")[0])
        kind = getattr(library, "ConnectTimeout", TimeoutError)
        error: Exception = kind("timed out")
        return error


class _Connect:
    """A connect under way in another thread; ``over`` is set when it is done, or nobody wants it any more."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._stream: Any = None
        self._error: BaseException | None = None
        self._done = self._abandoned = False
        self.over = threading.Event()

    def run(self) -> None:
        try:
            self._stream = self._connect()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._done = True
            unwanted = self._abandoned
        self.over.set()
        if unwanted and self._stream is not None:
            self._stream.close()

    def abandon(self) -> bool:
        """Stop wanting it; False when it is done already."""
        with self._lock:
            self._abandoned = not self._done
            return self._abandoned

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._stream


_pools: weakref.WeakSet[Any] = weakref.WeakSet()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
