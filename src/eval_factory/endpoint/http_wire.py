"""Sends requests over an asyncio connection, and reads complete HTTP answers.

llhttp (the package `httptools`) parses the received bytes. An answer must belong to its request: a
connection is not used again if it brings more bytes than the answer, or bytes without a request.
A surplus answer is an answer that came without a request; `Doubt` describes what follows from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import httptools
import urllib3
from urllib3.util.wait import wait_for_read

from eval_factory.core.foreign_text import one_line
from eval_factory.endpoint import bridge
from eval_factory.endpoint.odd_headers import MAX_HEAD, end_of_head, readable_head
from eval_factory.endpoint.proxies import certificates_hint

READ_SIZE = 1 << 16  # the number of bytes that are read at once
MAX_BODY = 64 << 20
"""The maximum size of an answer's body, in bytes.

No answer of a language model is that large. A larger body would fill memory and disk.
"""
FREE_BODY = 1 << 20
"""The maximum size, in bytes, of a body that needs no slot (`LargeBodySlot`)."""
LARGE_AT_ONCE = 2
"""The maximum number of large bodies that this process has in memory at once.

Together they have at most 128 MiB.
"""
MAX_MALFORMED_ANSWERS = 2
"""The maximum number of attempts for a request whose answers are malformed.

A second attempt makes sense because another server of the same gateway may then answer.
"""

CUT_MESSAGE = "the connection was closed before the whole answer came"
_TOO_LARGE = f"the answer is larger than {MAX_BODY >> 20} MiB"
PAID_AGAIN = (
    f"the question is asked {MAX_MALFORMED_ANSWERS} times at most: one more answer would be paid, "
    "and most likely be the same"
)
WANTS_TLS = "the server there speaks TLS: the address has to begin with https://"

_LENIENT = {
    # Accept Content-Length together with "Transfer-Encoding: chunked". The chunks count, as the
    # standard says. The connection is not used again, because a proxy may assume another end of
    # the answer.
    "lenient_chunked_length": True,
    "lenient_optional_cr_before_lf": True,  # accept header lines that end in a bare LF
    "lenient_spaces_after_chunk_size": True,  # RFC 9112, 7.1.1
    "lenient_version": True,  # read HTTP/1.2 as HTTP/1.1 (RFC 9110, 2.5)
}
_ANSWER_BEGINNING = b"HTTP/1."  # the beginning of every answer
_TIMEOUT_BEGINNINGS = (b"HTTP/1.0 408", b"HTTP/1.1 408")  # the status 408 Request Timeout
_STATUS_LINE = re.compile(rb"HTTP/1\.\d[ \t]+\d{3}\b")  # "HTTP/1.1 200"
_LENGTHS = {b"content-length", b"transfer-encoding"}  # fields that state where an answer ends
_GZIP = b"\x1f\x8b"
"""The beginning of gzip data; no JSON begins with these bytes."""
_NO_CODINGS = frozenset({b"", b"chunked", b"identity"})
"""Values of the coding fields that leave the body as it is."""
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""The beginnings of a TLS alert and a TLS handshake, which only a server that expects TLS sends."""


class TransportError(Exception):
    """No complete answer came, or the answer cannot be used; another attempt may succeed."""

    def __init__(
        self,
        message: str,
        *,
        unreachable: bool = False,
        silent: bool = False,
        stray: bool = False,
        status: int | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        error_text: str = "",
    ) -> None:
        """Make the error.

        Args:
            message: a description of the failure.
            unreachable: whether no connection could be made.
            silent: whether no byte of an answer came.
            stray: whether the answer may belong to another question.
            status: the HTTP status of an answer that cannot be used; None if no answer came.
            headers: the headers of that answer.
            error_text: the error text of that answer.
        """
        super().__init__(message)
        self.unreachable = unreachable
        self.silent = silent or unreachable
        self.stray = stray
        self.status = status
        self.headers = headers
        self.error_text = error_text


