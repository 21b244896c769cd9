"""One endpoint: connections that are used again, each attempt within its time, and proxies on the
way.

No request that may have been answered is sent a second time here: answers are paid for.
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
    CUT,
    LargeBodySlot,
    Reply,
    TransportError,
    Wire,
    tls_failed,
)
from eval_factory.endpoint.openai_api import json_text
from eval_factory.endpoint.proxies import certificates, proxy_for, tls_context

CONNECT_TIMEOUT_S = 10.0
# a host's next address is tried beside the one before after so long (RFC 8305)
OTHER_ADDRESS_S = 0.25
MAX_ANSWERS = 100  # on one connection: no more are shifted by an answer that nobody asked for
LINGER_S = 1.0  # a connection that is given up is looked at for so long
MIN_SETTLING_S = 0.02
MAX_SETTLING_S = 2.0
PROXY_LOGIN = 407
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
"""A field of a JSON document: within a text, its quotes would be escaped."""
_PORTS = {"http": 80, "https": 443}


class _Deadline:
    """A block that ends with this error when its time is over (`asyncio.timeout` is of Python
    3.11).
    """

    def __init__(self, seconds: float, error: Callable[[], TransportError]) -> None:
        self._seconds = seconds
        self._error = error
        self._is_over = False

    def __enter__(self) -> None:
        self._task: Any = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end)

    def _end(self) -> None:
        self._is_over = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._is_over and kind is asyncio.CancelledError:
            raise self._error() from None


def _address(parts: Url) -> tuple[str, str, int]:
    scheme = parts.scheme or "http"
    return scheme, (parts.host or "").strip("[]"), parts.port or _PORTS[scheme]


class _Surplus:
    """The finding that an endpoint gave more answers than it was asked for, which is said once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.was_seen = False

    def seen(self) -> None:
        if not self.was_seen:
            self.was_seen = True
            self._say(SURPLUS)


