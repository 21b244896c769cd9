"""One endpoint over urllib3's own pool: what requests would do, at a fraction of its cost per call.

Proxies, their exceptions and certificate bundles come from the environment by requests' rules.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from certifi import where
from requests.utils import get_environ_proxies, prepend_scheme_if_needed, select_proxy

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.served_url import is_at_a_server
from eval_factory.endpoint import waiting
from eval_factory.endpoint.http_answers import (
    CHUNK,
    LARGEST_BODY,
    TOO_LARGE,
    Answer,
    AnswerIds,
    Hold,
    MalformedAnswer,
    SpeaksTls,
    StrayAnswer,
    UnusableHttp,
)
from eval_factory.endpoint.json_body import json_text
from eval_factory.endpoint.watched_pools import Watch, watched

CONNECT_TIMEOUT_S = 10.0

PROXY_LOGIN = 407
TOO_LATE = "no whole answer within {:g} s"
CUT = "the connection was closed before the whole answer came"
MAX_MALFORMED = 2
"""So often a request is sent whose answers are malformed: the server of a gateway that answers next may do better."""
PAID_AGAIN = f"asked for {MAX_MALFORMED} times at most: the next would be paid, and most likely be the same"
WANTS_TLS = "what answers there speaks TLS: the address has to begin with https://"
SPEAKS_NO_TLS = "what answers there speaks no TLS: the address has to begin with http://"

CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""The first that is set counts, for everything that this program asks."""
PROXY_SCHEMES = ("http", "https")


class TransportError(Exception):
    """No whole answer came. `unreachable`: not even a connection. `silent`: not a byte of an answer. `malformed`: the
    server makes it so. `stray`: it was another question's.
    """

    def __init__(
        self,
        message: str,
        *,
        unreachable: bool = False,
        silent: bool = False,
        malformed: bool = False,
        stray: bool = False,
    ) -> None:
        super().__init__(f"{message}; {PAID_AGAIN}" if malformed else message)
        self.unreachable, self.silent = unreachable, silent or unreachable
        self.malformed, self.stray = malformed, stray


@dataclass(frozen=True)
class Reply:
    """A whole HTTP answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes
    hold: Hold = field(default_factory=Hold, compare=False)
    """Ended by whoever has read it."""

    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class Transport:
    """Keep-alive connections to one host, as many as requests go on at once."""

    def __init__(
        self, url: str, *, timeout_s: float, connections: int, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """
        Args:
            say: is told what is odd about the answers, but no hindrance.

        Raises:
            PrerequisiteError: the variables name no usable proxy, or certificates that are not there.
        """
        self.timeout_s = timeout_s
        """Of one attempt."""
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        self._pools = _pool_manager(url, connections)
        watch, ids = Watch(timeout_s), AnswerIds(say)
        self._pools.pool_classes_by_scheme = {
            scheme: watched(pool, watch, ids) for scheme, pool in self._pools.pool_classes_by_scheme.items()
        }
        parts = urlsplit(url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._pool: Any = (
            None if isinstance(self._pools, urllib3.ProxyManager) else self._pools.connection_from_url(url)
        )
        self._plain_place = (parts.hostname, parts.port or 80) if parts.scheme == "http" and self._pool else None
        """Asked over plain HTTP; None: it is not, it answered, or it was tried over TLS."""
        self._no_retries = urllib3.Retry(False, redirect=False)
        self._connect_timeout_s = min(CONNECT_TIMEOUT_S, timeout_s)
        self._timeout = urllib3.Timeout(connect=self._connect_timeout_s, read=timeout_s)

    def post(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Reply:
        """POST a JSON body.

        Raises:
            TransportError: within the attempt's time no whole answer came.
        """
        data = json_text(body).encode("utf-8", "surrogatepass")
        return self._ask("POST", url, data, headers)

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self._ask("GET", url, None, headers)

    def _ask(self, method: str, url: str, data: bytes | None, headers: Mapping[str, str] | None) -> Reply:
        deadline = time.monotonic() + self.timeout_s
        all_headers = {**self._headers, **headers} if headers else self._headers
        try:
            answer = self._again(method, url, data, all_headers)
            if answer is None:
                reply = waiting.elsewhere(lambda: _reply(self._open(method, url, data, all_headers)))
            elif answer.is_coded:
                reply = _reply(answer.as_urllib3_has_it())
            else:
                reply = Reply(answer.status, answer.fields, answer.body, answer.hold)
            self._plain_place = None
            return reply
        except urllib3.exceptions.HTTPError as error:
            if _wants_a_login(error):
                return Reply(PROXY_LOGIN, {}, b"")
            told = _described(error, self.timeout_s)
            silent = not _had_begun(error)
            if silent and str(told) == CUT and self._is_for_tls():
                told = TransportError(WANTS_TLS, unreachable=True)
            if time.monotonic() >= deadline:
                told = TransportError(TOO_LATE.format(self.timeout_s))
            told.silent = silent
            raise told from error

    def _is_for_tls(self) -> bool:
        """Most servers of TLS hang up on whoever speaks plain HTTP. It is tried once."""
        place, self._plain_place = self._plain_place, None
        return place is not None and waiting.elsewhere(_speaks_tls, place)

    def _again(self, method: str, url: str, data: bytes | None, headers: Mapping[str, str]) -> Answer | None:
        """As the last request was asked; None where urllib3 has to ask."""
        if data and self._pool is not None and url.startswith(f"{self._origin}/"):
            target = url[len(self._origin) :]
            return self._pool.ask_again(method, target, data, headers, self._connect_timeout_s)  # type: ignore[no-any-return]
        return None

    def _open(self, method: str, url: str, data: bytes | None, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """Through the endpoint's own pool where there is no proxy: the manager takes the URL apart at every call."""
        settings: dict[str, Any] = {
            "body": data,
            "headers": headers,
            "timeout": self._timeout,
            "retries": self._no_retries,
            "redirect": False,
        }
        if self._pool is not None and url.startswith(f"{self._origin}/"):
            return self._pool.urlopen(method, url[len(self._origin) :], assert_same_host=False, **settings)  # type: ignore[no-any-return]
        return self._pools.urlopen(method, url, **settings)


