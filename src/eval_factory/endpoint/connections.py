"""Sends requests to a server, directly or by a proxy, and reuses its connections.

Each attempt has a timeout. This module never sends a request twice, because the server may have
answered the first one, and answers are paid for.

In this module, a wire is a connection, a question is the body of a request, and a stray is an
answer that may belong to another question. A server that answers a question twice makes strays:
the second answer is a surplus answer, and shifts the later answers on its connection.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from urllib3.util import Url, parse_url

from eval_factory import __version__
from eval_factory.endpoint import bridge
from eval_factory.endpoint.http_wire import (
    CUT_MESSAGE,
    LargeBodySlot,
    Reply,
    TransportError,
    Wire,
    tls_failure_message,
)
from eval_factory.endpoint.openai_api import json_text
from eval_factory.endpoint.proxies import find_trusted_certificates, proxy_for, tls_context

CONNECT_TIMEOUT_S = 10.0  # for a connection, with the proxy's tunnel and TLS, in seconds
# the seconds after which the next address of a host is tried in parallel (RFC 8305)
NEXT_ADDRESS_DELAY_S = 0.25
_STOOD_STILL_S = 0.1  # an event loop that comes later than this stood still, in seconds
MAX_ANSWERS = 100
"""The maximum number of answers on a connection.

A surplus answer makes the other answers on its connection doubtful, so their number is limited.
"""
MIN_SETTLING_S = 0.02
MAX_SETTLING_S = 2.0
"""The bounds of `Transport.settling_s`, in seconds."""
LINGER_S = MAX_SETTLING_S
"""The seconds for which a connection stays open after its last request, for surplus answers."""
_SETTLING_FACTOR = 1.5  # `Transport.settling_s` grows by this multiple of the slowest attempt
PROXY_LOGIN_STATUS = 407  # the HTTP status with which a proxy asks for a login
SURPLUS = (
    "the endpoint gave more answers than questions: a question whose answer may be another's is "
    "asked again, on a connection of its own"
)
NOT_IN_TIME = "no connection in time"
PERHAPS_TLS = "if TLS is spoken there, the address has to begin with https://"
PROXY_FAILED = "the proxy refused or could not be reached"
NOT_UNIQUE = (
    "the endpoint gives the same id to answers to different questions, so that an answer to "
    "another question cannot be recognised by its id"
)
_ID = re.compile(rb'"id"\s*:\s*"((?:[^"\\]|\\.)+)"')
"""Finds each field `id` of a JSON document, such as `"id": "chatcmpl-1"`.

The words `"id":` within a text of the document do not match, because their quotes are escaped.
"""
_PORTS = {"http": 80, "https": 443}


class _Deadline:
    """A context manager that ends its block with an error after some seconds.

    If the event loop stood still and comes late, the block gets the lost seconds once more: the
    answer may have arrived, and nothing had time to read it.

    The class replaces `asyncio.timeout`, which Python 3.10 does not have.
    """

    def __init__(self, seconds: float, error: Callable[[], TransportError]) -> None:
        self._seconds = seconds
        self._error = error
        self._is_over = False

    def __enter__(self) -> None:
        self._task: Any = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        end_s = self._loop.time() + self._seconds
        self._timer = self._loop.call_at(end_s, self._end_or_extend, end_s)

    def _end_or_extend(self, end_s: float) -> None:
        """Cancel the block, or extend the deadline if the event loop stood still.

        `end_s`: the time for which this call was planned, in seconds of the loop's clock.
        """
        late_s = self._loop.time() - end_s
        if late_s > _STOOD_STILL_S:
            self._timer = self._loop.call_later(late_s, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._is_over and kind is asyncio.CancelledError:
            raise self._error() from None


def _address(parts: Url) -> tuple[str, str, int]:
    """Return (scheme, host, port) of a URL."""
    scheme = parts.scheme or "http"
    host = (parts.host or "").strip("[]")  # an IPv6 address has brackets in a URL
    return scheme, host, parts.port or _PORTS[scheme]


class _SurplusAnswers:
    """A record of whether an endpoint gave more answers than requests were sent.

    The user gets one message about the first surplus answer.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.was_seen = False

    def note(self) -> None:
        """Note a surplus answer."""
        if not self.was_seen:
            self.was_seen = True
            self._say(SURPLUS)


