"""A client of OpenAI's batch API: uploads files, makes batches, and reads their status and results.

The API: https://platform.openai.com/docs/api-reference/batch
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests

from eval_factory.core.foreign_text import (
    MAX_FOREIGN_TEXT,
    message_or_default,
    one_line,
    without_html,
)
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.limits import RATE_LIMIT_STATUSES
from eval_factory.endpoint.proxies import find_trusted_certificates, proxy_for
from eval_factory.endpoint.servers import Servers
from eval_factory.endpoint.sign_in import SignInError

TIMEOUT_S = 60.0  # for each request except uploads, in seconds
UPLOAD_TIMEOUT_S = 600.0  # for the upload of a batch's file, in seconds
COMPLETION_WINDOW = "24h"  # the time within which a batch has to end; OpenAI allows only 24 hours
PAGE_SIZE = 100  # the number of batches in a page of the list of batches; OpenAI allows at most 100
MAX_PAGES = 50  # the maximum number of pages of the list of batches that are read
INTENT_METADATA_KEY = "eval_factory_intent"
"""The metadata field by which a batch of eval-factory is recognized."""
FINAL_STATUSES = frozenset({"completed", "failed", "expired", "cancelled"})
"""The statuses after which a batch brings no more results."""
NO_SUCH_ADDRESS_STATUSES = frozenset({404, 405, 501})
"""The HTTP statuses of an endpoint without a batch API.

They mean "not found", "method not allowed" and "not implemented".
"""


class BatchApiError(Exception):
    """The endpoint refused a request of the batch API, or did not answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """Make the error. `status` is the HTTP status of the refusal; None if no answer came."""
        super().__init__(message)
        self.status = status

    @property
    def is_temporary(self) -> bool:
        """True if a later try may succeed."""
        if self.status is None or self.status in RATE_LIMIT_STATUSES:
            return True
        return self.status >= 500


@dataclass(frozen=True)
class BatchStatus:
    """The endpoint's report on a batch."""

    id: str
    status: str  # such as "in_progress"; the final values are `FINAL_STATUSES`
    total: int  # the number of requests in the batch
    completed: int  # the number of requests with an answer
    failed: int  # the number of requests that failed
    output_file: str | None  # the id of the file with the answers; None if there is no file
    error_file: str | None  # the id of the file with the failed requests; None if there is no file
    expires_at: float | None
    """The end of the completion window, in seconds since the epoch."""
    intent: str | None
    """The value of the metadata field `INTENT_METADATA_KEY`; None if there is no such field."""
    has_metadata: bool
    """False if the batch was made without metadata, or if the endpoint does not return them."""
    errors: tuple[tuple[str, str], ...]
    """The (code, message) of each reason why the complete batch failed."""

    @property
    def is_over(self) -> bool:
        """True if the batch brings no more results."""
        return self.status in FINAL_STATUSES

    @classmethod
    def read(cls, document: Any) -> BatchStatus:
        """Read a batch's status from the JSON document of an answer.

        Raises:
            BatchApiError: the answer does not describe a batch.
        """
        if not isinstance(document, Mapping) or not isinstance(document.get("id"), str):
            raise BatchApiError("the answer does not describe a batch")
        counts = _mapping(document.get("request_counts"))
        metadata = _mapping(document.get("metadata"))
        intent = metadata.get(INTENT_METADATA_KEY)
        return cls(
            id=document["id"],
            status=str(document.get("status")),
            total=_count(counts.get("total")),
            completed=_count(counts.get("completed")),
            failed=_count(counts.get("failed")),
            output_file=_text(document.get("output_file_id")),
            error_file=_text(document.get("error_file_id")),
            expires_at=_time(document.get("expires_at")),
            intent=_text(intent),
            has_metadata=bool(metadata),
            errors=tuple(_errors(document.get("errors"))),
        )


