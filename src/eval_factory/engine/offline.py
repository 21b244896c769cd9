"""`offline`: helm-run may connect to the endpoints' hosts and nowhere else.

The guard is an audit hook (PEP 578): Python itself calls it before every connection and every look-up of a name,
whatever library asks, and it cannot be taken off again. The parent process works out which hosts there are
(`data/network.py`); the plug-in sets the guard up inside helm-run.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

ALLOWED_VARIABLE = "EVAL_FACTORY_OFFLINE"
"""JSON: [[host, port], ...]; set at all, it means offline."""

_PORTS = {"http": 80, "https": 443}

Place = tuple[str, int]


class BlockedConnectionError(ConnectionError):
    """Something in helm-run wanted a host that is not an endpoint's."""


def place_of(url: str) -> Place | None:
    """Host and port of a URL; None where it has none."""
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in _PORTS:
        return None
    return parts.hostname.lower(), parts.port or _PORTS[parts.scheme]


def shown(place: tuple[str, int | None]) -> str:
    host, port = place
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


class Guard:
    """Decides on connections and remembers what it refused."""

    def __init__(self, allowed: Iterable[Place]) -> None:
        self._ports: dict[str, set[int]] = {}
        for host, port in allowed:
            self._ports.setdefault(host.lower(), set()).add(port)
        self._learned: dict[str, set[int]] = {}
        self._own_name = socket.gethostname().lower()
        self.blocked: list[str] = []
        """`host:port` or `host` of each refusal, in order."""
        self.tell: Callable[[str], None] = lambda _place: None

    def allow(self, host: str, port: int) -> None:
        """A server of this process itself."""
        self._ports.setdefault(host.lower(), set()).add(port)

    def learn(self, host: str, addresses: Iterable[str]) -> None:
        """The addresses of an allowed host."""
        for address in addresses:
            self._learned.setdefault(address.lower(), set()).update(self._ports.get(host.lower(), ()))

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook.

        Raises:
            BlockedConnectionError: the connection, or the look-up, is refused.
        """
        if not event.startswith("socket."):
            return
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            self._check_address(arguments[1])
        elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
            self._check_name(arguments[0])

    def _check_address(self, address: object) -> None:
        if not isinstance(address, tuple) or len(address) < 2:
            return  # a socket of this machine's own, or one that is connected already
        host, port = _text(address[0]), address[1]
        if port not in self._ports.get(host, ()) and port not in self._learned.get(host, ()):
            self._refuse((host, port))

    def _check_name(self, name: object) -> None:
        host = _text(name)
        if host in ("", self._own_name) or host in self._ports or _is_address(host):
            return
        self._refuse((host, None))

    def _refuse(self, place: tuple[str, int | None]) -> None:
        self.blocked.append(shown(place))
        self.tell(shown(place))
        allowed = ", ".join(shown((host, port)) for host, ports in list(self._ports.items()) for port in sorted(ports))
        raise BlockedConnectionError(
            f"offline: {shown(place)} may not be contacted (only {allowed or 'nothing'}); the data have to be here"
        )


def _text(name: object) -> str:
    if isinstance(name, (bytes, bytearray)):
        return bytes(name).decode("ascii", "replace").lower()
    return str(name or "").lower().partition("%")[0].rstrip(".")


def _is_address(host: str) -> bool:
    """An address in digits needs no look-up; connecting to it is looked at on its own."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False


_guard: Guard | None = None


def guard() -> Guard | None:
    """The guard of this process, if it is offline."""
    return _guard


def guard_from_environment(env: Mapping[str, str] | None = None) -> None:
    """Set the guard up where the environment says so; once in a process."""
    global _guard
    text = (os.environ if env is None else env).get(ALLOWED_VARIABLE)
    if text is None or _guard is not None:
        return
    _guard = Guard((host, port) for host, port in json.loads(text))
    _learn_addresses(_guard)
    sys.addaudithook(_guard.audit)


def _learn_addresses(known: Guard) -> None:
    """A connection names an address: what an allowed name stands for is noted as it is looked up."""
    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        found = look_up(host, *args, **kwargs)
        known.learn(_text(host), (str(entry[4][0]) for entry in found))
        return found

    socket.getaddrinfo = getaddrinfo
