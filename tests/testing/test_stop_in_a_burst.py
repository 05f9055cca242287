"""A gateway that is stopped while connections pour in leaves none open: that is a warning in another test."""

from __future__ import annotations

import gc
import socket
import threading
import warnings

from stallwatch.testing import FaultGateway

ROUNDS = 40


def test_connections_of_the_last_moment_are_closed() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(ROUNDS):
            gateway = FaultGateway().start()
            address = ("127.0.0.1", gateway.port)
            clients = [socket.socket() for _ in range(8)]
            for client in clients:
                client.setblocking(False)
            stopping = threading.Thread(target=gateway.stop)
            for client in clients[:4]:
                client.connect_ex(address)
            stopping.start()
            for client in clients[4:]:
                client.connect_ex(address)
            stopping.join()
            for client in clients:
                client.close()
        gc.collect()
    assert [str(each.message) for each in caught] == []
