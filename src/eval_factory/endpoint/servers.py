"""Distributes the requests to one model among its servers, and keeps the state of each server.

Each server has its own limits, pauses and failures. After a failure, a server gets no request for
a while; then it gets a single request, and an answer makes it available again. Meanwhile the other
servers get the requests. If no server is available, requests go to all of them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from eval_factory.core.secrets import Redactor, fill_variables
from eval_factory.core.urls import request_url, server_urls
from eval_factory.endpoint.connections import Transport
from eval_factory.endpoint.endpoint_settings import EndpointSettings, OAuthSettings, limit_names
from eval_factory.endpoint.limits import Admission, LocalAdmission, Ticket
from eval_factory.endpoint.replies import StopMessages
from eval_factory.endpoint.sign_in import SignIn, sign_in

ABSENCE_S = 5.0
"""The seconds for which a failed server gets no request; an answer to an earlier request ends them.
"""
WINDOW_S = 120.0
"""The seconds for which 429s without an answer between them cost no retries.

A limit per minute is reset within this time.
"""
LONG_PAUSE_S = 600.0
"""The longest pause, in seconds, for which requests wait.

A server that asks for a longer pause has a limit for hours or days.
"""
_PATIENCE_S = 900.0
"""The seconds for which the 429s of a single request cost no retries.

The time is limited even if the server answers other requests, because the request's prompt may be
larger than the limit.
"""


class Server:
    """The state of one server. Only `Servers` and the client that uses it change the state."""

    def __init__(
        self,
        settings: EndpointSettings,
        url: str,
        transport: Transport,
        messages: StopMessages,
        name: str = "",
        admission: Admission | None = None,
        *,
        has_answered: bool = False,
    ) -> None:
        """Make the state of a server that has not received a request yet.

        Args:
            settings: the settings of the endpoint.
            url: the URL to which requests are sent.
            transport: the connections to the server.
            messages: writes the messages with which a run stops.
            name: the server's name in cache.db: usually its URL as the configuration has it.
            admission: grants the slots (each allows one request in flight); None: makes an
                admission from the settings' limits.
            has_answered: whether the server answered in an earlier run, so that it is known to
                accept the key and the model.
        """
        self.url = url
        self.transport = transport
        self.messages = messages
        self.name = name
        self.admission = admission or LocalAdmission(settings.limit)
        self.has_answered = has_answered
        self.is_patient = True
        """True if 429s of this server may cost no retries for some time (`tolerates_limit`).

        With False, each 429 costs a retry: with batches, and when an endpoint is probed.
        """
        self.in_flight = 0
        """The number of requests that were sent to this server and are not answered yet."""
        self.refusals = 0
        """The number of refused requests since the last answer."""
        self.is_failing = False
        """True if the server's last attempt failed."""
        self.absent_until = 0.0
        """The time (monotonic clock) until which the server gets no request after a failure."""
        self.paused_until = 0.0
        """The end (monotonic clock) of a pause that the server asked for.

        An answer during the pause does not end the pause.
        """
        self._limited_since: float | None = None
        """The time (monotonic clock) of the first 429 since the last answer; None without a 429."""

    def is_well(self, now: float) -> bool:
        """Return True if the server's last attempt did not fail, and no pause is running.

        `now` is the time by the monotonic clock, here and in `may_be_asked`.
        """
        return not self.is_failing and self.paused_until <= now

    def may_be_asked(self, now: float) -> bool:
        """Return True if the server may get a request now.

        A failed server may get a single request, which finds out whether the server is back.
        """
        if self.is_well(now):
            return True
        is_ready = max(self.absent_until, self.paused_until) <= now
        return is_ready and self.in_flight == 0

    def tolerates_limit(self, first: float) -> bool:
        """Note a 429 (Too Many Requests) of this server; return True if it costs no retry.

        `first` is the time (monotonic clock) at which the request met its first 429.
        """
        now = time.monotonic()
        if self._limited_since is None:
            self._limited_since = now
        is_in_window = now - self._limited_since < WINDOW_S
        return self.is_patient and is_in_window and now - first < _PATIENCE_S

    def answered(self) -> None:
        """Note that the server answered a request."""
        self.has_answered = True
        self.refusals = 0
        self.is_failing = False
        self._limited_since = None


@dataclass(frozen=True)
class Turn:
    """The server that one attempt may ask, and the attempt's slot there."""

    server: Server
    slot: Ticket


