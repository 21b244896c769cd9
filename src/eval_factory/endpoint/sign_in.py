"""Signs requests with a key, or with a token that a service issues for client credentials.

oauthlib implements the OAuth 2.0 client credentials (RFC 6749, section 4.4). A token is cached in
memory and in a file of the user's cache folder (mode 0600). All processes of this user with the
same service, client and scope share the file. Deleting the file forces a new token. A file that
another user could have written is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from eval_factory.core.foreign_text import message_or_default, one_line
from eval_factory.core.rundir import PRIVATE, PRIVATE_FOLDER
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import Redactor, secret_in, variable_of
from eval_factory.core.urls import origin_of
from eval_factory.endpoint import bridge
from eval_factory.endpoint.endpoint_settings import EndpointSettings, OAuthSettings
from eval_factory.endpoint.proxies import certificates_hint, find_trusted_certificates, proxy_for
from eval_factory.endpoint.registrable_domain import fallback_service

if TYPE_CHECKING:
    from oauthlib.oauth2 import OAuth2Error

RENEW_BEFORE_S = 60.0
"""The seconds before its expiry at which a token is renewed.

A token that was sent is then still valid when its request arrives.
"""
MAX_PART_OF_LIFETIME = 0.25
"""The maximum value of `RENEW_BEFORE_S`, as a share of the token's lifetime.

Without this limit, a token that lives for 30 s would be renewed before each request.
"""
MAX_LIFETIME_S = 24 * 3600.0  # seconds; a token with a longer lifetime is renewed after this time


def cache_folder(env: Mapping[str, str]) -> Path:
    """Return this program's cache folder by the XDG Base Directory Specification.

    A relative XDG_CACHE_HOME counts as not set.
    """
    configured = Path(env.get("XDG_CACHE_HOME", ""))  # without a value, `.`, which is relative
    if configured.is_absolute():
        home = configured
    else:
        home = Path(env.get("HOME") or Path.home()) / ".cache"
    return home / "eval-factory"


@dataclass(frozen=True)
class Token:
    """An access token of a service."""

    value: str
    expires_at: float  # in seconds since the epoch
    lifetime: float  # in seconds, as the service stated it

    @property
    def is_fresh(self) -> bool:
        """True if the token need not be renewed yet."""
        renew_before_s = min(RENEW_BEFORE_S, MAX_PART_OF_LIFETIME * self.lifetime)
        return time.time() < self.expires_at - renew_before_s


def token_file(oauth: OAuthSettings, env: Mapping[str, str], folder: Path | None = None) -> Path:
    """Return the file in which a token is cached; its name depends on token URL, client and scope.

    `folder` is the cache folder; None: the folder of `cache_folder`.
    """
    # a dict from the end of a variable's name to the value that counts if the variable is not set
    defaults = {"TOKEN_URL": oauth.token_url, "CLIENT_ID": None, "SCOPE": oauth.scope}
    identity = []
    for name, default in defaults.items():
        configured = env.get(variable_of(oauth.service, name), "").strip()
        identity.append(configured or default)
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    return (folder or cache_folder(env)) / f"{oauth.service}_{digest}_oauth_token.json"


def cached_token(oauth: OAuthSettings, env: Mapping[str, str]) -> str | None:
    """Return the text of the cached token, fresh or not; None if no token is cached.

    The caller needs the text to remove it from other texts.
    """
    token = read_token(token_file(oauth, env))
    if not token:
        return None
    return token.value


def read_token(file: Path) -> Token | None:
    """Read a cached token.

    Return None if the file does not exist, holds no valid token, or is accessible to other users.
    """
    with contextlib.suppress(
        OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError
    ):
        # O_NONBLOCK: opening a FIFO would wait for a writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8") as opened:
            file_state = os.fstat(descriptor)
            private_file = stat.S_IFREG | PRIVATE  # a regular file that only its owner can read
            if file_state.st_mode != private_file or file_state.st_uid != os.geteuid():
                return None
            document = json.loads(opened.read(65536))
        value = document["access_token"]
        expires_at = document["expires_at"]
        lifetime = document["lifetime_s"]
        has_possible_times = (
            0 < lifetime <= MAX_LIFETIME_S and 0 < expires_at <= time.time() + MAX_LIFETIME_S
        )
        is_text = isinstance(value, str) and value != ""
        # A renamed file holds a token of another service, client or scope.
        has_own_name = document["file"] == file.name
        if has_possible_times and is_text and has_own_name:
            return Token(value, float(expires_at), float(lifetime))
    return None


def write_token(file: Path, token: Token) -> None:
    """Write a token into its file.

    Raises:
        OSError: the file cannot be written.
    """
    document = {
        "file": file.name,
        "access_token": token.value,
        "expires_at": token.expires_at,
        "lifetime_s": token.lifetime,
    }
    write_atomic(file, json.dumps(document) + "\n", mode=PRIVATE)


LIFETIME_UNKNOWN_S = 300.0  # the lifetime of a token whose service states no lifetime, in seconds
TOKEN_TIMEOUT_S = 20.0  # the maximum time for the service's answer, in seconds
LOCK_TIMEOUT_S = 60.0  # the maximum time to wait for another process's new token, in seconds
_MAX_REASON = 200  # the maximum number of characters of a reason in a message
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_RETRIED_TOKEN_STATUSES = (429, 500, 502, 503, 504)
"""The HTTP statuses after which a token is requested again.