def _speaks_tls(place: tuple[str | None, int]) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with socket.create_connection(place, 1.0) as connected, context.wrap_socket(connected):
            return True
    except OSError:
        return False


def _reply(response: urllib3.BaseHTTPResponse) -> Reply:
    hold = vars(response)["hold"]
    return Reply(response.status, response.headers, _decoded(response, hold), hold)


def _decoded(response: urllib3.BaseHTTPResponse, hold: Hold) -> bytes:
    """The body without its content coding, in which far more bytes may be hidden than came."""
    if "Content-Encoding" not in response.headers:
        return response.data or b""
    parts: list[bytes] = []
    size = 0
    try:
        while chunk := response.read1(CHUNK):
            parts.append(chunk)
            size += len(chunk)
            hold.add(len(chunk))
            if size > LARGEST_BODY:
                raise MalformedAnswer(TOO_LARGE)
    except BaseException as error:
        hold.end()
        if isinstance(error, UnusableHttp):
            raise _of_answer(error) from error
        raise
    return b"".join(parts)


def _had_begun(error: urllib3.exceptions.HTTPError) -> bool:
    """Whether the status of an answer came."""
    return isinstance(_cause(error), (http.client.IncompleteRead, UnusableHttp, urllib3.exceptions.DecodeError))


def _cause(error: urllib3.exceptions.HTTPError) -> Exception:
    """What http.client raised, where that is what urllib3 tells."""
    cause = error.args[-1] if isinstance(error, urllib3.exceptions.ProtocolError) else error
    return cause if isinstance(cause, Exception) else error


def _wants_a_login(error: urllib3.exceptions.HTTPError) -> bool:
    """Whether a proxy refused the tunnel with a 407; of a request that needs no tunnel, it is the reply's status."""
    return isinstance(error, urllib3.exceptions.ProxyError) and f" {PROXY_LOGIN} " in f"{error.original_error} "