class Servers:
    """All servers of an endpoint, with one sign-in; thread-safe."""

    def __init__(
        self,
        servers: Sequence[Server],
        sign_in: SignIn,
        redactor: Redactor,
        admission_to_all: Admission | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Join the servers of an endpoint.

        Args:
            servers: the servers.
            sign_in: signs the requests.
            redactor: removes secrets from texts.
            admission_to_all: limits the requests to all servers together; None: there is a single
                server, and its own limit is enough.
            headers: the user's own headers, with their secrets filled in.
        """
        self.all = tuple(servers)
        self.sign_in = sign_in
        self.redactor = redactor
        self.headers = headers
        self._admission_to_all = admission_to_all
        self._choices = itertools.count()
        self._lock = threading.Lock()

    @property
    def has_answered(self) -> bool:
        """True if any of the servers has answered."""
        return any(server.has_answered for server in self.all)

    @contextmanager
    def turn(self, body: Mapping[str, Any], avoid: Collection[Server] = ()) -> Iterator[Turn]:
        """Wait for a slot at one of the servers, and yield the server and the slot.

        A server in `avoid` is chosen only if no other server may be asked. If the block ends
        without an exception, the server counts as having answered.
        """
        common_slot: AbstractContextManager[object] = nullcontext()
        if self._admission_to_all is not None:
            common_slot = self._admission_to_all.slot()
        with common_slot:
            server = self._next(avoid)
            try:
                with server.admission.slot(body) as slot:
                    yield Turn(server, slot)
            finally:
                with self._lock:
                    server.in_flight -= 1

    def _next(self, avoid: Collection[Server]) -> Server:
        """Return the server with the fewest requests in flight, and count one more request there.

        Servers in `avoid`, and servers that may not be asked now, are chosen only if no other
        server may be asked. Servers with equally few requests are chosen in turn.
        """
        with self._lock:
            now = time.monotonic()
            ready = [server for server in self.all if server.may_be_asked(now)]
            preferred = [server for server in ready if server not in avoid]
            candidates = preferred or ready or self.all
            # With each choice, the order of the servers begins one server later.
            first = next(self._choices)
            order: dict[Server, int] = {}
            for index, server in enumerate(self.all):
                order[server] = (index - first) % len(self.all)
            chosen = min(candidates, key=lambda server: (server.in_flight, order[server]))
            chosen.in_flight += 1
            return chosen

    def answered(self, server: Server) -> None:
        """Note that a server answered."""
        with self._lock:
            server.answered()

    def failed(self, server: Server, pause: float | None) -> bool:
        """Note that an attempt failed; return True if another server is well (`Server.is_well`).

        `pause` is the number of seconds that the server asks to wait; None if it asks for no pause.
        """
        with self._lock:
            now = time.monotonic()
            server.is_failing = True
            server.absent_until = now + ABSENCE_S
            until = now if pause is None else now + pause
            server.paused_until = max(server.paused_until, until)
            return any(other.is_well(now) for other in self.all if other is not server)

    def has_another_well(self, servers: Collection[Server]) -> bool:
        """Return True if a server that is not one of these is well."""
        with self._lock:
            now = time.monotonic()
            return any(server.is_well(now) for server in self.all if server not in servers)

    def close(self, server: Server, pause: float) -> bool:
        """Send no request to a server for `pause` seconds.

        Return True if all servers now have a pause longer than `LONG_PAUSE_S`.
        """
        with self._lock:
            now = time.monotonic()
            server.paused_until = max(server.paused_until, now + pause)
            return all(candidate.paused_until > now + LONG_PAUSE_S for candidate in self.all)

    def stop(self) -> None:
        """Wake all requests that wait for a slot, because no further request will be sent."""
        if self._admission_to_all is not None:
            self._admission_to_all.stop()
        for server in self.all:
            server.admission.stop()


def make_servers(  # noqa: PLR0913 - an endpoint has many properties
    settings: EndpointSettings,
    *,
    env: Mapping[str, str],
    redactor: Redactor,
    say: Callable[[str], None],
    served_url: str | None = None,
    shared_admission: Callable[[str], Admission | None] = lambda _: None,
    has_answered: bool = False,
    services: Sequence[OAuthSettings] = (),
) -> Servers:
    """Make the servers that the settings name, each with its own limits.

    Args:
        settings: the endpoint's settings, with the URL of each server.
        env: the environment, with the variables that hold credentials.
        redactor: learns the key and the tokens, and removes them from error texts.
        say: gets the messages about the sign-in and about unusual answers.
        served_url: the base URL to use instead of the settings' URL; None: use the settings'.
        shared_admission: returns the admission that several runs share, by the name of its limit
            (`limit_names`); returns None if no runs share this limit.
        has_answered: whether this model answered in an earlier run (`Server.has_answered`).
        services: the OAuth services for which the environment has client credentials.

    Raises:
        PrerequisiteError: a variable that the settings name is not set, or its value cannot be
            sent.
    """
    signing = sign_in(settings, env=env, redactor=redactor, say=say, services=services)
    addresses = _addresses(settings, env, served_url)
    # A single server has no limit of its own besides the limit of the endpoint.
    common_limit_name, *server_limit_names = limit_names(settings.role, len(addresses))
    servers = []
    used_limit_names = server_limit_names or [common_limit_name]
    for (base, name), limit_name in zip(addresses, used_limit_names, strict=True):
        url = request_url(base, settings.endpoint_type, use_nvcf=settings.use_nvcf)
        transport = Transport(base, timeout_s=settings.request_timeout, say=say)
        messages = StopMessages.of(settings, redactor.redact_text(url), env)
        admission = shared_admission(limit_name)
        servers.append(
            Server(settings, url, transport, messages, name, admission, has_answered=has_answered)
        )
    admission_to_all = None
    if server_limit_names:
        admission_to_all = shared_admission(common_limit_name) or LocalAdmission(settings.limit)
    return Servers(
        servers, signing, redactor, admission_to_all, fill_variables(settings.headers, env)
    )


def _addresses(
    settings: EndpointSettings, env: Mapping[str, str], served_url: str | None
) -> list[tuple[str, str]]:
    """Return the (base URL, name) of each server; the arguments are those of `make_servers`.

    The name is the URL as the configuration has it. A `served://` URL may stand for several
    servers; each of them then has its own base URL as its name.
    """
    addresses = []
    for configured_url in settings.urls:
        bases: tuple[str, ...]
        if served_url is None:
            bases = server_urls(fill_variables(configured_url, env), env)
        else:
            bases = (served_url,)
        for base in bases:
            name = configured_url if len(bases) == 1 else base
            addresses.append((base, name))
    return addresses
