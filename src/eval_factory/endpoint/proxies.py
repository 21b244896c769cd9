"""Finds the proxy and the trusted certificates for a URL, as the environment names them.

The rules are those of the library requests. They apply to all connections of this program.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from certifi import where
from requests.utils import get_environ_proxies, prepend_scheme_if_needed, select_proxy
from urllib3.exceptions import LocationValueError

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.urls import is_at_a_server

_KINDS = ("http", "https")
_BY_SCHEME = ("http_proxy", "https_proxy")
_FOR_ALL = "all_proxy"  # names the proxy of each scheme that has no variable of its own
_HOST = re.compile(r"\w([\w.-]*\w)?\.?")
_NO_PROXY_ENTRY = re.compile(
    r"\*|(\*?\.)?\w([\w.-]*\w)?\.?(:\d{1,5})?|\[[\da-fA-F:.]+\](:\d{1,5})?"
)

CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables that name a file or folder of trusted certificates. The first that is set counts."""


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy for an endpoint; None if the endpoint is reached directly.

    A helm-run whose settings hold proxies ignores the usual variables.
    """
    configured = HelmRunSettings.from_environment(os.environ).proxies
    if configured is None:
        return proxy_from_environment(url)
    parts = urlsplit(url)
    return configured.get(f"{parts.scheme}://{parts.netloc}")


def proxy_variable(url: str) -> str:
    """Return the variable that names the proxy for a URL.

    If no variable is set, return the variable of the URL's scheme in capitals.
    """
    scheme = urlsplit(url).scheme
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    return next((name for name in names if os.environ.get(name)), names[1])


def proxy_from_environment(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; None if it names no proxy.

    Raises:
        PrerequisiteError: the proxy is not an HTTP proxy, or its address or NO_PROXY cannot be
            parsed.
    """
    if is_at_a_server(url, os.environ):
        return None
    named: str | None = select_proxy(url, get_environ_proxies(url))
    if not named:
        return None
    names = []
    for name, value in os.environ.items():
        if value == named and name.lower().endswith("_proxy"):
            names.append(name)
    check_no_proxy(os.environ)
    return parsed_proxy(named, " and ".join(names) or "the proxy")


def parsed_proxy(named: str, variable: str) -> str:
    """Return the URL of a proxy; an address without a scheme becomes one with http://.

    Args:
        named: the value of the variable.
        variable: the variable's name, for the message.

    Raises:
        PrerequisiteError: the value is not an address, or its scheme is not http or https. The
            message does not show the value, which may hold a password.
    """
    scheme, separator, _ = named.partition("://")
    if not separator:
        named = f"http://{named}"
    elif scheme.lower() not in _KINDS and scheme.isalnum():
        raise PrerequisiteError(
            f"{variable}: proxies of the kind {scheme.lower()}:// are not supported, only http:// "
            "and https:// are\n"
            "  name another proxy, or unset it; hosts in NO_PROXY are asked without it"
        )
    try:
        proxy = str(prepend_scheme_if_needed(named, "http"))  # type: ignore[no-untyped-call]
        is_address = _is_address(named) and _is_address(proxy)
    except (ValueError, TypeError, LocationValueError):
        is_address = False
    if not is_address:
        raise PrerequisiteError(
            f"{variable}: is not the address of a proxy, such as http://proxy.example:3128\n"
            "  correct it, or unset it"
        )
    return proxy


def _is_address(url: str) -> bool:
    """Return True if a URL names a host, maybe a user and a port, and nothing else.

    Raises:
        ValueError: the port or the host is not valid.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if any(letter.isspace() for letter in url) or parts.path not in ("", "/"):
        return False
    if parts.scheme not in _KINDS or parts.query or parts.fragment or parts.port == 0:
        return False
    if ":" in host:
        return ip_address(host.partition("%")[0]).version == 6
    host.encode("idna")
    return bool(_HOST.fullmatch(host))


def check_no_proxy(env: Mapping[str, str]) -> None:
    """Check that every entry of NO_PROXY can be parsed.

    An entry that cannot be parsed has no effect: the host that it means would be asked through the
    proxy.

    Raises:
        PrerequisiteError: an entry is not a host, an address or a range of addresses.
    """
    for name in ("no_proxy", "NO_PROXY"):
        for entry in env.get(name, "").split(","):
            if entry.strip() and not _is_no_proxy_entry(entry.strip()):
                raise PrerequisiteError(
                    f"{name}: holds an entry that is not a host, an address or a range of "
                    "addresses (host.example,.example,10.0.0.0/8)\n  correct it, or unset it"
                )


def _is_no_proxy_entry(entry: str) -> bool:
    """Return True if an entry of NO_PROXY is a host, an address or a range of addresses."""
    if _NO_PROXY_ENTRY.fullmatch(entry):
        return True
    try:
        ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


def shown_variables(env: Mapping[str, str]) -> list[str]:
    """Return a line NAME=value for each variable about proxies, without users and passwords."""
    lines = []
    for name in sorted(env):
        if name.lower().endswith("_proxy") and env[name]:
            lines.append(f"{name}={env[name].rpartition('@')[2]}")
    return lines


def proxy_problems(env: Mapping[str, str]) -> list[str]:
    """Return a message for each variable about proxies whose value cannot be used."""
    problems = []
    by_name = {}
    for name in sorted(env):
        if env[name]:
            by_name[name.lower()] = name
    names = []
    for name in _BY_SCHEME:
        if name in by_name:
            names.append(by_name[name])
    if len(names) < len(_BY_SCHEME) and _FOR_ALL in by_name:
        names.append(by_name[_FOR_ALL])
    for name in names:
        try:
            parsed_proxy(env[name], name)
        except PrerequisiteError as error:
            problems.append(str(error))
    try:
        check_no_proxy(env)
    except PrerequisiteError as error:
        problems.append(str(error))
    return problems


def certificates() -> tuple[str, str]:
    """Return (file or folder of the trusted certificates, the variable that names it).

    If no variable is set, return the file of the package certifi, and "certifi".

    Raises:
        PrerequisiteError: the file or folder does not exist.
    """
    name = next((name for name in CERTIFICATE_VARIABLES if os.environ.get(name)), None)
    if name is None:
        return where(), "certifi"
    bundle = os.environ[name]
    if not os.path.exists(bundle):  # noqa: PTH110 - the text of a variable
        raise PrerequisiteError(
            f"{name}: there is no file {bundle}; it has to hold the certificates to trust (PEM)"
        )
    return bundle, name


def certificates_hint() -> str:
    """Return a line with advice for the message of a TLS error."""
    bundle, origin = certificates()
    *first, last = CERTIFICATE_VARIABLES
    return (
        f"  the certificates in {bundle} ({origin}) are trusted; to trust those of your own "
        f"authority, name their file (PEM) in {', '.join(first)} or {last}: the first of these "
        "that is set counts"
    )


def tls_context() -> ssl.SSLContext:
    """Return the TLS context that trusts the certificates of `certificates`.

    Raises:
        OSError: the certificates cannot be read, or the file holds none.
    """
    bundle, _ = certificates()
    is_folder = os.path.isdir(bundle)  # noqa: PTH112 - the text of a variable
    context = ssl.create_default_context(
        capath=bundle if is_folder else None, cafile=None if is_folder else bundle
    )
    context.set_alpn_protocols(["http/1.1"])
    return context
