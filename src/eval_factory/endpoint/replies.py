"""Reads an endpoint's replies, and writes the messages about an endpoint that cannot be used.

The texts that this module returns hold no secrets, so they may be shown.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from eval_factory.core import foreign_text
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.failure_causes import Causes, cause_line, hint_for, is_not_about_key
from eval_factory.core.secrets import Redactor, secret_in
from eval_factory.core.urls import base_of
from eval_factory.endpoint import made_pictures, media, openai_answers, openai_api
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.http_wire import Reply
from eval_factory.endpoint.native_answers import openai_address
from eval_factory.endpoint.proxies import proxy_variable

ERROR_TEXT_LIMIT = foreign_text.MAX_FOREIGN_TEXT
MAX_ERROR = 1 << 20
"""The maximum size of an error that is read, in bytes."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]{60,}=*")  # a part of a file's content

_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?s)"')
"""Finds the pause in Gemini's errors (google.rpc.RetryInfo), which have no header about a pause.

An example is `"retryDelay": "34.5s"`.
"""

_RESET_AT = re.compile(rb'"X-RateLimit-Reset"\s*:\s*"?(\d{13})\b')
"""Finds the end of the pause in OpenRouter's errors, in milliseconds since the epoch.

An example is `"X-RateLimit-Reset": "1741305600000"`.
"""

_AGAIN_IN = re.compile(rb"try again in (?:(\d{1,3})h)?(?:(\d{1,4})m)?(?:(\d{1,6})(?:\.\d+)?s)?\b")
"""Finds the pause in the text of Groq's and OpenAI's errors, such as "try again in 14m24.5s"."""

_MIN_PAUSE_S = 1
"""The value for a pause of less than a second; 0 would mean that no pause is asked for."""


def headers_of(reply: Reply) -> Mapping[str, str]:
    """Return the headers of an error.

    If the body asks for a pause and no header is named `retry-after`, add this header.
    """
    retry_after = _retry_after_in(reply.data[:MAX_ERROR])
    if retry_after is None:
        return reply.headers
    return {"retry-after": retry_after, **reply.headers}


def _retry_after_in(body: bytes) -> str | None:
    """Return the pause that the body asks for, as the value of a `retry-after` header.

    The value is in seconds, or a duration such as `34s`, which endpoint/limits.py reads too. Return
    None if the body asks for no pause.
    """
    delay = _RETRY_DELAY.search(body)
    if delay is not None:
        return delay[1].decode()
    reset = _RESET_AT.search(body)
    if reset is not None:
        seconds = round(int(reset[1]) / 1000 - time.time())
        return str(max(_MIN_PAUSE_S, seconds))
    wait = _AGAIN_IN.search(body)
    # All three groups are optional: "try again in 500ms" matches without any of them.
    if wait is None or not any(wait.groups()):
        return None
    hours, minutes, seconds = (int(group or 0) for group in wait.groups())
    return str(max(_MIN_PAUSE_S, hours * 3600 + minutes * 60 + seconds))