- 429 Too Many Requests: a limit was reached.
- 500, 502, 503 and 504: the service or a gateway failed.
"""
_TOKEN_RETRIES = Retry(
    total=2,
    read=False,  # no retry if the request was sent and no complete reply came
    backoff_factor=0.5,
    status_forcelist=_RETRIED_TOKEN_STATUSES,
    allowed_methods=None,  # None: all methods, so that a POST is retried too
    raise_on_status=False,  # after the last retry, the reply is returned
)
_TOKEN_HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/x-www-form-urlencoded",
}


class SignInError(Exception):
    """No token is available, so no request can be sent; the message says what to check."""


class SignIn:
    """The sign-in with a key; without a key, requests are not signed."""

    def __init__(self, key: str | None) -> None:
        """Sign requests with this key; None: do not sign them."""
        self._key = key

    def header(self) -> str | None:
        """Return the value of the Authorization header; None: send no such header.

        Raises:
            SignInError: no token is available.
        """
        if not self._key:
            return None
        return f"Bearer {self._key}"

    def renew(self, refused: str | None) -> bool:  # noqa: ARG002 - there is no other key
        """Renew the header after the endpoint refused the header; return True if its value changed.

        A key cannot be renewed, so this class returns False.

        `refused` is the refused value; None if the request had no such header.

        Raises:
            SignInError: no token is available.
        """
        return False


def _is_usable(token: Token, refused: str | None) -> bool:
    """Return True if a token is fresh, and is not the token in the refused header."""
    return token.is_fresh and f"Bearer {token.value}" != refused


class OAuthSignIn(SignIn):
    """The sign-in with tokens of one service; threads and processes may share the tokens."""

    def __init__(
        self,
        oauth: OAuthSettings,
        *,
        env: Mapping[str, str],
        redactor: Redactor,
        say: Callable[[str], None],
        folder: Path | None = None,
    ) -> None:
        """Read the client credentials from the environment.

        The variables <SERVICE>_TOKEN_URL and <SERVICE>_SCOPE replace the settings' values.

        Args:
            oauth: the settings of the service.
            env: the environment, with <SERVICE>_CLIENT_ID and <SERVICE>_CLIENT_SECRET.
            redactor: learns the client's secret and the tokens.
            say: gets the messages about new tokens.
            folder: the folder of the cached tokens; None: the folder of `cache_folder`.
        """
        self.service = oauth.service
        names = ("CLIENT_ID", "CLIENT_SECRET", "TOKEN_URL", "SCOPE")
        self._variables = {name: variable_of(oauth.service, name) for name in names}
        self._id = secret_in(env, self._variables["CLIENT_ID"])
        self._secret = secret_in(env, self._variables["CLIENT_SECRET"])
        self._url = secret_in(env, self._variables["TOKEN_URL"]) or oauth.token_url
        self._scope = secret_in(env, self._variables["SCOPE"]) or oauth.scope
        self._file = token_file(oauth, env, folder)
        self._redactor = redactor
        self._say = say
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._status_prefix = ""
        """The status of the service's last reply, for the message about an OAuth error."""
        if self._secret:
            redactor.learn(self._secret)

    def header(self) -> str | None:
        """Return the header with a fresh token."""
        return f"Bearer {self._fresh_token(refused=None)}"

    def renew(self, refused: str | None) -> bool:
        """Return True if a token other than the refused token is now in use.

        Fetch a new token, unless another thread or process has already done so.
        """
        return f"Bearer {self._fresh_token(refused)}" != refused

    def _fresh_token(self, refused: str | None) -> str:
        """Return a fresh token that was not refused.

        If the file of the cached token was deleted, return a new token.

        `refused` is the header with the refused token; None: no token was refused.
        """
        token = self._token
        if token is not None and _is_usable(token, refused) and self._file.exists():
            return token.value
        return bridge.run_in_thread(self._cached_or_new_token, refused)

    def _cached_or_new_token(self, refused: str | None) -> str:
        """Return the token in the file if it is usable; otherwise fetch a new token and store it.

        Locks ensure that only one thread of one process fetches a token at a time.
        """
        # Import here: filelock loads asyncio, and most runs sign in with a key.
        from filelock import FileLock, Timeout

        with self._lock:
            try:
                self._file.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
                with FileLock(f"{self._file}.lock", timeout=LOCK_TIMEOUT_S, mode=PRIVATE):
                    token = read_token(self._file)
                    if token is None or not _is_usable(token, refused):
                        message = f"Creating new {self.service} OAuth token"
                        if token is not None:
                            message = f"{self.service} OAuth token expired, refreshing"
                        self._say(message)
                        token = self._fetch()
                        write_token(self._file, token)
            except Timeout:
                raise self._error(f"another process holds {self._file}.lock") from None
            except OSError as error:
                reason = f"cannot cache it in {self._file}: {error.strerror}"
                raise self._error(
                    reason, "  set XDG_CACHE_HOME to a folder that you may write to"
                ) from error
            self._token = token
            self._redactor.learn(token.value)
            return token.value

    def _fetch(self) -> Token:
        """Fetch a new token from the service."""
        required = {"CLIENT_ID": self._id, "CLIENT_SECRET": self._secret, "TOKEN_URL": self._url}
        missing = [self._variables[name] for name, value in required.items() if not value]
        if missing or not self._url:  # the second part only tells mypy that the URL is not None
            raise SignInError(
                f"Missing environment variables for {self.service} token: {', '.join(missing)}\n"
                "  set them (export ...)"
            )
        if urlsplit(self._url).hostname in _LOOPBACK:
            # oauthlib refuses http:// unless this variable is set.
            os.environ.setdefault("OAUTHLIB_INSECURE_TRANSPORT", "1")
        value, lifetime = self._requested_token(self._url)
        # The token is sent in a header, so it has to be printable ASCII.
        is_text = isinstance(value, str) and value.isascii() and value.isprintable()
        if not is_text or not 0 < lifetime < math.inf:
            raise self._error("the token endpoint's answer holds no token that is valid")
        lifetime = min(lifetime, MAX_LIFETIME_S)
        return Token(value, time.time() + lifetime, lifetime)

    def _requested_token(self, url: str) -> tuple[Any, float]:
        """Request a token; return the token, unchecked, and its lifetime in seconds.

        Raises:
            SignInError: no answer came, or the answer holds no token.
        """
        # Import here: the import takes 50 ms, and most runs sign in with a key.
        from oauthlib.oauth2 import (
            BackendApplicationClient,
            InsecureTransportError,
            OAuth2Error,
            is_secure_transport,
        )

        self._status_prefix = ""
        client = BackendApplicationClient(client_id=self._id)
        try:
            if not is_secure_transport(url):
                raise InsecureTransportError
            # The service may grant another scope (RFC 6749, section 3.3). oauthlib accepts this
            # because the client itself was made without a scope.
            body = client.prepare_request_body(scope=self._scope, include_client_id=False)
            reply = self._post(url, body)
        except requests.Timeout:
            raise self._error(f"no answer within {TOKEN_TIMEOUT_S:g} s") from None
        except requests.exceptions.SSLError as error:
            raise self._error(f"TLS failed: {_reason_of(error)}", certificates_hint()) from None
        except (requests.RequestException, ValueError):  # ValueError: redirected to no valid URL
            raise self._error("the token endpoint cannot be reached") from None
        except OAuth2Error as error:
            raise self._error(str(error)) from None
        # Parse in a separate block: the errors above are not about the content of the answer.
        try:
            answer = client.parse_request_body_response(reply)
            return answer["access_token"], float(answer.get("expires_in") or LIFETIME_UNKNOWN_S)
        except OAuth2Error as error:
            raise self._error(f"{self._status_prefix}{_text_of_oauth_error(error)}") from None
        # `expires_in` may be 1e400, and the answer may be any JSON value.
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise self._error("the token endpoint's answer holds no token") from None

    def _post(self, url: str, body: str) -> str:
        """Send the request for a token, and return the text of the reply.

        The secret is sent by HTTP Basic authentication, as RFC 6749, section 2.3.1, prefers.
        """
        trusted_certificates, _ = find_trusted_certificates()
        proxy = proxy_for(url)
        proxies = {}
        if proxy:
            proxies[urlsplit(url).scheme] = proxy
        with requests.Session() as session:
            session.hooks["response"].append(self._check_redirect)
            session.mount(url, HTTPAdapter(max_retries=_TOKEN_RETRIES))
            reply = session.post(
                url,
                data=body,
                headers=_TOKEN_HEADERS,
                auth=(self._id or "", self._secret or ""),  # `_fetch` has checked both
                timeout=TOKEN_TIMEOUT_S,
                proxies=proxies,
                verify=trusted_certificates,
            )
        return reply.text

    def _check_redirect(self, reply: Any, **_: object) -> None:
        """Refuse a redirect to another host.

        The library requests calls this method before it follows a redirect. After a redirect with
        307 or 308, it would send the client's secret to the other host.
        """
        self._status_prefix = f"HTTP {reply.status_code}: "
        target = urljoin(reply.url, reply.headers.get("Location", ""))
        if reply.is_redirect and origin_of(target) != origin_of(reply.url):
            raise self._error(
                f"the token endpoint redirects to another host ({target}); nothing was sent there"
            )

    def _error(self, reason: str, hint: str = "") -> SignInError:
        """Return the error for a token that is not available, with the variables to check."""
        shown_reason = one_line(self._redactor.redact_text(reason), _MAX_REASON)
        lines = [f"Error creating {self.service} OAuth token: {shown_reason}"]
        if hint:
            lines.append(hint)
        *first, last = self._variables.values()
        shown_url = self._redactor.redact_text(str(self._url))
        lines.append(f"  check {', '.join(first)} ({shown_url}) and {last}")
        return SignInError("\n".join(lines))


