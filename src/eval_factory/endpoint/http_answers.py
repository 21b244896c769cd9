"""Whole HTTP answers, read by llhttp (`httptools`), which is quicker than http.client's reader, and stricter.

http.client has a connection's answers made by a class of one's choice; only how they are read is replaced here.
"""

from __future__ import annotations

import http.client
import io
import re
import threading
from collections.abc import Callable, ItemsView, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, cast

import httptools
import urllib3

from eval_factory.endpoint import waiting

CHUNK = 1 << 16
LARGEST_HEAD = 1 << 18
LARGEST_BODY = 64 << 20
"""No answer of a language model is that large; what is would fill the disk."""
FREE_BODY, LARGE_AT_ONCE = 1 << 20, 2
"""What is larger than the first is read, and handled, so many at a time in this process: 128 MiB together."""
LARGE_WAIT_S = 60.0
TOO_LARGE = f"the answer is larger than {LARGEST_BODY >> 20} MiB"
TOO_LARGE_HEAD = f"the answer's header is larger than {LARGEST_HEAD >> 10} KiB"
TOO_MANY_LARGE = (
    f"{LARGE_AT_ONCE} answers larger than {FREE_BODY >> 20} MiB were on their way for {LARGE_WAIT_S:g} s;"
    " no more are read at once"
)
MAX_ANSWERS = 100
"""Of one connection: where an answer that nobody asked for got past all checks, no more than these are shifted."""
MAX_IDS = 10_000
"""An answer that comes late comes soon: so many of the last ids are known."""
NOT_UNIQUE = (
    "the endpoint gives the same id to answers to different questions: answers that nobody asked for cannot be told"
    " by it"
)
_FIRST_FINAL_STATUS = 200
_LENIENT = {
    # Both Content-Length and Transfer-Encoding: chunked. The chunks count, as the standard says, and the connection is
    # not used again: whoever forwarded the answer may have thought that it ends elsewhere.
    "lenient_chunked_length": True,
    "lenient_optional_cr_before_lf": True,  # lines of a header that end in a bare LF
}
_BOTH_LENGTHS = {b"content-length", b"transfer-encoding"}
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""An alert, a handshake: how a server speaks that expects TLS."""
_ID = re.compile(rb'"id"\s*:\s*"((?:[^"\\]|\\.)+)"')
"""A field of a JSON document: within a text, its quotes would be escaped."""


class UnusableHttp(http.client.HTTPException):
    """What came is no HTTP, or more than is read."""


class MalformedAnswer(UnusableHttp):
    """The server makes such answers: another try would most likely bring the same, and be paid again."""


class StrayAnswer(UnusableHttp):
    """A whole answer, to an earlier question."""


class SpeaksTls(http.client.BadStatusLine):
    """The port is one for TLS."""


class Hold:
    """The place of a large answer among those that are held at once."""

    _free: SimpleQueue[None] = SimpleQueue()  # the one that may be put into while a thread takes from it, by __del__
    for _ in range(LARGE_AT_ONCE):
        _free.put(None)

    def __init__(self) -> None:
        self._size, self._has_place = 0, False

    def add(self, size: int) -> None:
        """So much more came. Waits for a place where it is needed; raises UnusableHttp where none is free in time."""
        self._size += size
        if self._size > FREE_BODY and not self._has_place:
            try:
                waiting.elsewhere(Hold._free.get, timeout=LARGE_WAIT_S)
            except Empty:
                raise UnusableHttp(TOO_MANY_LARGE) from None
            self._has_place = True

    def end(self) -> None:
        """Whoever asked has read it, or it is given up."""
        if self._has_place:
            self._has_place = False
            Hold._free.put(None)

    __del__ = end


class AnswerIds:
    """Tells an answer that was given before from a new one, by the `id` of its completion.

    A connection on which a second answer to one question comes late shifts all that follow: each is taken for the
    answer to the next question.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._lock = say, threading.Lock()
        self._known: dict[int, tuple[int, int, bool]] = {}
        """Hashes of id -> question and answer, and whether it came again."""
        self._are_unique = True

    def is_known(self, question: bytes, answer: bytes, *, first: bool) -> bool:
        """Whether this was the answer to another question, as far as ids can tell. `first`: on its connection.

        Servers that give one id to many answers, or random ones of few, are found out and believed: by a new
        connection that brings a known id with another answer, or by an id that comes a third time.
        """
        ids = _ID.findall(answer) if self._are_unique else None
        if not ids:
            return False
        name, asked, given = hash(tuple(ids)), hash(question), hash(answer)
        with self._lock:
            before = self._known.setdefault(name, (asked, given, False))
            if len(self._known) > MAX_IDS:
                del self._known[next(iter(self._known))]
            if before[0] == asked or not self._are_unique:
                return False
            if not before[2] and not (first and before[1] != given):
                self._known[name] = (*before[:2], True)
                return True
            self._are_unique = False
            self._known.clear()
        self._say(NOT_UNIQUE)
        return False


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
        self.hold = Hold()
        self._parts: list[bytes] = []
        self._has_head = self._is_whole = False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_LENIENT)

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
            UnusableHttp: what came is none, or too large; MalformedAnswer where the server makes it so.
            http.client.IncompleteRead: it ended after its status, and before its end.
            http.client.BadStatusLine: nothing came, or no status.
        """
        size = 0
        try:
            while not self._is_whole:
                piece = self._next_piece(receive)
                size += len(piece)
                self.hold.add(len(piece))
                if size > (LARGEST_BODY if self._has_head else LARGEST_HEAD):
                    raise MalformedAnswer(TOO_LARGE if self._has_head else TOO_LARGE_HEAD)
                self._take(piece)
        except BaseException:
            self.hold.end()
            raise
        finally:
            del self._parser  # which refers to this: none of them has to wait for the garbage collector

    def as_urllib3_has_it(self) -> urllib3.HTTPResponse:
        """Its body is still in the content coding that it came in."""
        body: Any = io.BytesIO(self.body) if self.is_coded else self.body
        response = urllib3.HTTPResponse(
            body, self.fields.as_urllib3_has_them(), self.status, reason=self.reason, preload_content=False
        )
        vars(response)["hold"] = self.hold
        return response

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
            raise MalformedAnswer("the answer changes to another protocol") from error
        except httptools.HttpParserError as error:
            if not self._parser.get_status_code():
                kind = SpeaksTls if piece.startswith(_TLS_RECORDS) else http.client.BadStatusLine
                raise kind(str(error)) from error
            if not self._is_whole:
                raise MalformedAnswer(f"the answer is not valid HTTP: {error.__context__ or error}") from error
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
        elif self.fields.names >= _BOTH_LENGTHS and not self._is_chunked():
            raise MalformedAnswer("Content-Length stands beside a Transfer-Encoding that is not chunked")

    def _is_chunked(self) -> bool:
        codings = [value for name, value in self.fields.lines if name.lower() == b"transfer-encoding"]
        return codings[-1].strip().lower().endswith(b"chunked")

    def on_body(self, piece: bytes) -> None:
        self._parts.append(piece)

    def on_message_complete(self) -> None:
        self._is_whole = self._has_head
        self.closes = not self._parser.should_keep_alive() or self.fields.names >= _BOTH_LENGTHS


class WholeAnswer(http.client.HTTPResponse):
    """What http.client has of an answer that llhttp read. A connection that brought more than it is not used again."""

    def begin(self) -> None:
        """Read it all. Raises as `Answer.read` does."""
        self.status, self.will_close = 0, True
        self.answer = Answer()
        self.answer.read(self.fp.read1)
        self.status, self.will_close = self.answer.status, self.answer.closes
        self.close()