class MalformedAnswerError(TransportError):
    """The answer arrived, but cannot be read; the next answer would most likely be the same.

    A request is sent at most `MAX_MALFORMED_ANSWERS` times if its answers are malformed.
    """

    def __init__(self, message: str, *, silent: bool = False, status: int | None = None) -> None:
        super().__init__(f"{message}; {PAID_AGAIN}", silent=silent, status=status)


class LargeBodySlot:
    """A slot that allows a large body in memory; a process has `LARGE_AT_ONCE` slots."""

    _slots: ClassVar[asyncio.Semaphore] = asyncio.Semaphore(LARGE_AT_ONCE)

    def __init__(self) -> None:
        self._has_slot = False

    async def acquire(self) -> None:
        """Wait for a slot; return at once if this object has a slot already."""
        if not self._has_slot:
            await LargeBodySlot._slots.acquire()
            self._has_slot = True

    def release(self) -> None:
        """Give the slot back: the body was read, or is no longer needed."""
        if self._has_slot:
            self._has_slot = False
            # The semaphore belongs to the loop; the caller may be another thread.
            bridge.the_loop().call_soon_threadsafe(LargeBodySlot._slots.release)

    __del__ = release  # also give back the slot of an answer that nobody used


class Doubt:
    """The doubt whether an answer belongs to another question.

    A second answer to one question shifts all later answers on its connection by one. The first
    answer of a connection certainly belongs to its question. The later answers become doubtful when
    the connection brings more answers than requests were sent. By then, they may already be in use.
    """

    def __init__(self) -> None:
        self._is_raised = False
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def is_raised(self) -> bool:
        """True if the answer is doubted."""
        return self._is_raised

    def when_raised(self, callback: Callable[[], None]) -> None:
        """Call the callback once: when the answer becomes doubtful, or now if it is doubtful."""
        with self._lock:
            if not self._is_raised:
                self._callbacks.append(callback)
                return
        callback()

    def raise_it(self) -> None:
        """Mark the answer as doubted, and call the callbacks."""
        with self._lock:
            self._is_raised = True
            callbacks = self._callbacks
            self._callbacks = []
        for callback in callbacks:
            callback()


@dataclass(frozen=True)
class Reply:
    """A complete HTTP answer."""

    status: int
    headers: Mapping[str, str]  # by the name in lower case; the last of several equal names counts
    data: bytes  # the body without its content coding
    body_slot: LargeBodySlot = field(default_factory=LargeBodySlot, compare=False)
    doubt: Doubt = field(default_factory=Doubt, compare=False)


