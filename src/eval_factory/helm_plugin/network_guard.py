"""Reads the settings of a helm-run, and blocks connections to other hosts in an `offline` run.

An offline helm-run may connect only to the hosts of the endpoints. The guard is an audit hook (PEP
578): Python itself calls the hook before every connection and every name look-up, and a process
cannot remove the hook. The parent process finds out which hosts are allowed
(`data/offline_hosts.py`).
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.core.helm_run_settings import (
    PROXY_VARIABLES,
    SETTINGS_VARIABLE,
    HelmRunSettings,
    HostAndPort,
)
from eval_factory.core.urls import normal_host_name
from eval_factory.endpoint.proxies import proxy_from_environment
from eval_factory.helm import names

# The family in the audit event of a socket that is made from an open descriptor. The value also
# replaces AF_UNIX on systems that have no AF_UNIX.
_NO_FAMILY = -1
_FAMILIES = frozenset(
    {_NO_FAMILY, socket.AF_INET, socket.AF_INET6, getattr(socket, "AF_UNIX", _NO_FAMILY)}
)
"""The allowed address families. The guard cannot check other families: AF_PACKET sends frames
without addresses and ports, and AF_VSOCK leaves a virtual machine.
"""


class BlockedConnectionError(ConnectionError):
    """An error of a helm-run that tried to contact a host, or to open a socket, that is not
    allowed.
    """


def _as_text(host: str, port: int | None = None) -> str:
    """Return `host:port`, or `host` without a port. An IPv6 address is put in brackets."""
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


class NetworkGuard:
    """The guard of a process: allows or refuses connections, and records the refusals."""

    def __init__(self, allowed: Iterable[HostAndPort]) -> None:
        self._ports: dict[str, set[int]] = {}  # the allowed ports of each allowed host
        for host, port in allowed:
            self.allow(host, port)
        self._learned: dict[str, set[int]] = {}
        """The IP address of an allowed host -> the allowed ports of that host; see `learn`."""
        self._own_name = normal_host_name(socket.gethostname())
        self.blocked: list[str] = []
        """Each refusal in order: `host:port` of a connection, the host of a look-up, or a text such
        as "a socket of the family AF_PACKET".
        """
        self.report: Callable[[str], None] = lambda _refused: None
        """A function that is called at each refusal, with the entry of `blocked`."""

    def allow(self, host: str, port: int) -> None:
        """Allow connections to a further host and port, such as a server of this process."""
        self._ports.setdefault(normal_host_name(host), set()).add(port)

    def learn(self, host: str, addresses: Iterable[str]) -> None:
        """Allow connections to these IP addresses of a host, if the host is allowed."""
        ports = self._ports.get(normal_host_name(host))
        if not ports:
            return
        for address in addresses:
            self._learned.setdefault(normal_host_name(address), set()).update(ports)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Check an audit event of Python; `addaudithook` registers this method as a hook.

        Raises:
            BlockedConnectionError: the connection, the look-up or the socket is refused.
        """
        if not event.startswith("socket."):
            return
        # The arguments of each event are those of Python's table of audit events. The address of
        # an internet socket is a tuple, which begins with (host, port).
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            _socket, address = arguments[:2]
            self._check_address(address)
        elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
            host = normal_host_name(arguments[0])
            # A numeric address needs no look-up; its connection is checked later.
            is_name = _parsed_address(host) is None
            if is_name and not self._is_known(host):
                self._refuse(host)
        elif event == "socket.gethostbyaddr":
            self._check_reverse_lookup(arguments[0])
        elif event == "socket.getnameinfo":
            (address,) = arguments
            self._check_reverse_lookup(address[0])
        elif event == "socket.__new__":
            _socket, family = arguments[:2]
            self._check_family(family)
        elif event == "socket.bind":
            bound_socket = arguments[0]
            self._check_family(bound_socket.family)

    def _check_address(self, address: object) -> None:
        """Refuse a connection to an address that is not allowed."""
        if not isinstance(address, tuple) or len(address) < 2:
            return  # a Unix socket, or a socket that is already connected
        host = normal_host_name(address[0])
        port = address[1]
        if port not in self._ports.get(host, ()) and port not in self._learned.get(host, ()):
            self._refuse(host, port)

    def _check_reverse_lookup(self, name: object) -> None:
        """Refuse a reverse look-up unless the host is known or its address is a loopback address.

        A reverse look-up reveals the address to a name server.
        """
        host = normal_host_name(name)
        address = _parsed_address(host)
        is_known = self._is_known(host) or host in self._learned
        is_loopback = address is not None and address.is_loopback
        if not (is_known or is_loopback):
            self._refuse(host)

    def _is_known(self, host: str) -> bool:
        """Return True if the host is empty, the name of this machine, or an allowed host."""
        return host in ("", self._own_name) or host in self._ports

    def _check_family(self, family: int) -> None:
        if family not in _FAMILIES:
            self._refuse(f"a socket of the family {_family_name(family)}")

    def _refuse(self, host: str, port: int | None = None) -> None:
        """Record and report a refusal, and raise BlockedConnectionError.

        `host` is the refused host, or the description of a refused socket.
        """
        refused = _as_text(host, port)
        self.blocked.append(refused)
        self.report(refused)
        addresses = []
        for allowed_host, ports in list(self._ports.items()):
            addresses += [_as_text(allowed_host, allowed_port) for allowed_port in sorted(ports)]
        allowed = ", ".join(addresses)
        raise BlockedConnectionError(
            f"offline: {refused} may not be contacted (only {allowed or 'nothing'}); the data "
            "have to be on this machine"
        )


