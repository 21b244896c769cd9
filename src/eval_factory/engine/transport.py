"""One endpoint over urllib3's own pool: what requests would do, at a fraction of its cost per call.

Proxies, their exceptions and certificate bundles come from the environment by requests' rules.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from certifi import where
from requests.utils import get_environ_proxies, select_proxy

CONNECT_TIMEOUT_S = 10.0
CHUNK = 1 << 16
LARGEST_BODY = 64 << 20
"""No answer of a language model is that large; what is would fill the disk."""

CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


class TransportError(Exception):
    """No whole answer came. `unreachable`: not even a connection."""

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


@dataclass(frozen=True)
class Reply:
    """A whole HTTP answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> Any:
        return json.loads(self.data)

    def text(self, limit: int) -> str:
        return self.data[: 4 * limit].decode("utf-8", "replace")[:limit]


class Transport:
    """Keep-alive connections to one host, as many as requests go on at once."""

    def __init__(self, url: str, *, key: str | None, timeout_s: float, connections: int) -> None:
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._pool = _pool_manager(url, connections)

    def post(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Reply:
        """POST a JSON body.

        Raises:
            TransportError: within the attempt's time no whole answer came.
        """
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        return self._ask("POST", url, data, headers)

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self._ask("GET", url, None, headers)

    def _ask(self, method: str, url: str, data: bytes | None, headers: Mapping[str, str] | None) -> Reply:
        deadline = time.monotonic() + self._timeout_s
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, self._timeout_s), read=self._timeout_s)
        try:
            response = self._pool.urlopen(
                method, url, body=data, headers={**self._headers, **(headers or {})}, timeout=timeout,
                retries=False, redirect=False, preload_content=False,
            )  # fmt: skip
        except urllib3.exceptions.HTTPError as error:
            raise _described(error, self._timeout_s) from error
        try:
            body = self._read(response, deadline)
        except urllib3.exceptions.HTTPError as error:
            response.close()
            raise _described(error, self._timeout_s) from error
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return Reply(response.status, response.headers, body)

    def _read(self, response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
        """The whole body. The socket's own timeout starts anew with each byte; the deadline does not."""
        parts: list[bytes] = []
        size = 0
        while chunk := response.read1(CHUNK):
            parts.append(chunk)
            size += len(chunk)
            if time.monotonic() > deadline:
                raise TransportError(f"no whole answer within {self._timeout_s:g} s")
            if size > LARGEST_BODY:
                raise TransportError(f"the answer is larger than {LARGEST_BODY >> 20} MiB")
        return b"".join(parts)


def _described(error: urllib3.exceptions.HTTPError, timeout_s: float) -> TransportError:
    if isinstance(error, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.NameResolutionError)):
        return TransportError("no connection could be made", unreachable=True)
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
        return TransportError("no connection in time", unreachable=True)
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return TransportError(f"no whole answer within {timeout_s:g} s")
    if isinstance(error, urllib3.exceptions.SSLError):
        return TransportError(f"TLS failed: {error}", unreachable=True)
    if isinstance(error, urllib3.exceptions.ProxyError):
        return TransportError("the proxy refused or could not be reached", unreachable=True)
    return TransportError("the connection was closed before the whole answer came")


def _pool_manager(url: str, connections: int) -> urllib3.PoolManager:
    bundle = next((os.environ[name] for name in CERTIFICATE_VARIABLES if os.environ.get(name)), None) or where()
    settings: dict[str, Any] = {"num_pools": 4, "maxsize": connections, "block": False}
    if os.path.isdir(bundle):  # noqa: PTH112 - a variable's text
        settings["ca_cert_dir"] = bundle
    else:
        settings["ca_certs"] = bundle
    proxy = select_proxy(url, get_environ_proxies(url))
    if not proxy:
        return urllib3.PoolManager(**settings)
    parts = urlsplit(proxy)
    headers = None
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=login)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return urllib3.ProxyManager(bare, proxy_headers=headers, **settings)