class Wire(asyncio.Protocol):
    """A connection, which sends one request at a time and reads the answer to it."""

    def __init__(self) -> None:
        self.is_open = True
        self.answers = 0
        """The number of answers that this connection has brought, without that of a tunnel."""
        self.questions: dict[int, int] = {}
        """The hash of each question (the request's body), by the hash of the ids in its answer."""
        self.doubt = Doubt()
        """The doubt about the last answer."""
        self.on_surplus: Callable[[], None] = lambda: None
        """A function that is called when a surplus answer came."""
        self._doubts = list[Doubt]()
        """The doubts about all answers but the first."""
        self.has_begun = False
        """True if the status line of the last answer came; set at the end of `exchange`."""
        self._transport: Any = None  # that of asyncio, not a `Transport` of connections.py
        self._waiter: asyncio.Future[None] | None = None
        """The future on which the current request waits.

        The future is done when the answer is complete, has failed, or turns out to be large.
        """

    def _expect_answer(self, *, tunnel: bool) -> None:
        """Reset all that is known about the current answer."""
        self.status = 0
        self.size = 0  # the number of received bytes
        self.fields = list[tuple[bytes, bytes]]()  # the (name in lower case, value) of each field
        self.doubt = Doubt()
        self.has_begun = False
        self._is_tunnel = tunnel
        self._head = b""  # the received bytes, until the head is complete
        self._head_is_odd = False  # True if the parser refused the head as it came
        self._has_head = False
        self._field_names = set[bytes]()
        self._body_parts = list[bytes]()
        self._may_be_large = False  # True if `exchange` has acquired a slot for a large body
        self._is_complete = False
        self._ends_in_surplus = False  # True if a surplus answer came together with the answer
        self._error: TransportError | None = None
        self._parser = self._new_parser()

    async def exchange(
        self, request: bytes, body_slot: LargeBodySlot, *, tunnel: bool = False
    ) -> None:
        """Send a request, and read the answer to it.

        Args:
            request: the bytes of the request.
            body_slot: is acquired if the answer turns out to be large.
            tunnel: whether the request opens a tunnel: a good answer then has no body.

        Raises:
            TransportError: no complete answer came.
        """
        loop = asyncio.get_running_loop()
        self._expect_answer(tunnel=tunnel)
        self._waiter = loop.create_future()
        try:
            self._transport.write(request)
            await self._waiter
            if not self._is_over:  # the answer is large, and reading was paused
                await body_slot.acquire()
                self._may_be_large = True
                self._waiter = loop.create_future()
                self._transport.resume_reading()
                if not self._is_over:  # reading may have ended the answer already
                    await self._waiter
            if self._error is not None:
                raise self._error
            self.answers += 1
            if self.answers > 1:
                self._doubts.append(self.doubt)
            if self._ends_in_surplus:
                # as if the surplus answer had come on its own
                self._note_surplus(_ANSWER_BEGINNING)
        finally:
            self.has_begun = bool(self._parser.get_status_code())
            self._waiter = None
            self._error = None
            # The parser refers to this object. Without the cycle, memory is freed at once, not only
            # by the garbage collector.
            del self._parser
            # Do not use the connection again if a rest of this request or answer is still to come.
            is_sent = self._transport.get_write_buffer_size() == 0
            if not self._is_complete or not is_sent:
                self.is_open = False

    async def body(self, body_slot: LargeBodySlot) -> bytes:
        """Return the body without its content coding.

        The unpacked body may be far larger than the received bytes. If the unpacked body is large,
        `body_slot` is acquired.

        Raises:
            MalformedAnswerError: the body is too large, or does not have the coding that its
                headers name.
        """
        parts = self._body_parts
        self._body_parts = []
        body = parts[0] if len(parts) == 1 else b"".join(parts)  # a single part is not copied
        codings = self._codings()
        if not codings and body.startswith(_GZIP):  # a gateway removed the header field
            codings = [b"gzip"]
        if not codings:
            return body
        headers = {"Content-Encoding": b", ".join(codings).decode("latin-1")}
        packed = urllib3.HTTPResponse(io.BytesIO(body), headers, self.status, preload_content=False)
        parts = []
        size = 0
        try:
            while chunk := packed.read1(READ_SIZE):
                parts.append(chunk)
                size += len(chunk)
                if size > MAX_BODY:
                    raise MalformedAnswerError(_TOO_LARGE)
                if self.size + size > FREE_BODY:
                    await body_slot.acquire()
        except urllib3.exceptions.HTTPError as error:
            if body.lstrip().startswith(b"{"):  # a gateway unpacked the body, but left the field
                return body
            raise MalformedAnswerError(
                "the answer is not in the Content-Encoding that it names"
            ) from error
        return b"".join(parts)

    def _codings(self) -> list[bytes]:
        """Return the codings of the body, in the order in which they were applied.

        Proxies may add transfer codings on the way (RFC 9112, 7).
        """
        codings = []
        for coding_field in (b"content-encoding", b"transfer-encoding"):
            for name, value in self.fields:
                if name == coding_field:
                    codings += [part.strip().lower() for part in value.split(b",")]
        applied: list[bytes] = []
        for coding in codings:
            if coding not in _NO_CODINGS:
                applied.append(coding)
        return applied

    def headers(self) -> dict[str, str]:
        """Return the headers of the answer, by their names in lower case."""
        headers: dict[str, str] = {}
        for name, value in self.fields:
            headers[name.decode("latin-1")] = value.decode("latin-1").strip(" \t")
        return headers

    async def speak_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Begin TLS on the connection.

        Raises:
            OSError: the other end does not speak TLS, or its certificate is not trusted.
        """
        if isinstance(self._transport.get_extra_info("ssl_object"), ssl.SSLObject):
            # In Python 3.10, a TLS transport can begin TLS again, but `start_tls` requires this
            # attribute, which the transport lacks.
            vars(self._transport)["_start_tls_compatible"] = True
        loop = asyncio.get_running_loop()
        self._transport = await loop.start_tls(self._transport, self, context, server_hostname=host)

    def is_usable(self) -> bool:
        """Return True unless the other end closed the connection or sent unrequested bytes."""
        return self.is_open and not wait_for_read(
            self._transport.get_extra_info("socket"), timeout=0.0
        )

    def close(self) -> None:
        """Close the connection at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio calls the following methods.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._is_over:  # the bytes belong to no request
            self._note_surplus(data)
            self.close()
            return
        self.size += len(data)
        if not self._has_head:
            self._head += data
            if self._head_is_odd:
                data = self._restart_with_corrected_head()
        self._feed(data)
        if self.size > MAX_BODY:
            self._fail(MalformedAnswerError(_TOO_LARGE))
        if self._is_over:
            self._wake()
        elif self.size > FREE_BODY and not self._may_be_large:
            # `exchange` wakes, waits for the slot of a large body, and resumes reading.
            self._transport.pause_reading()
            self._wake()

    def _feed(self, data: bytes) -> None:
        """Parse received bytes; correct the head of the answer if the parser refuses it."""
        if not data:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(MalformedAnswerError("the answer changes to another protocol"))
        except httptools.HttpParserError as error:
            if self._may_correct_head():
                self._head_is_odd = True
                self._feed(self._restart_with_corrected_head())
            else:
                self._refuse_bytes(data, error)

    def _may_correct_head(self) -> bool:
        """Return True if the parser refused a head of HTTP that was not corrected yet."""
        if self._has_head or self._head_is_odd:
            return False
        has_status = self._parser.get_status_code() >= 200
        return has_status or _STATUS_LINE.match(self._head) is not None

    def _restart_with_corrected_head(self) -> bytes:
        """Begin a new parser, and return all received bytes for it, with a corrected head.

        As long as the head is not complete, return no bytes.
        """
        end = end_of_head(self._head)
        if end is None:
            if len(self._head) > MAX_HEAD:
                self._fail(MalformedAnswerError("the head of the answer does not end"))
            return b""
        self.fields.clear()
        self._parser = self._new_parser()
        return readable_head(self._head[:end]) + self._head[end:]

    def _new_parser(self) -> Any:
        parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(**_LENIENT)
        return parser

    def _refuse_bytes(self, data: bytes, error: Exception) -> None:
        """Handle bytes that the parser refuses: extra bytes after the answer, or no valid HTTP."""
        if self._is_complete:
            self.is_open = False
            self._ends_in_surplus = _holds_surplus_answer(data)
        elif self._parser.get_status_code():
            # If `on_message_begin` or `on_headers_complete` refused the answer, `__context__` is
            # the error of that method.
            reason = error.__context__ or error
            self._fail(MalformedAnswerError(one_line(f"the answer is not valid HTTP: {reason}")))
        elif data.startswith(_TLS_RECORDS):
            self._fail(TransportError(WANTS_TLS, unreachable=True))
        else:
            self._fail(MalformedAnswerError("what came is not HTTP", silent=True))

    def eof_received(self) -> None:
        """End an answer that does not state its length, because it ends with the connection.

        llhttp does not notice the end of the connection, so this method ends the answer.
        """
        self.is_open = False
        if self._waiter is not None and not self._is_over:
            self._is_complete = self._has_head and self._ends_with_connection()
            if not self._is_complete:
                self._fail(TransportError(CUT_MESSAGE, silent=not self._parser.get_status_code()))
            self._wake()

    def _ends_with_connection(self) -> bool:
        """Return True if only the end of the connection ends the body (RFC 9112, 6.3)."""
        if b"content-length" in self._field_names:
            return False
        return b"chunked" not in self._transfer_codings()

    def _transfer_codings(self) -> bytes:
        """Return the values of all Transfer-Encoding fields, in lower case."""
        values = []
        for name, value in self.fields:
            if name == b"transfer-encoding":
                values.append(value)
        return b",".join(values).lower()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if isinstance(error, ConnectionError):
            self._read_pending_bytes()
        if self._waiter is not None and not self._is_over:
            silent = not self._parser.get_status_code()
            message = CUT_MESSAGE
            is_tls_error = isinstance(error, ssl.SSLError)
            if is_tls_error:
                message = tls_failure_message(error)
            unreachable = silent and is_tls_error
            self._fail(TransportError(message, unreachable=unreachable, silent=silent))
            self._wake()

    # llhttp calls the following methods.

    def on_message_begin(self) -> None:
        if self._is_complete:
            # The parser stops with an error, which `_refuse_bytes` then handles.
            raise ValueError("an answer came without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # after the head, the field is a trailer, which is ignored
            self.fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200
        if not self._has_head:  # a status of 1xx: the head of the actual answer follows
            self.fields.clear()
            return
        self._field_names = {name for name, _ in self.fields}
        is_chunked = self._transfer_codings().strip().endswith(b"chunked")
        if self._states_two_lengths() and not is_chunked:
            raise ValueError("Content-Length and a Transfer-Encoding that is not chunked")
        self._is_complete = self._is_tunnel  # nothing but the head of a proxy's answer is read

    def on_body(self, piece: bytes) -> None:
        self._body_parts.append(piece)

    def on_message_complete(self) -> None:
        self._is_complete = self._has_head
        if not self._parser.should_keep_alive() or self._states_two_lengths():
            self.is_open = False

    def _states_two_lengths(self) -> bool:
        """Return True if the head has both fields that state where an answer ends."""
        return self._field_names >= _LENGTHS

    def _note_surplus(self, data: bytes) -> None:
        """Doubt all answers but the first if `data` begins with a surplus answer.

        Other bytes raise no doubt. A 408 (Request Timeout) raises none either: a proxy sends a 408
        after a long time without a request.
        """
        if not data.startswith(_ANSWER_BEGINNING) or data.startswith(_TIMEOUT_BEGINNINGS):
            return
        doubts = self._doubts
        self._doubts = []
        for doubt in doubts:
            doubt.raise_it()
        self.on_surplus()

    @property
    def _is_over(self) -> bool:
        """True if the answer is complete or has failed."""
        return self._is_complete or self._error is not None

    def _fail(self, error: TransportError) -> None:
        """End the current answer with an error; the first error counts."""
        self.is_open = False
        self._error = self._error or error

    def _wake(self) -> None:
        """Wake the request that waits for the answer."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _read_pending_bytes(self) -> None:
        """Read the bytes that came before the connection was lost, and were not read yet.

        A server may answer and hang up while the request is still being sent. asyncio does not read
        such an answer.
        """
        with contextlib.suppress(OSError):
            descriptor = self._transport.get_extra_info("socket").fileno()
            while self._waiter is not None and not self._is_over:
                piece = os.read(descriptor, READ_SIZE)
                if not piece:  # no byte is left
                    return
                self.data_received(piece)


def _holds_surplus_answer(data: bytes) -> bool:
    """Return True if a surplus answer begins in the bytes that hold the end of the answer.

    The bytes may begin with the beginning of the answer, or with a later part of the answer.
    """
    beginnings = data.count(_ANSWER_BEGINNING)
    if data.startswith(_ANSWER_BEGINNING):
        return beginnings > 1  # the first beginning is that of the answer itself
    return beginnings > 0


def tls_failure_message(error: Exception | None) -> str:
    """Return the message for a TLS error, with advice about certificates.

    Raises:
        PrerequisiteError: the file or folder of the trusted certificates does not exist.
    """
    return f"TLS failed: {one_line(str(error))}\n{certificates_hint()}"