class ReplyReader:
    """A reader of one endpoint's replies, which removes secrets from them."""

    def __init__(self, redactor: Redactor, endpoint_type: str) -> None:
        self._redactor = redactor
        self._type = endpoint_type

    def answer(self, reply: Reply) -> openai_answers.Completion:
        """Return the answer in a reply with a status of 2xx.

        Raises:
            openai_answers.UnusableAnswer: the reply holds no answer that can be used.
        """
        content_type = reply.headers.get("content-type", "")
        try:
            parsed = openai_answers.unwrapped(openai_answers.parse_answer(reply.data, content_type))
            # An endpoint may echo the key of the request, and no file may hold a key. Only known
            # keys are replaced: other text that looks like a key may be the model's answer.
            answer = self._redactor.redact_tree(parsed, known_only=True)
            if self._type != openai_api.IMAGES:
                return openai_answers.completion_of(answer, self._type)
            answer, pictures = made_pictures.pictures_taken_out(answer)
            return replace(openai_answers.completion_of(answer, self._type), pictures=pictures)
        except RecursionError as error:
            raise openai_answers.UnusableAnswer("the answer is nested too deeply") from error

    def error_text(self, reply: Reply, sent: Mapping[str, Any]) -> str:
        """Return the text of an error on one line, without secrets and without the prompt.

        Only the message of an error object is returned: the rest of the object may hold prompts.
        `sent` is the body of the request.
        """
        if len(reply.data) > MAX_ERROR:
            return f"an error of {len(reply.data)} bytes"
        error_text = None
        with contextlib.suppress(openai_answers.UnusableAnswer, RecursionError):
            error_text = foreign_text.message_or_default(
                self._redactor.redact_tree(openai_answers.parse_answer(reply.data))
            )
        if error_text is None:
            error_text = foreign_text.without_html(
                self._redactor.redact_text(reply.data.decode("utf-8", "replace"))
            )
        if media.has_media(sent):
            # Some servers quote the content of a file that they cannot read.
            error_text = re.sub(_BASE64, "[...]", error_text)
        return foreign_text.one_line(
            error_text, ERROR_TEXT_LIMIT, prompt=foreign_text.texts_in(sent)
        )


class RequestFailed(Exception):
    """A request failed for good; other requests may succeed."""

    def __init__(self, message: str, status: int | None = None, error_text: str = "") -> None:
        """Make the error.

        Args:
            message: the failure in words.
            status: the HTTP status of the reply; None if no reply came.
            error_text: the endpoint's own error text, on one line.
        """
        super().__init__(message)
        self.status = status
        self.error_text = error_text

    @property
    def cause(self) -> str:
        """The failure on one line: the status and the endpoint's own text, or else the message."""
        if self.error_text:
            return f"HTTP {self.status}: {self.error_text}"
        return str(self)