class BatchApi:
    """A client for the batches of one endpoint.

    Each method raises `BatchApiError` if no answer comes, if the endpoint refuses the request, or
    if the answer has an unknown form.
    """

    def __init__(self, servers: Servers, base: str, redactor: Redactor) -> None:
        """Make the client.

        Args:
            servers: has the sign-in and the user's headers; the endpoint has a single server.
            base: the base URL of the endpoint's API.
            redactor: removes secrets from texts.
        """
        self._servers = servers
        self._base = base
        self._redactor = redactor

    def upload(self, name: str, data: bytes) -> str:
        """Upload the file of a batch, and return the file's id."""
        document = self._json(
            "POST",
            "files",
            timeout=UPLOAD_TIMEOUT_S,
            data={"purpose": "batch"},
            files={"file": (name, data, "application/jsonl")},
        )
        file_id = _mapping(document).get("id")
        if not isinstance(file_id, str):
            raise BatchApiError("the answer to the upload names no file")
        return file_id

    def create(self, file_id: str, address: str, metadata: Mapping[str, str]) -> BatchStatus:
        """Make a batch from an uploaded file, and return its status.

        Args:
            file_id: the id of the uploaded file.
            address: the path to which the provider sends the requests, such as
                `/v1/chat/completions`.
            metadata: the metadata by which the batch is recognized, with the field
                `INTENT_METADATA_KEY`.
        """
        request = {
            "input_file_id": file_id,
            "endpoint": address,
            "completion_window": COMPLETION_WINDOW,
            "metadata": dict(metadata),
        }
        return BatchStatus.read(self._json("POST", "batches", json=request))

    def status(self, batch_id: str) -> BatchStatus:
        """Return the status of a batch."""
        return BatchStatus.read(self._json("GET", f"batches/{batch_id}"))

    def cancel(self, batch_id: str) -> BatchStatus:
        """Cancel a batch, and return its status."""
        return BatchStatus.read(self._json("POST", f"batches/{batch_id}/cancel"))

    def listed(self) -> Iterator[BatchStatus]:
        """Yield the endpoint's batches, the newest first, up to `MAX_PAGES` pages."""
        after = None
        for _ in range(MAX_PAGES):
            parameters: dict[str, Any] = {"limit": PAGE_SIZE}
            if after is not None:
                parameters["after"] = after
            document = _mapping(self._json("GET", "batches", params=parameters))
            page = document.get("data")
            if not isinstance(page, list) or not page:
                return
            for entry in page:
                status = BatchStatus.read(entry)
                after = status.id
                yield status
            if not document.get("has_more"):
                return

    def check(self) -> None:
        """Check that the endpoint has a batch API.

        Raises:
            BatchApiError: the endpoint does not list batches.
        """
        self._json("GET", "batches", params={"limit": 1})

    def lines(self, file_id: str) -> Iterator[Mapping[str, Any]]:
        """Yield the lines of a result file; lines that are not JSON objects are skipped."""
        with self._answer("GET", f"files/{file_id}/content", stream=True) as answer:
            try:
                for line in answer.iter_lines():
                    try:
                        document = json.loads(line)
                    except (ValueError, RecursionError):
                        continue
                    if isinstance(document, Mapping):
                        yield document
            except requests.RequestException as error:
                raise BatchApiError(self._safe_line(str(error))) from None

    def _json(self, method: str, path: str, **options: Any) -> Any:
        """Send a request, and return the JSON document of its answer."""
        with self._answer(method, path, **options) as answer:
            try:
                return answer.json()
            except ValueError:
                reason = "the answer is not JSON"
            except RecursionError:
                reason = "the answer is nested too deeply"
        raise BatchApiError(f"{self._url_in_messages(path)}: {reason}")

    def _answer(
        self, method: str, path: str, *, timeout: float = TIMEOUT_S, **options: Any
    ) -> requests.Response:
        """Send a request, and return its answer.

        Args:
            method: the HTTP method.
            path: the path below the base URL.
            timeout: in seconds.
            **options: further arguments of `requests.request`.

        Raises:
            BatchApiError: no answer came, or the endpoint refused the request.
            PrerequisiteError: the proxy or the certificates of the environment cannot be used.
        """
        url = self._url(path)
        headers = {**self._servers.headers, "Accept-Encoding": "identity"}
        proxy = proxy_for(url)
        proxies: dict[str, str] = {}
        if proxy:
            proxies[urlsplit(url).scheme] = proxy
        trusted_certificates, _ = find_trusted_certificates()
        try:
            authorization = self._servers.sign_in.header()
            if authorization:
                headers["Authorization"] = authorization
            answer = requests.request(
                method,
                url,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                proxies=proxies,
                verify=trusted_certificates,
                auth=_keep_headers,
                **options,
            )
        except SignInError as error:
            raise BatchApiError(str(error), status=401) from None
        except requests.RequestException as error:
            raise BatchApiError(
                f"{self._url_in_messages(path)}: {self._safe_line(str(error))}"
            ) from None
        if not 200 <= answer.status_code < 300:
            with answer:
                reason = f"HTTP {answer.status_code}: {self._error_text(answer)}"
            raise BatchApiError(
                f"{self._url_in_messages(path)}: {reason}", status=answer.status_code
            )
        return answer

    def _error_text(self, answer: requests.Response) -> str:
        """Return the message of a refusal on one line, without secrets."""
        try:
            message = message_or_default(answer.json())
        except (ValueError, RecursionError):
            message = None
        return self._safe_line(message or answer.text[:MAX_FOREIGN_TEXT])

    def _safe_line(self, text: str) -> str:
        """Return a foreign text on one line, without secrets."""
        return one_line(without_html(self._redactor.redact_text(text)), MAX_FOREIGN_TEXT)

    def _url(self, path: str) -> str:
        """Return the URL of a path below the base URL, with the query of the base URL."""
        parts = urlsplit(self._base)
        return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))

    def _url_in_messages(self, path: str) -> str:
        """Return the URL of a path as messages may show it, without secrets."""
        return self._redactor.redact_text(self._url(path))


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return a request unchanged.

    This function is passed to the package requests as `auth`. Without an `auth`, requests would
    replace the key by a password from ~/.netrc.
    """
    return request


def reply_in(line: Mapping[str, Any]) -> tuple[str, int, str] | None:
    """Return (key of the request, HTTP status, body of the reply) from a line of a result file.

    If the line has an error instead of a reply, the error becomes the body. Return None if the line
    has neither a reply nor an error, or names no request.
    """
    key = line.get("custom_id")
    if not isinstance(key, str):
        return None
    response = _mapping(line.get("response"))
    status = response.get("status_code")
    if isinstance(status, int) and response.get("body") is not None:
        return key, status, json.dumps(response["body"], ensure_ascii=False)
    error = line.get("error")
    if error is None:
        return None
    return key, _status_of(error), json.dumps({"error": error}, ensure_ascii=False)


def _status_of(error: Any) -> int:
    """Return the HTTP status of an error in a line without a reply.

    If the error's code is not an HTTP status of an error (400 to 599), return 500, so that the
    request is tried again.
    """
    code = _mapping(error).get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return 500


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty mapping."""
    if isinstance(value, Mapping):
        return value
    return {}


def _text(value: Any) -> str | None:
    """Return the value if it is a text that is not empty, else None."""
    if isinstance(value, str) and value:
        return value
    return None


def _count(value: Any) -> int:
    """Return the value if it is a whole number of 0 or more, else 0."""
    if type(value) is int and value >= 0:  # not `isinstance`: a boolean is an int too
        return value
    return 0


def _time(value: Any) -> float | None:
    """Return the value if it can be seconds since the epoch, else None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 < value < 2**40:  # the bound excludes milliseconds since the epoch
        return float(value)
    return None


def _errors(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the code and message of each error in a batch's `errors`."""
    entries = _mapping(value).get("data")
    if not isinstance(entries, list):
        return
    for entry in entries:
        error = _mapping(entry)
        yield str(error.get("code") or ""), str(error.get("message") or "")