class Transport:
    """Asks one host, over as many connections as requests go on at once."""

    def __init__(
        self, url: str, *, timeout_s: float, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """Make the connections to a server; none is opened yet. `say`: gets a message of what is
        odd about the answers, but no hindrance.

        Raises PrerequisiteError: the variables name no usable proxy, or certificates that are not
        there.
        """
        self.timeout_s = timeout_s
        certificates()
        self._scheme, self._host, self._port = _address(parse_url(url))
        proxy = proxy_for(url)
        self._proxy = parse_url(proxy) if proxy else None
        self._idle: list[Wire] = []
        """Connections that wait for a request."""
        self._say = say
        self._ids_are_unique = True
        self._suspected = set[int]()
        """Hashes of ids that came twice: they may not tell one answer from another."""
        self._context: ssl.SSLContext | None = None
        self._has_answered = False
        self._surplus = _Surplus(say)
        self._slowest_s = 0.0

    @property
    def settling_s(self) -> float:
        """Seconds in which an answer that is still due shows that a connection gave one too many.

        0 if no connection gave a second answer.
        """
        if not any(wire.answers > 1 for wire in list(self._idle)):
            return 0.0
        return min(MAX_SETTLING_S, MIN_SETTLING_S + 1.5 * self._slowest_s)

    def post(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Reply:
        """POST a JSON body. Raises TransportError: within the attempt's time no complete answer
        came.
        """
        data = json_text(body).encode("utf-8", "surrogatepass")
        return self._ask("POST", url, data, headers)

    def post_alone(
        self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Reply:
        """POST a JSON body on a new connection, whose first answer is that of its question."""
        data = json_text(body).encode("utf-8", "surrogatepass")
        return self._ask("POST", url, data, headers, is_alone=True)

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self._ask("GET", url, b"", headers)

    def __del__(self) -> None:
        # it was never complete; the loop is closed
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
        by_proxy = self._proxy is not None and self._scheme == "http"
        fields = (*(headers or {}).items(), *(_proxy_fields(self._proxy) if by_proxy else ()))
        head = _head(method, _parsed(url), by_proxy, fields)
        length = b"Content-Length: %d\r\n\r\n" % len(data) if method == "POST" else b"\r\n"
        return bridge.wait_for(self._attempt(head + length + data, data, is_alone=is_alone))

    async def _attempt(self, request: bytes, question: bytes, *, is_alone: bool) -> Reply:
        wire: Wire | None = None
        body_slot = LargeBodySlot()
        began = asyncio.get_running_loop().time()

        def late() -> TransportError:
            silent = wire is None or not wire.has_begun
            return TransportError(f"no whole answer within {self.timeout_s:g} s", silent=silent)

        try:
            with _Deadline(self.timeout_s, late):
                wire = None if is_alone else await self._usable()
                wire = wire or await self._connected()
                await wire.exchange(request, body_slot)
                body = await wire.body(body_slot)
                if question and wire.status < 300 and self._is_stray(wire, question, body):
                    wire.close()
                    raise TransportError(
                        "an answer came that was given before, to another question", stray=True
                    )
                self._has_answered = True
                took_s = asyncio.get_running_loop().time() - began
                self._slowest_s = max(self._slowest_s, took_s)
                return Reply(wire.status, wire.headers(), body, body_slot, wire.doubt)
        except _LoginWantedError:
            return Reply(PROXY_LOGIN, {}, b"")
        except BaseException as error:
            body_slot.release()
            is_cut = isinstance(error, TransportError) and error.silent and str(error) == CUT
            if is_cut and self._scheme == "http" and self._proxy is None and not self._has_answered:
                raise TransportError(f"{CUT}; {PERHAPS_TLS}", silent=True) from None
            raise
        finally:
            if wire is not None:
                self._put_away(wire)

    def _is_stray(self, wire: Wire, question: bytes, answer: bytes) -> bool:
        """Return True if this was the answer to an earlier question on its connection, as far as
        the completion's `id` tells.

        A late second answer to one question shifts all that follow: each is taken for the answer to
        the next question. An id that comes a third time is a server's that gives one to many
        answers: its ids tell nothing.
        """
        ids = _ID.findall(answer) if self._ids_are_unique else None
        if not ids:
            return False
        name = hash(tuple(ids))
        asked = hash(question)
        is_known = wire.questions.setdefault(name, asked) != asked
        if name in self._suspected:
            self._ids_are_unique = False
            self._say(NOT_UNIQUE)
            return False
        if is_known:
            self._suspected.add(name)
        return is_known

    async def _usable(self) -> Wire | None:
        """A connection that may be asked: the one that answered last, so that others are closed
        in time.
        """
        while self._idle:
            wire = self._idle.pop()
            if wire.is_usable() and not self._surplus.was_seen:
                return wire
            if wire.is_open:  # something came unasked: the wire reads what it is, and says so
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            wire.close()
        return None

    def _put_away(self, wire: Wire) -> None:
        """Put a connection away after an attempt. An endpoint that answers more than it is asked
        gets a connection for each request: the first answer of a connection is that of its
        question.
        """
        if not wire.is_open:
            wire.close()
        elif self._surplus.was_seen or wire.answers >= MAX_ANSWERS:
            asyncio.get_running_loop().call_later(LINGER_S, wire.close)
        else:
            self._idle.append(wire)

    async def _connected(self) -> Wire:
        wire = Wire()
        wire.on_surplus = self._surplus.seen
        with _Deadline(
            min(CONNECT_TIMEOUT_S, self.timeout_s),
            lambda: TransportError(NOT_IN_TIME, unreachable=True),
        ):
            try:
                if self._proxy is not None:
                    await self._reach_proxy(wire, self._proxy)
                else:
                    await _connect(wire, self._host, self._port)
                if self._scheme == "https":
                    await self._speak_tls(wire, self._host)
                return wire
            except BaseException:
                wire.close()
                raise

    async def _reach_proxy(self, wire: Wire, proxy: Url) -> None:
        scheme, host, port = _address(proxy)
        try:
            await _connect(wire, host, port)
            if scheme == "https":
                await self._speak_tls(wire, host)
            if self._scheme == "http":
                return
            name = f"[{self._host}]" if ":" in self._host else self._host
            target = f"{name}:{self._port}"
            lines = [
                f"CONNECT {target} HTTP/1.1",
                f"Host: {target}",
                *map(": ".join, _proxy_fields(proxy)),
                "",
                "",
            ]
            await wire.exchange("\r\n".join(lines).encode("latin-1"), LargeBodySlot(), tunnel=True)
        except TransportError as error:
            raise TransportError(PROXY_FAILED, unreachable=True) from error
        if wire.status == PROXY_LOGIN:
            raise _LoginWantedError
        if wire.status >= 300 or not wire.is_open:
            raise TransportError(PROXY_FAILED, unreachable=True)
        wire.answers = 0

    async def _speak_tls(self, wire: Wire, host: str) -> None:
        try:
            if self._context is None:
                self._context = tls_context()
            # looked up with its dot, certified without
            await wire.speak_tls(self._context, host.rstrip("."))
        except ConnectionError as error:
            raise TransportError(CUT, silent=True) from error
        except (OSError, ValueError) as error:
            if "wrong version number" in str(error).lower().replace("_", " "):
                said = "the server there does not speak TLS: the address has to begin with http://"
                raise TransportError(said, unreachable=True) from error
            raise TransportError(tls_failed(error), unreachable=True) from error


class _LoginWantedError(Exception):
    """A proxy refused the tunnel with a 407; of a request that needs no tunnel, it is the
    reply's status.
    """


def _proxy_fields(proxy: Url | None) -> tuple[tuple[str, str], ...]:
    if proxy is None or not proxy.auth:
        return ()
    login = base64.b64encode(unquote(proxy.auth).encode("latin-1")).decode()
    return (("Proxy-Authorization", f"Basic {login}"),)


async def _connect(wire: asyncio.Protocol, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    # Python's race of several addresses leaves a socket open where it is cancelled: one address
    # needs no race.
    delay = None if re.fullmatch(r"[\d.]+|.*:.*", host) else OTHER_ADDRESS_S
    try:
        await loop.create_connection(lambda: wire, host, port, happy_eyeballs_delay=delay)
    except (OSError, UnicodeError) as error:
        raise TransportError("no connection could be made", unreachable=True) from error


_parsed = lru_cache(64)(parse_url)


@lru_cache(64)
def _head(method: str, url: Url, by_proxy: bool, fields: tuple[tuple[str, str], ...]) -> bytes:
    """A request's header, but for the length of its body. Raises ValueError: a line would
    be two.
    """
    scheme, _, port = _address(url)
    host = (url.host or "") if port == _PORTS[scheme] else f"{url.host}:{port}"
    target = f"{scheme}://{host}{url.request_uri}" if by_proxy else url.request_uri
    own = {
        "Host": host,
        "Accept-Encoding": "identity",
        "User-Agent": f"eval-factory/{__version__}",
        "Content-Type": "application/json",
        "Accept": "application/json",
    }
    named = {name.lower(): name for name in own}
    for name, value in fields:
        if any(letter in f"{name}{value}" for letter in "\r\n\0"):
            raise ValueError(f"Invalid header value of {name}")
        own.pop(named.get(name.lower(), ""), None)  # the user's own User-Agent
        own[name] = value
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in own.items()]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")
