"""Whole HTTP answers, read by llhttp (`httptools`), which is quicker than http.client's reader, and stricter.

http.client has a connection's answers made by a class of one's choice; only how they are read is replaced here.
"""

from __future__ import annotations

import http.client
import io
from collections.abc import Callable, ItemsView, Iterator, Mapping
from typing import Any, cast

import httptools
import urllib3

CHUNK = 1 << 16
LARGEST_HEAD = 1 << 18
LARGEST_BODY = 64 << 20
"""No answer of a language model is that large; what is would fill the disk."""
TOO_LARGE = f"the answer is larger than {LARGEST_BODY >> 20} MiB"
TOO_LARGE_HEAD = f"the answer's header is larger than {LARGEST_HEAD >> 10} KiB"
_FIRST_FINAL_STATUS = 200


class UnusableHttp(http.client.HTTPException):
    """What came after a status is no HTTP, or more than is read."""


class Fields(Mapping[str, str]):
    """A header's lines. They are put together when they are looked at: few answers' are."""

    def __init__(self) -> None:
        self.lines: list[tuple[bytes, bytes]] = []
        self.names: set[bytes] = set()
        """In small letters."""

    def add(self, name: bytes, value: bytes) -> None:
        self.lines.append((name, value))
        self.names.add(name.lower())

    def clear(self) -> None:
        self.lines.clear()
        self.names.clear()

    def as_urllib3_has_them(self) -> urllib3.HTTPHeaderDict:
        return urllib3.HTTPHeaderDict(
            (name.decode("latin-1"), value.decode("latin-1").strip(" \t")) for name, value in self.lines
        )

    def __getitem__(self, name: str) -> str:
        return self.as_urllib3_has_them()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_urllib3_has_them())

    def __len__(self) -> int:
        return len(self.names)

    def items(self) -> ItemsView[str, str]:
        """Each line, as urllib3 has it: the last of a name counts for whoever makes a mapping of them."""
        return cast(ItemsView[str, str], self.as_urllib3_has_them().items())


class Answer:
    """An answer to a GET or a POST, header and body, as llhttp finds it in what a connection brings."""

    def __init__(self) -> None:
        self.status, self.reason = 0, ""
        self.closes = True
        """Whether the connection is of no use any more: so says the answer, or more than it came."""
        self.ends_with_connection = False
        self.fields = Fields()
        self._parts: list[bytes] = []
        self._has_head = self._is_whole = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def body(self) -> bytes:
        """Still in the content coding that it came in."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def is_coded(self) -> bool:
        return b"content-encoding" in self.fields.names

    def read(self, receive: Callable[[int], bytes]) -> None:
        """Read it all; `receive` gives at most so many bytes of the connection, none at its end.

        Raises:
            UnusableHttp: what came is none, or too large.
            http.client.IncompleteRead: it ended after its status, and before its end.
            http.client.BadStatusLine: nothing came, or no status.
        """
        size = 0
        while not self._is_whole:
            piece = self._next_piece(receive)
            size += len(piece)
            if size > (LARGEST_BODY if self._has_head else LARGEST_HEAD):
                raise UnusableHttp(TOO_LARGE if self._has_head else TOO_LARGE_HEAD)
            self._take(piece)
        del self._parser  # which refers to this: none of them has to wait for the garbage collector

    def as_urllib3_has_it(self) -> urllib3.HTTPResponse:
        """Its body is still in the content coding that it came in."""
        body: Any = io.BytesIO(self.body) if self.is_coded else self.body
        return urllib3.HTTPResponse(
            body, self.fields.as_urllib3_has_them(), self.status, reason=self.reason, preload_content=False
        )

    def _next_piece(self, receive: Callable[[int], bytes]) -> bytes:
        try:
            return receive(CHUNK)
        except ConnectionError as error:
            if self._parser.get_status_code():
                raise self._incomplete() from error
            raise

    def _take(self, piece: bytes) -> None:
        if not piece:
            self._end()
            return
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as error:
            raise UnusableHttp("the answer changes to another protocol") from error
        except httptools.HttpParserError as error:
            if not self._parser.get_status_code():
                raise http.client.BadStatusLine(str(error)) from error
            if not self._is_whole:
                raise UnusableHttp(f"the answer is not valid HTTP: {error}") from error
            self.closes = True

    def _end(self) -> None:
        """An answer that says nowhere how long it is ends with its connection; llhttp is not told of that end."""
        if self._has_head and not self.fields.names & {b"content-length", b"transfer-encoding"}:
            self._is_whole = self.ends_with_connection = True
        elif self._parser.get_status_code():
            raise self._incomplete()
        else:
            raise http.client.RemoteDisconnected("no answer came")

    def _incomplete(self) -> http.client.IncompleteRead:
        return http.client.IncompleteRead(b"".join(self._parts))

    def on_message_begin(self) -> None:
        if self._is_whole:
            raise UnusableHttp("nothing was asked for that this would answer")

    def on_status(self, reason: bytes) -> None:
        self.reason = reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # or it is a trailer
            self.fields.add(name, value)

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= _FIRST_FINAL_STATUS
        if not self._has_head:
            self.fields.clear()

    def on_body(self, piece: bytes) -> None:
        self._parts.append(piece)

    def on_message_complete(self) -> None:
        self._is_whole = self._has_head
        self.closes = not self._parser.should_keep_alive()


class WholeAnswer(http.client.HTTPResponse):
    """What http.client has of an answer that llhttp read. A connection that brought more than it is not used again."""

    def begin(self) -> None:
        """Read it all. Raises as `Answer.read` does."""
        self.status, self.will_close = 0, True
        self.answer = Answer()
        self.answer.read(self.fp.read1)
        self.status, self.will_close = self.answer.status, self.answer.closes
        self.close()
