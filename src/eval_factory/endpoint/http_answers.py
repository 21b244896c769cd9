"""Whole HTTP answers, read by llhttp (`httptools`), which is quicker than http.client's reader, and stricter.

http.client has a connection's answers made by a class of one's choice; only how they are read is replaced here.
"""

from __future__ import annotations

import http.client
import io
from typing import Any

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


class WholeAnswer(http.client.HTTPResponse):
    """An answer to a GET or a POST, header and body. A connection that brought more than it is not used again."""

    def begin(self) -> None:
        """Read it all.

        Raises:
            UnusableHttp: what came is none, or too large.
            http.client.IncompleteRead: it ended after its status, and before its end.
            http.client.BadStatusLine: nothing came, or no status.
        """
        self.fields = urllib3.HTTPHeaderDict()
        self.ends_with_connection = False
        self.status, self.reason, self.will_close = 0, "", True
        self._parts: list[bytes] = []
        self._has_head = self._is_whole = False
        self._parser = httptools.HttpResponseParser(self)
        size = 0
        while not self._is_whole:
            piece = self._next_piece()
            size += len(piece)
            if size > (LARGEST_BODY if self._has_head else LARGEST_HEAD):
                raise UnusableHttp(TOO_LARGE if self._has_head else TOO_LARGE_HEAD)
            self._take(piece)
        self.close()

    def as_urllib3_has_it(self) -> urllib3.HTTPResponse:
        """Its body is still in the content coding that it came in."""
        body: Any = b"".join(self._parts)
        if "Content-Encoding" in self.fields:
            body = io.BytesIO(body)
        return urllib3.HTTPResponse(body, self.fields, self.status, reason=self.reason, preload_content=False)

    def _next_piece(self) -> bytes:
        try:
            return self.fp.read1(CHUNK)
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
            self.will_close = True

    def _end(self) -> None:
        """An answer that says nowhere how long it is ends with its connection; llhttp is not told of that end."""
        if self._has_head and "Content-Length" not in self.fields and "Transfer-Encoding" not in self.fields:
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
            self.fields.add(name.decode("latin-1"), value.decode("latin-1").strip(" \t"))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= _FIRST_FINAL_STATUS
        if not self._has_head:
            self.fields.clear()

    def on_body(self, piece: bytes) -> None:
        self._parts.append(piece)

    def on_message_complete(self) -> None:
        self._is_whole = self._has_head
        self.will_close = not self._parser.should_keep_alive()
