"""Sending and receiving over a connected socket: the thread waits, or the event loop that runs the request."""

from __future__ import annotations

import selectors
import socket
import ssl
from typing import Any

from eval_factory.endpoint import waiting

_WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def send_all(connected: socket.socket, data: bytes) -> None:
    """As `socket.sendall`. Raises what it raises."""
    loop = waiting.running_loop()
    if loop is None:
        if connected.gettimeout() is not None:
            connected.settimeout(None)
        connected.sendall(data)
        return
    if connected.gettimeout() != 0:
        connected.setblocking(False)
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[connected.send(rest) :]
        except _WAITS as error:
            loop.until_ready(connected, _awaited(error, selectors.EVENT_WRITE))


def receive(connected: socket.socket, size: int) -> bytes:
    """As `socket.recv`, after `send_all`. Raises what it raises."""
    loop = waiting.running_loop()
    while True:
        try:
            return connected.recv(size)
        except _WAITS as error:
            if loop is None:
                raise
            loop.until_ready(connected, _awaited(error, selectors.EVENT_READ))


def _awaited(error: Any, otherwise: int) -> int:
    """TLS may have to read before it writes, and the other way round."""
    if isinstance(error, ssl.SSLWantReadError):
        return selectors.EVENT_READ
    return selectors.EVENT_WRITE if isinstance(error, ssl.SSLWantWriteError) else otherwise