def _described(error: urllib3.exceptions.HTTPError, timeout_s: float) -> TransportError:
    if isinstance(error, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.NameResolutionError)):
        return TransportError("no connection could be made", unreachable=True)
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
        return TransportError("no connection in time", unreachable=True)
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return TransportError(TOO_LATE.format(timeout_s))
    if isinstance(error, urllib3.exceptions.SSLError) and "wrong version number" in str(error):
        return TransportError(SPEAKS_NO_TLS, unreachable=True)
    if isinstance(error, urllib3.exceptions.SSLError):
        return TransportError(f"TLS failed: {one_line(str(error))}\n{certificates_hint()}", unreachable=True)
    if isinstance(error, urllib3.exceptions.ProxyError):
        return TransportError("the proxy refused or could not be reached", unreachable=True)
    if isinstance(error, urllib3.exceptions.DecodeError):
        return TransportError("the answer is not in the Content-Encoding that it names", malformed=True)
    return _of_answer(_cause(error))


def _of_answer(cause: Exception) -> TransportError:
    """What was wrong with what came."""
    if isinstance(cause, SpeaksTls):
        return TransportError(WANTS_TLS, unreachable=True)
    if isinstance(cause, http.client.BadStatusLine) and not isinstance(cause, http.client.RemoteDisconnected):
        return TransportError("what came is no HTTP", malformed=True)
    if not isinstance(cause, UnusableHttp):
        return TransportError(CUT)
    malformed, stray = isinstance(cause, MalformedAnswer), isinstance(cause, StrayAnswer)
    return TransportError(one_line(str(cause)), malformed=malformed, stray=stray)


def proxy_for(url: str) -> str | None:
    """The proxy that leads to an endpoint. Where helm-run is told of proxies, the usual variables are not looked at."""
    given = HelmRunSettings.from_environment(os.environ).proxies
    if given is None:
        return proxy_from_environment(url)
    parts = urlsplit(url)
    return given.get(f"{parts.scheme}://{parts.netloc}")


def proxy_variable(url: str) -> str:
    """The variable that names the proxy, by requests' rules; the usual one where none is set."""
    scheme = urlsplit(url).scheme
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    return next((name for name in names if os.environ.get(name)), names[1])


def proxy_from_environment(url: str) -> str | None:
    """By requests' rules; what has no scheme is an HTTP proxy.

    Raises:
        PrerequisiteError: it is another kind of proxy.
    """
    if is_at_a_server(url, os.environ):
        return None
    given: str | None = select_proxy(url, get_environ_proxies(url))
    if not given:
        return None
    proxy = str(prepend_scheme_if_needed(given, "http"))  # type: ignore[no-untyped-call]
    scheme = urlsplit(proxy).scheme
    if scheme not in PROXY_SCHEMES:
        names = [name for name, value in os.environ.items() if value == given and name.lower().endswith("_proxy")]
        raise PrerequisiteError(
            f"{' and '.join(names) or 'the proxy'}: a proxy of the kind {scheme}:// is not known, only http:// and"
            f" https:// are\n  name another one, or unset it; NO_PROXY={urlsplit(url).hostname} goes past it"
        )
    return proxy


def certificates() -> tuple[str, str]:
    """The file or folder of the certificates that are trusted, and who named it.

    Raises:
        PrerequisiteError: it is not there.
    """
    name = next((name for name in CERTIFICATE_VARIABLES if os.environ.get(name)), None)
    if name is None:
        return where(), "certifi"
    bundle = os.environ[name]
    if not os.path.exists(bundle):  # noqa: PTH110 - a variable's text
        raise PrerequisiteError(f"{name}: there is no file {bundle}; it has to hold the certificates to trust (PEM)")
    return bundle, name


def certificates_hint() -> str:
    """What to do where TLS fails, as a line of an error."""
    bundle, origin = certificates()
    *first, last = CERTIFICATE_VARIABLES
    return (
        f"  the certificates to trust are those of {bundle} ({origin}); to trust your own authority's, name their file"
        f" (PEM) in {', '.join(first)} or {last}: the first of these that is set counts"
    )


def _pool_manager(url: str, connections: int) -> urllib3.PoolManager:
    bundle, _ = certificates()
    settings: dict[str, Any] = {"num_pools": 4, "maxsize": connections, "block": False}
    if os.path.isdir(bundle):  # noqa: PTH112 - a variable's text
        settings["ca_cert_dir"] = bundle
    else:
        settings["ca_certs"] = bundle
    proxy = proxy_for(url)
    if not proxy:
        return urllib3.PoolManager(**settings)
    parts = urlsplit(proxy)
    headers = None
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=login)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return urllib3.ProxyManager(bare, proxy_headers=headers, **settings)