class Transport:
    """The connections to a server: one connection for each request that is in flight."""

    def __init__(
        self, url: str, *, timeout_s: float, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """Prepare connections to a server; no connection is opened yet.

        Args:
            url: the base URL of the server.
            timeout_s: the timeout of one attempt, in seconds.
            say: gets messages about unusual answers that do not stop the run.

        Raises:
            PrerequisiteError: the environment names a proxy that cannot be used, or certificates
                that do not exist.
        """
        self.timeout_s = timeout_s
        find_trusted_certificates()  # only for its error: the certificates are read when TLS begins
        self._scheme, self._host, self._port = _address(parse_url(url))
        proxy = proxy_for(url)
        self._proxy = parse_url(proxy) if proxy else None
        self._idle: list[Wire] = []
        """Open connections that have no request now."""
        self._say = say
        self._ids_are_unique = True
        self._repeated_ids = set[int]()
        """The hashes of ids that came with the answers to two different questions."""
        self._tls_context: ssl.SSLContext | None = None
        self._has_answered = False
        self._surplus = _SurplusAnswers(say)
        self._slowest_s = 0.0  # the duration of the slowest attempt that got an answer

    @property
    def settling_s(self) -> float:
        """The seconds to wait after the last answer, so that a surplus answer would be noticed.

        The value is 0 if no open connection has given more than one answer: no answer can then
        belong to another request. If the endpoint gave a surplus answer before, other connections
        probably have one to come, and the value is the maximum.
        """
        if self._surplus.was_seen:
            return MAX_SETTLING_S
        idle = list(self._idle)  # a copy: the loop's thread changes the list
        if not any(wire.answers > 1 for wire in idle):
            return 0.0
        return min(MAX_SETTLING_S, MIN_SETTLING_S + _SETTLING_FACTOR * self._slowest_s)

    def post(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Reply:
        """POST a JSON body, and return the reply.

        Raises:
            TransportError: no complete answer came within the timeout.
        """
        data = json_text(body).encode("utf-8", "surrogatepass")
        return self._ask("POST", url, data, headers)

    def post_alone(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Reply:
        """POST a JSON body on a new connection, and return the reply.

        The first answer on a connection certainly belongs to its first request.

        Raises:
            TransportError: no complete answer came within the timeout.
        """
        data = json_text(body).encode("utf-8", "surrogatepass")
        return self._ask("POST", url, data, headers, is_alone=True)

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        """GET a URL, and return the reply.

        Raises:
            TransportError: no complete answer came within the timeout.
        """
        return self._ask("GET", url, b"", headers)

    def __del__(self) -> None:
        # AttributeError: `__init__` failed. RuntimeError: the loop is closed.
        with contextlib.suppress(AttributeError, RuntimeError):
            for wire in self._idle:
                bridge.the_loop().call_soon_threadsafe(wire.close)

    def _ask(
        self,
        method: str,
        url: str,
        data: bytes,
        headers: Mapping[str, str] | None,
        *,
        is_alone: bool = False,
    ) -> Reply:
        """Send a request, and wait for its reply; with `is_alone`, on a new connection."""
        fields = tuple((headers or {}).items())
        # An https request goes through the proxy's tunnel, and then needs nothing of the proxy.
        is_for_proxy = self._proxy is not None and self._scheme == "http"
        if is_for_proxy:
            fields += _proxy_fields(self._proxy)
        head = _request_head(method, _parsed(url), is_for_proxy, fields)
        if method == "POST":
            head += b"Content-Length: %d\r\n" % len(data)
        request = head + b"\r\n" + data
        return bridge.wait_for(self._attempt(request, data, is_alone=is_alone))

    async def _attempt(self, request: bytes, question: bytes, *, is_alone: bool) -> Reply:
        """Send the bytes of a request, and return the reply.

        `question` is the request's body; it is empty for a GET.

        Raises:
            TransportError: no complete answer came within the timeout, or the answer may belong to
                another request.
        """
        wire: Wire | None = None
        body_slot = LargeBodySlot()
        began = asyncio.get_running_loop().time()

        def timeout_error() -> TransportError:  # made after the timeout, with the `wire` of then
            silent = wire is None or not wire.has_begun
            return TransportError(f"no whole answer within {self.timeout_s:g} s", silent=silent)

        try:
            with _Deadline(self.timeout_s, timeout_error):
                if not is_alone:
                    wire = await self._take_idle()
                if wire is None:
                    wire = await self._connect_new()
                await wire.exchange(request, body_slot)
                body = await wire.body(body_slot)
                if question and wire.status < 300 and self._is_stray(wire, question, body):
                    wire.close()
                    raise TransportError(
                        "an answer came that had been given to another question before", stray=True
                    )
                self._has_answered = True
                took_s = asyncio.get_running_loop().time() - began
                self._slowest_s = max(self._slowest_s, took_s)
                return Reply(wire.status, wire.headers(), body, body_slot, wire.doubt)
        except _ProxyLoginError:
            return Reply(PROXY_LOGIN_STATUS, {}, b"")
        except BaseException as error:
            body_slot.release()
            is_cut = (
                isinstance(error, TransportError) and error.silent and str(error) == CUT_MESSAGE
            )
            may_expect_tls = (
                self._scheme == "http" and self._proxy is None and not self._has_answered
            )
            if is_cut and may_expect_tls:
                raise TransportError(f"{CUT_MESSAGE}; {PERHAPS_TLS}", silent=True) from None
            raise
        finally:
            if wire is not None:
                self._store_or_close(wire)

    def _is_stray(self, wire: Wire, question: bytes, answer: bytes) -> bool:
        """Return True if this connection gave the same answer to an earlier question.

        Answers with equal `id` fields count as the same answer. Such an answer may be a late second
        answer to an earlier question, which shifts all later answers by one question.

        If an id comes a third time, the server gives the same id to many answers. From then on, ids
        are ignored.
        """
        ids = _ID.findall(answer) if self._ids_are_unique else None
        if not ids:
            return False
        answer_hash = hash(tuple(ids))
        question_hash = hash(question)
        first_question = wire.questions.setdefault(answer_hash, question_hash)
        answered_another_question = first_question != question_hash
        if answer_hash in self._repeated_ids:
            self._ids_are_unique = False
            self._say(NOT_UNIQUE)
            return False
        if answered_another_question:
            self._repeated_ids.add(answer_hash)
        return answered_another_question

    async def _take_idle(self) -> Wire | None:
        """Return the usable idle connection that was used last; None if there is none.

        The connection that was used last is chosen so that the server can close the connections
        that are idle for long. If the endpoint gave a surplus answer, no connection is used again.
        """
        while self._idle:
            wire = self._idle.pop()
            if self._surplus.was_seen:
                _close_later(wire)
                continue
            if wire.is_usable():
                return wire
            if wire.is_open:
                # Bytes may have come without a request. Let the wire read the bytes, so that it
                # notes a surplus answer. The loop finds the bytes in one round, and reads them in
                # the next round.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            wire.close()
        return None

    def _store_or_close(self, wire: Wire) -> None:
        """Store a connection after an attempt, or close it.

        If the endpoint has given surplus answers, each request gets a new connection: the first
        answer of a connection certainly belongs to its question.
        """
        if not wire.is_open:
            wire.close()
        elif self._surplus.was_seen or wire.answers >= MAX_ANSWERS:
            _close_later(wire)
        else:
            self._idle.append(wire)

    async def _connect_new(self) -> Wire:
        """Return a new connection, if necessary through the proxy and with TLS.

        Raises:
            TransportError: no connection could be made in time.
        """
        wire = Wire()
        wire.on_surplus = self._surplus.note
        with _Deadline(
            min(CONNECT_TIMEOUT_S, self.timeout_s),
            lambda: TransportError(NOT_IN_TIME, unreachable=True),
        ):
            try:
                if self._proxy is not None:
                    await self._reach_proxy(wire, self._proxy)
                else:
                    await _open_connection(wire, self._host, self._port)
                if self._scheme == "https":
                    await self._speak_tls(wire, self._host)
                return wire
            except BaseException:
                wire.close()
                raise

    async def _reach_proxy(self, wire: Wire, proxy: Url) -> None:
        """Connect to the proxy; for an https server, also open a tunnel to the server.

        Raises:
            TransportError: the proxy cannot be reached, or refuses the tunnel.
            _ProxyLoginError: the proxy requires a login.
        """
        scheme, host, port = _address(proxy)
        try:
            await _open_connection(wire, host, port)
            if scheme == "https":
                await self._speak_tls(wire, host)
            if self._scheme == "http":
                return
            name = f"[{self._host}]" if ":" in self._host else self._host  # IPv6 needs brackets
            target = f"{name}:{self._port}"
            lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
            for field_name, value in _proxy_fields(proxy):
                lines.append(f"{field_name}: {value}")
            request = "".join(f"{line}\r\n" for line in lines) + "\r\n"
            await wire.exchange(request.encode("latin-1"), LargeBodySlot(), tunnel=True)
        except TransportError as error:
            raise TransportError(PROXY_FAILED, unreachable=True) from error
        if wire.status == PROXY_LOGIN_STATUS:
            raise _ProxyLoginError
        if wire.status >= 300 or not wire.is_open:
            raise TransportError(PROXY_FAILED, unreachable=True)
        wire.answers = 0  # without the proxy's answer

    async def _speak_tls(self, wire: Wire, host: str) -> None:
        """Begin TLS on a connection.

        Raises:
            TransportError: TLS failed.
            PrerequisiteError: the file or folder of the certificates does not exist.
        """
        try:
            if self._tls_context is None:
                self._tls_context = tls_context()
            # A certificate names the host without the dot that may end a host name.
            await wire.speak_tls(self._tls_context, host.rstrip("."))
        except ConnectionError as error:
            raise TransportError(CUT_MESSAGE, silent=True) from error
        except (OSError, ValueError) as error:
            if "wrong version number" in str(error).lower().replace("_", " "):
                advice = (
                    "the server there does not speak TLS: the address has to begin with http://"
                )
                raise TransportError(advice, unreachable=True) from error
            raise TransportError(tls_failure_message(error), unreachable=True) from error


class _ProxyLoginError(Exception):
    """A proxy refused a tunnel with status 407.

    A request without a tunnel gets the 407 as the status of its reply.
    """


def _proxy_fields(proxy: Url | None) -> tuple[tuple[str, str], ...]:
    """Return the header fields with the login at a proxy; empty if its URL has no login."""
    if proxy is None or not proxy.auth:
        return ()
    login = base64.b64encode(unquote(proxy.auth).encode("latin-1")).decode()
    return (("Proxy-Authorization", f"Basic {login}"),)


def _close_later(wire: Wire) -> None:
    """Close a connection after `LINGER_S`, so that a surplus answer on it is still noticed."""
    asyncio.get_running_loop().call_later(LINGER_S, wire.close)


async def _open_connection(wire: asyncio.Protocol, host: str, port: int) -> None:
    """Open a connection; raise `TransportError` if that fails."""
    loop = asyncio.get_running_loop()
    # Without a delay, asyncio does not try addresses in parallel. A host that is an IP address has
    # no second address, and asyncio leaks a socket if parallel tries are cancelled.
    is_ip_address = re.fullmatch(r"[\d.]+|.*:.*", host)  # "10.0.0.1", "::1"
    delay = None if is_ip_address else NEXT_ADDRESS_DELAY_S
    try:
        await loop.create_connection(lambda: wire, host, port, happy_eyeballs_delay=delay)
    except (OSError, UnicodeError) as error:
        raise TransportError("no connection could be made", unreachable=True) from error


_parsed = lru_cache(64)(parse_url)  # a run has few URLs, but many requests


@lru_cache(64)
def _request_head(
    method: str, url: Url, is_for_proxy: bool, fields: tuple[tuple[str, str], ...]
) -> bytes:
    """Return the head of a request, without the field Content-Length and the empty line at its end.

    Args:
        method: the HTTP method.
        url: the URL of the request.
        is_for_proxy: whether a proxy gets the request without a tunnel, and needs the complete URL.
        fields: the (name, value) of each further header field.

    Raises:
        ValueError: the name or value of a field holds a line break or a NUL.
    """
    scheme, _, port = _address(url)
    host = (url.host or "") if port == _PORTS[scheme] else f"{url.host}:{port}"
    target = f"{scheme}://{host}{url.request_uri}" if is_for_proxy else url.request_uri
    head_fields = {
        "Host": host,
        "Accept-Encoding": "identity",
        "User-Agent": f"eval-factory/{__version__}",
        "Content-Type": "application/json",
        "Accept": "application/json",
    }
    default_names = {name.lower(): name for name in head_fields}  # e.g. "host": "Host"
    for name, value in fields:
        if any(letter in f"{name}{value}" for letter in "\r\n\0"):
            raise ValueError(f"Invalid header value of {name}")
        # The user's field replaces the default field, even if the two names differ in capitals.
        default_name = default_names.get(name.lower())
        if default_name is not None:
            head_fields.pop(default_name, None)
        head_fields[name] = value
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in head_fields.items()]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")