def _text_of_oauth_error(error: OAuth2Error) -> str:
    """Return the error's code in brackets and its description, or else the name of its class."""
    parts = []
    if error.error:
        parts.append(f"({message_or_default(error.error)})")
    if error.description:
        parts.append(message_or_default(error.description))
    return " ".join(parts) or type(error).__name__


class KeyThenTokens(SignIn):
    """The sign-in with a key, if there is one, until the endpoint answers 401.

    From then on, requests are signed with tokens of a service of the same owner.
    """

    def __init__(self, key: str | None, tokens: OAuthSignIn, say: Callable[[str], None]) -> None:
        super().__init__(key)
        self._tokens = tokens
        self._say = say
        self._uses_tokens = False

    def header(self) -> str | None:
        """Return the header with the key, or with a token after the key was refused."""
        if self._uses_tokens:
            return self._tokens.header()
        return super().header()

    def renew(self, refused: str | None) -> bool:
        """Change from the key to tokens, or renew the token; return True if the header changed.

        `refused` is the refused header.
        """
        if self._uses_tokens:
            return self._tokens.renew(refused)
        self._uses_tokens = True
        self._say(
            f"Authentication error detected: signing in with {self._tokens.service} OAuth tokens"
        )
        return self._tokens.header() != refused


def _reason_of(error: BaseException) -> BaseException:
    """Return the innermost reason of an error.

    requests and urllib3 wrap the reason in errors whose texts repeat the address. urllib3's errors
    hold it as `reason`; those of requests hold it as their first argument.
    """
    inner = getattr(error, "reason", None) or next(iter(error.args), None)
    if isinstance(inner, BaseException):
        return _reason_of(inner)
    return error


def sign_in(
    settings: EndpointSettings,
    *,
    env: Mapping[str, str],
    redactor: Redactor,
    say: Callable[[str], None],
    services: Sequence[OAuthSettings] = (),
) -> SignIn:
    """Return the object that signs the requests to an endpoint.

    Args:
        settings: the settings of the endpoint.
        env: the environment, with keys and client credentials.
        redactor: learns the key and the tokens.
        say: gets the messages about the sign-in.
        services: the services for which the environment has client credentials.

    Raises:
        PrerequisiteError: the value of a variable cannot be sent in a header.
    """
    if settings.oauth is not None:
        return OAuthSignIn(settings.oauth, env=env, redactor=redactor, say=say)
    key = _first_key(settings.key_names, env)
    if key is not None:
        redactor.learn(key)
    service = fallback_service(settings, services)
    if service is None:
        return SignIn(key)
    tokens = OAuthSignIn(service, env=env, redactor=redactor, say=say)
    return KeyThenTokens(key, tokens, say)


def _first_key(names: Iterable[str], env: Mapping[str, str]) -> str | None:
    """Return the key in the first of these variables that has one; None if none has a key."""
    for name in names:
        key = secret_in(env, name)
        if key is not None:
            return key
    return None
