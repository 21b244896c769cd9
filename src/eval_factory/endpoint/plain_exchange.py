"""The usual exchange on a connection that is used again: one write, and an answer of the plainest form.

Python runs one thread at a time, so what a request takes of a processor limits how many a second all threads ask:
urllib3 and http.client take two thirds of it, for a header with everything that HTTP allows. Here is read what nearly
all endpoints send; whatever is not of that form goes to them, with what was read of it so far.
"""

from __future__ import annotations

import errno
import http.client
import io
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import urllib3

CHUNK = 1 << 16
LARGEST_HEAD = 1 << 15
LARGEST_PLAIN = 1 << 20
"""Bytes; a larger answer is read piece by piece, with the checks that belong to it."""

_STATUS = "HTTP/1.1 200 "
_END = b"\r\n\r\n"
_LENGTH, _KEPT = "content-length", "keep-alive"
_OF_OTHER_FORMS = frozenset({"transfer-encoding", "content-encoding", "upgrade", "trailer"})
_MOST_DIGITS = 9
_USER_AGENT = f"python-urllib3/{urllib3.__version__}"  # type: ignore[attr-defined]
_PEER_HUNG_UP = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EPROTOTYPE})
"""A server may answer before it has read the whole request, and close; urllib3 looks for that answer too."""


def request_bytes(host: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes | None:
    """A POST as urllib3 writes it, byte for byte. None where a value needs its checks.

    Args:
        host: with its port, where that is not the scheme's own.
    """
    fields = {
        "Host": host,
        "Accept-Encoding": "identity",
        "Content-Length": str(len(body)),
        "User-Agent": _USER_AGENT,
        **headers,
    }
    head = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
    if not head.isascii() or head.count("\n") != len(fields) or head.count("\r") != len(fields):
        return None
    return f"POST {target} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body


@dataclass(frozen=True)
class PlainHead:
    """Of an answer whose length is known."""

    headers: dict[str, str]
    """In small letters; of several with one name the last."""
    begin: int
    """Where in what was read the body begins, and where it is over."""
    end: int


def plain_head(data: bytes, end: int) -> PlainHead | None:
    """What the first `end` bytes of an answer say; None where the answer is of another form."""
    status, *lines = data[:end].decode("latin-1").split("\r\n")
    if not f"{status} ".startswith(_STATUS):
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        known = name.lower()
        if not colon or name != name.strip() or (known in headers and known == _LENGTH):
            return None
        headers[known] = value.strip()
    length = headers.get(_LENGTH, "")
    if not length.isdecimal() or len(length) > _MOST_DIGITS or int(length) > LARGEST_PLAIN:
        return None
    if not _OF_OTHER_FORMS.isdisjoint(headers) or headers.get("connection", _KEPT).lower() != _KEPT:
        return None
    begin = end + len(_END)
    return PlainHead(headers, begin, begin + int(length))


@dataclass(frozen=True)
class Exchanged:
    """What came of an exchange."""

    data: bytes
    head: PlainHead | None
    """None: `data` is the beginning of an answer of another form."""

    @property
    def headers(self) -> dict[str, str]:
        """Of a plain answer."""
        return {} if self.head is None else self.head.headers

    @property
    def body(self) -> bytes:
        """Of a plain answer."""
        return b"" if self.head is None else self.data[self.head.begin : self.head.end]


def exchange(sock: socket.socket, request: bytes) -> Exchanged:
    """Send a request, and read its answer as far as it is plain.

    Raises:
        OSError: it cannot be sent, or nothing at all came.
    """
    try:
        sock.sendall(request)
    except OSError as error:
        if error.errno not in _PEER_HUNG_UP:
            raise
    data, head = b"", None
    while True:
        try:
            piece = sock.recv(CHUNK)
        except OSError:
            if not data:
                raise
            return Exchanged(data, None)
        data = data + piece if data else piece
        if head is None and (end := data.find(_END)) >= 0:
            head = plain_head(data, end)
            if head is None:
                return Exchanged(data, None)
        if not piece or (head is None and len(data) > LARGEST_HEAD):
            return Exchanged(data, None)
        if head is not None and len(data) >= head.end:
            return Exchanged(data, head if len(data) == head.end else None)


class _Continued(io.RawIOBase):
    """Bytes that were read, then the rest of what the socket has; for http.client it is the socket."""

    def __init__(self, begun: bytes, sock: socket.socket) -> None:
        self._begun = begun
        self._rest = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if not self._begun:
            return self._rest.readinto(buffer)
        size = min(len(buffer), len(self._begun))
        buffer[:size], self._begun = self._begun[:size], self._begun[size:]
        return size

    def close(self) -> None:
        self._rest.close()
        super().close()

    def makefile(self, *_arguments: Any) -> io.BufferedReader:
        return io.BufferedReader(self)


def continued(begun: bytes, sock: socket.socket) -> http.client.HTTPResponse:
    """The answer that begins with `begun`, its header read by http.client.

    Raises:
        OSError, http.client.HTTPException: the header is not whole, or no header.
    """
    answer = http.client.HTTPResponse(_Continued(begun, sock), method="POST")  # type: ignore[arg-type]
    try:
        answer.begin()
    except BaseException:
        answer.close()
        raise
    return answer