class EndpointUnusable(Exception):
    """The run, or the judge, sends no further request to the endpoint.

    The key, the model or the URL is wrong, no server answers, or the run has reached a limit.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        """Make the error.

        `status` is the HTTP status of the reply that shows the problem; None if no reply came.
        """
        super().__init__(message)
        self.status = status


class EndpointGone(EndpointUnusable):
    """The endpoint never answered, or no longer answers; a later try may succeed."""


class NoneAnswered(EndpointUnusable):
    """The first requests were all refused; requests of another benchmark might succeed."""


class LimitReached(EndpointUnusable):
    """The run has reached a limit and may send no more requests; the message names the limit."""


SHOWN_CAUSES = 3  # the number of causes that a message lists
_CLIENT_ID_SUFFIX = "_CLIENT_ID"  # the end of the variables with the ids of OAuth clients
MAX_SHOWN_PAUSE_S = 366 * 86400.0  # a year, in seconds; a longer pause is shown as a year


@dataclass(frozen=True)
class StopMessages:
    """Writes the messages with which a run stops because of one endpoint in one role.

    Attributes:
        settings: the endpoint's settings.
        url: the URL of the requests, without secrets. `with_all_urls` puts the URLs of all servers
            into this text.
        key_name: the variable whose key is sent; None if no key is sent.
        service_with_client: the name of a service for which the environment has client
            credentials, such as `azure`; None if there are no client credentials.
    """

    settings: EndpointSettings
    url: str
    key_name: str | None
    service_with_client: str | None = None

    @classmethod
    def of(cls, settings: EndpointSettings, url: str, env: Mapping[str, str]) -> StopMessages:
        """Return the messages of an endpoint; they name the credentials in the environment `env`.

        No message holds the value of a credential.
        """
        key_name = next((name for name in settings.key_names if secret_in(env, name)), None)
        clients = sorted(name for name in env if name.endswith(_CLIENT_ID_SUFFIX) and env[name])
        service = None
        if clients:
            service = clients[0].removesuffix(_CLIENT_ID_SUFFIX).lower()
        return cls(settings, url, key_name, service)

    def with_all_urls(self, urls: Sequence[str]) -> StopMessages:
        """Return the messages about all servers of the endpoint, which have these URLs."""
        return replace(self, url=_listed(urls))

    def refused(self, status: int, error_text: str) -> str:
        """Return the message for a refused key (401, 403), or a wrong URL or model (404).

        If the error text shows another cause, the message holds the advice for that cause.

        Args:
            status: the HTTP status.
            error_text: the endpoint's error text.
        """
        error = f"HTTP {status}: {error_text}"
        if is_not_about_key(error):
            advice = hint_for(error, self.settings.role)
            return self.with_judge(f"{self.url} answers {status}{_it_says(error_text)}\n  {advice}")
        if status == 404:
            return self._not_found(error_text)
        return self.with_judge(
            f"Authentication error detected: {self.url} answers {status}{_it_says(error_text)}\n"
            f"  {self._key_advice()}{self._oauth_advice()}"
        )

    def _not_found(self, error_text: str) -> str:
        """Return the message for a URL or a model that does not exist (404)."""
        return self.with_judge(
            f"{self.url} answers 404: there is no such address, "
            f"or no model {self.settings.model_id!r}{_it_says(error_text)}\n"
            f"  check {self._setting_names('url', 'model_id')}{self._url_hint()}"
        )

    def _url_hint(self) -> str:
        """Return the URL that was probably meant, as the end of a sentence; else an empty text."""
        base = base_of(self.url)
        native = openai_address(base)
        if native is not None:
            server, address = native
            return f"; the OpenAI-compatible API of {server} is at {address}"
        if urlsplit(base).path.strip("/"):
            return ""
        # Most servers print their own URL without /v1, and users copy that URL.
        parts = urlsplit(self.url)
        with_v1 = urlunsplit((parts.scheme, parts.netloc, "/v1", "", ""))
        return f"; most servers answer under /v1: {with_v1}"

    def refused_preflight(self, status: int, error_text: str) -> str:
        """Return the message for a refused preflight request, with advice.

        `core/failure_causes` has the advice for known errors.
        """
        advice = hint_for(f"HTTP {status}: {error_text}", self.settings.role)
        if advice is None:
            advice = f"check {self._setting_names('model_id', 'url', 'api_key')}"
        return self.with_judge(
            f"{self.url} refuses a first short request: HTTP {status}{_it_says(error_text)}\n"
            f"  {advice}; --no_preflight starts without a first short request"
        )

    def none_answered(self, number: int, errors: Iterable[str]) -> str:
        """Return the message for first requests that all failed, with the most frequent causes."""
        causes = Causes()
        for error in errors:
            causes.add(self.settings.role, error)
        listed = causes.listed()
        lines = [f"the first {number} requests to {self.url} all failed:"]
        lines += map(cause_line, listed[:SHOWN_CAUSES])
        with_other_causes = sum(cause.count for cause in listed[SHOWN_CAUSES:])
        if with_other_causes:
            lines.append(f"{with_other_causes} x something else")
        check = f"check {self._setting_names('url', 'model_id')}, and the server"
        if not causes.all_permanent:
            check += "; then run the same command again"
        lines.append(check)
        lines.append("to continue anyway: --overrides config.params.extra.stop_after_failures=0")
        return self.with_judge("\n  ".join(lines))

    def no_credit(self, status: int, error_text: str) -> str:
        """Return the message for an account without credit."""
        return self.with_judge(
            f"{self.url} answers {status}: the account has no credit{_it_says(error_text)}\n"
            "  add credit; what was answered is kept: the same command goes on"
        )

    def long_limit(self, status: int, error_text: str, pause: float | None) -> str:
        """Return the message for a limit that lasts for hours or days.

        Args:
            status: the HTTP status.
            error_text: the endpoint's error text.
            pause: the seconds until the limit ends; None if unknown.
        """
        limit = "a limit for hours or days"
        if pause is not None:
            end = datetime.now().astimezone() + timedelta(seconds=min(pause, MAX_SHOWN_PAUSE_S))
            limit = f"a limit until {end:%Y-%m-%d %H:%M %Z}"
        return self.with_judge(
            f"{self.url} answers {status}: {limit}{_it_says(error_text)}\n"
            "  what was answered is kept: after the limit, the same command goes on"
        )

    def moved(self, status: int) -> str:
        """Return the message for an endpoint that redirects to another URL."""
        return self.with_judge(
            f"{self.url} answers {status}, it has moved\n  check {self._setting_names('url')}"
        )

    def proxy_login(self, status: int, url: str) -> str:
        """Return the message for a proxy that requires a login.

        Args:
            status: the HTTP status of the proxy's answer.
            url: the URL of the request; `self.url` may name several servers.
        """
        return self.with_judge(
            f"the proxy on the way to {self.url} answers {status}: "
            "the proxy wants a user name and password\n"
            f"  check the variable {proxy_variable(url)}"
        )

    def unreachable(self, error: str) -> str:
        """Return the message for an endpoint that never answered."""
        return self.with_judge(
            f"cannot reach {self.url}: {error}\n"
            f"  check {self._setting_names('url')} and the network"
        )

    def outage(self, error: str) -> str:
        """Return the message for an endpoint that no longer answers."""
        answers = "answers"
        if len(self.settings.urls) > 1:
            answers = "answer"
        return self.with_judge(
            f"{self.url} no longer {answers}: {error}\n"
            "  what was answered is kept: the same command goes on"
        )

    def with_judge(self, message: str) -> str:
        """Return the message; if the endpoint is a judge's, the judge's name comes first."""
        if self.settings.role == MODEL_ROLE:
            return message
        return f"judge {self.settings.role}: {message}"

    def _setting_names(self, *names: str) -> str:
        """Return the names of settings, with the section of the configuration that holds them."""
        if self.settings.role == MODEL_ROLE:
            return f"target.api_endpoint: {_listed(names)}"
        entry = f"the entry {self.settings.role} of config.params.extra.judges"
        return (
            f"{_listed(names)} of this judge ({entry}; "
            "without an entry, the judge is asked at the target's url)"
        )

    def _oauth_advice(self) -> str:
        """Return advice to sign in with the client credentials of the environment.

        The text is empty if the environment has no client credentials, or if the endpoint uses
        OAuth already.
        """
        if self.service_with_client is None or self.settings.oauth is not None:
            return ""
        key_path = "target.api_endpoint.oauth"
        if self.settings.role != MODEL_ROLE:
            key_path = f"oauth in the entry {self.settings.role} of config.params.extra.judges"
        return (
            f"\n  {key_path}: {self.service_with_client} signs in with the client credentials "
            "that are set"
        )

    def _key_advice(self) -> str:
        """Return advice: which key or token was sent, and what to check or set."""
        if self.settings.oauth is not None:
            return (
                f"check that the client whose {self.settings.oauth.service} "
                "OAuth token was sent may use this model"
            )
        key_names = self.settings.key_names
        advice = "no key was sent"
        if self.key_name is not None:
            advice = (
                f"check the variable {self.key_name}: "
                "its key was sent, and has to be allowed to use this model"
            )
        elif key_names:
            advice = f"no key was sent: set {' or '.join(key_names)}"
        if self.settings.role == MODEL_ROLE:
            return f"{advice} (target.api_endpoint.api_key names the variable)"
        set_first = ""
        # The first name is the judge's own variable; endpoints share the variables after it.
        if self.key_name and key_names and key_names[0] != self.key_name:
            set_first = f"set this judge's own, {key_names[0]}, or "
        return (
            f"{advice}; {set_first}name a variable as api_key in the entry {self.settings.role} "
            "of config.params.extra.judges"
        )


def _listed(names: Sequence[str]) -> str:
    """Return names as a list in a text, such as "a, b and c"."""
    *first, last = names
    if first:
        return f"{', '.join(first)} and {last}"
    return last


def _it_says(error_text: str) -> str:
    """Return the line of a message with the endpoint's error text; empty without a text."""
    if not error_text:
        return ""
    return f"\n  it says: {error_text}"