def _parsed_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address of a numeric host; None for a host name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _family_name(family: int) -> str:
    try:
        return socket.AddressFamily(family).name
    except ValueError:
        return str(family)


_guard: NetworkGuard | None = None  # the guard of this process


def current_guard() -> NetworkGuard | None:
    """Return the guard of this process; None if the process may contact any host."""
    return _guard


def read_settings_and_set_guard() -> None:
    """Read the settings of this process, and set up the guard if the settings ask for it.

    Further calls do not set up a second guard.

    Raises:
        ValueError: the settings file was not written by eval-factory.
    """
    global _guard
    set_variables_of_settings_file(sys.argv, os.environ)
    settings = HelmRunSettings.from_environment(os.environ)
    if settings.allowed is None or _guard is not None:
        return
    new_guard = NetworkGuard(settings.allowed)
    _guard = new_guard
    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        """Look up a host name as usual, and let the guard learn its addresses.

        The guard needs the addresses, because a connection names an address and not a host name.
        """
        entries = look_up(host, *args, **kwargs)
        # The last part of an entry is the socket address, which begins with the IP address.
        new_guard.learn(normal_host_name(host), (str(entry[4][0]) for entry in entries))
        return entries

    socket.getaddrinfo = getaddrinfo
    sys.addaudithook(new_guard.audit)


def set_variables_of_settings_file(argv: Sequence[str], env: MutableMapping[str, str]) -> None:
    """Set the variables of the settings file in `env`, for a helm-run that a user starts by hand.

    The settings file is next to the model files. The variables in this file replace variables of
    the shell. Nothing changes without a settings file or without usable arguments. Nothing changes
    either if eval-factory started this process, because all variables are then set.

    Args:
        argv: the arguments of helm-run.
        env: the environment variables to change.
    """
    if SETTINGS_VARIABLE in env:
        return  # eval-factory started this process
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    # The folder of the model files, with HELM's default.
    parser.add_argument("--local-path", default="prod_env")
    try:
        options, _ = parser.parse_known_args(argv)
        file = Path(options.local_path, names.SETTINGS_FILE)
        settings = HelmRunSettings.from_json(file.read_text(encoding="utf-8"))
    except (argparse.ArgumentError, FileNotFoundError, NotADirectoryError):
        return
    if settings.proxies is not None:
        # Keep only the proxies of the endpoints, with the addresses that the shell sets. Other
        # connections must not use a proxy.
        proxies = {}
        for url in settings.proxies:
            proxy = proxy_from_environment(url)
            if proxy:
                proxies[url] = proxy
        settings = replace(settings, proxies=proxies)
        for name in PROXY_VARIABLES:
            env.pop(name, None)
    env.update(settings.environment())
