"""One download: retries, a size limit, the known hash; a file is whole or not there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from eval_factory import __version__
from eval_factory.data.content import Blob, is_page, problem_of
from eval_factory.data.failure import FetchError
from eval_factory.endpoint.http_wire import certificates, certificates_hint, proxy_from_environment

TIMEOUT_S = (10.0, 60.0)
"""To connect, and between two pieces of an answer."""
LARGEST_FILE = 4 << 30
CHUNK = 1 << 18
WEB_PAGE = "a web page came, not the file: a page to log in, or the notice of a proxy"

RETRIES = Retry(
    total=4, connect=1, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), allowed_methods=("GET",),
    raise_on_status=False,
)  # fmt: skip


class Fetcher:
    """Downloads over connections that are kept; safe among threads. A host that was not there is not tried again."""

    def __init__(self, *, connections: int = 8) -> None:
        """
        Raises:
            PrerequisiteError: a variable names certificates that are not there.
        """
        self._session = requests.Session()
        self._session.verify = certificates()[0]
        self._session.headers["User-Agent"] = f"eval-factory/{__version__}"
        adapter = HTTPAdapter(max_retries=RETRIES, pool_maxsize=connections)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)
        self._given_up: dict[str, tuple[str, bool]] = {}
        """Host -> why, and whether it was not there at all."""

    def close(self) -> None:
        self._session.close()

    def file(self, url: str, target: Path, *, sha256: str | None = None, blob: Blob | None = None) -> None:
        """GET `url` into `target`. Where neither hash is known, its content has to be of the kind that its name says.

        Raises:
            FetchError: it did not come whole, or is something else. `target` is then not there.
        """
        partial = target.with_name(f"{target.name}.part")
        try:
            found, media_type = self._stream(url, partial)
            if sha256 is not None:
                other = f"its content is not what it was (SHA-256 {found}, known is {sha256})"
                problem = None if found == sha256 else other
            elif blob is not None:
                problem = blob.problem_of(partial)
            else:
                problem = WEB_PAGE if media_type == "text/html" else problem_of(partial, target.name)
            if (problem is not None or (sha256 is None and blob is None)) and is_page(partial):
                problem = WEB_PAGE
            if problem is not None:
                raise FetchError(f"{url}: {problem}")
            os.replace(partial, target)  # noqa: PTH105
        finally:
            partial.unlink(missing_ok=True)

    def json(self, url: str) -> Any:
        """
        Raises:
            FetchError
        """
        with self._get(url) as response:
            try:
                return response.json()
            except ValueError:
                raise FetchError(f"{url}: the answer is no JSON") from None

    def _stream(self, url: str, target: Path) -> tuple[str, str]:
        """SHA-256 and media type of what came."""
        digest, size = hashlib.sha256(), 0
        with self._get(url) as response, target.open("wb") as file:
            try:
                for block in response.iter_content(CHUNK):
                    size += len(block)
                    if size > LARGEST_FILE:
                        raise FetchError(f"{url}: is larger than {LARGEST_FILE >> 30} GiB")
                    digest.update(block)
                    file.write(block)
            except (requests.RequestException, OSError) as error:
                if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
                    raise  # the disk
                raise FetchError(f"{url}: the connection ended before the whole file came") from error
            declared = response.headers.get("Content-Length", "")
            if declared.isdigit() and "Content-Encoding" not in response.headers and int(declared) != size:
                raise FetchError(f"{url}: {size} of {declared} bytes came")
            media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return digest.hexdigest(), media_type

    def _get(self, url: str) -> requests.Response:
        host = urlsplit(url).netloc
        if host in self._given_up:
            raise self._given_up_on(host)
        proxy_from_environment(url)  # raises where requests would only say that it knows no such proxy
        try:
            response = self._session.get(url, timeout=TIMEOUT_S, stream=True)
        except requests.exceptions.SSLError as error:
            self._given_up[host] = (f"{host}: TLS failed, its certificate is not trusted\n{certificates_hint()}", False)
            raise self._given_up_on(host) from error
        except (requests.ConnectionError, requests.Timeout) as error:
            self._given_up[host] = (f"{host} cannot be reached", True)
            raise self._given_up_on(host) from error
        except requests.RequestException as error:
            raise FetchError(f"{url}: {type(error).__name__}") from error
        if response.status_code != requests.codes.ok:
            response.close()
            raise FetchError(f"{url}: HTTP {response.status_code}{_hint(response)}")
        return response

    def _given_up_on(self, host: str) -> FetchError:
        message, unreachable = self._given_up[host]
        return FetchError(message, unreachable=unreachable)


def _hint(response: requests.Response) -> str:
    if response.headers.get("X-RateLimit-Remaining") == "0":
        return " (the limit of requests without an account is used up; try again in an hour)"
    return ""
