"""Finds the proxy for a URL, and the trusted certificates, as the environment names them.

The rules are those of the library `requests`, with one addition: SSL_CERT_FILE counts too. These
rules apply to all connections of this program.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

import certifi
from requests.utils import get_environ_proxies, prepend_scheme_if_needed, select_proxy
from urllib3.exceptions import LocationValueError

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.urls import is_at_a_server

_SCHEMES = ("http", "https")
_SCHEME_VARIABLES = ("http_proxy", "https_proxy")
_GENERAL_VARIABLE = "all_proxy"  # names the proxy of each scheme without a variable of its own
_HOST = re.compile(r"\w([\w.-]*\w)?\.?")
"""Matches the name of a host; the dot at the end is DNS's sign of a complete name."""
_NO_PROXY_ENTRY = re.compile(
    r"\*|(\*?\.)?\w([\w.-]*\w)?\.?(:\d{1,5})?|\[[\da-fA-F:.]+\](:\d{1,5})?"
)
"""Matches `*`, a host, a domain, or an IPv6 address in brackets. A port may follow a host, a domain
or an address.
"""

CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables that name a file or folder of trusted certificates. The first that is set counts."""


def proxy_for(url: str) -> str | None:
    """Return the URL of the proxy for an endpoint; None if the endpoint is reached directly.

    A helm-run may have settings that hold the proxies. The environment's proxies then do not count.
    """
    configured = HelmRunSettings.from_environment(os.environ).proxies
    if configured is None:
        return proxy_from_environment(url)
    parts = urlsplit(url)
    # The settings hold a proxy for each scheme, host and port.
    return configured.get(f"{parts.scheme}://{parts.netloc}")


def proxy_variable(url: str) -> str:
    """Return the name of the environment variable that names the proxy for a URL.

    If no such variable is set, return the variable of the URL's scheme in capitals (HTTPS_PROXY).
    """
    variable = f"{urlsplit(url).scheme}_proxy"
    in_capitals = variable.upper()
    for name in (variable, in_capitals, "all_proxy", "ALL_PROXY"):
        if os.environ.get(name):
            return name
    return in_capitals


def proxy_from_environment(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; None if it names no proxy.

    Raises:
        PrerequisiteError: the proxy is not an HTTP proxy, or its address or NO_PROXY cannot be
            parsed.
    """
    # A model server that eval-factory started for this run is reached directly.
    if is_at_a_server(url, os.environ):
        return None
    address: str | None = select_proxy(url, get_environ_proxies(url))
    if not address:
        return None
    # `requests` returns the address, but not the name of the variable that holds the address.
    possible_variables = []
    for name, value in os.environ.items():
        if value == address and name.lower().endswith("_proxy"):
            possible_variables.append(name)
    check_no_proxy(os.environ)
    return parsed_proxy(address, " and ".join(possible_variables) or "the proxy")


def parsed_proxy(address: str, variable: str) -> str:
    """Return the URL of a proxy; an address without a scheme gets the scheme http.

    Args:
        address: the value of the variable.
        variable: the variable's name, for the message.

    Raises:
        PrerequisiteError: the value is not an address, or its scheme is not http or https. The
            message does not show the value, which may hold a password.
    """
    scheme, separator, _ = address.partition("://")
    if not separator:
        address = f"http://{address}"
    # A text that is not alphanumeric is no scheme: it may hold a password, and is not shown.
    elif scheme.isalnum() and scheme.lower() not in _SCHEMES:
        raise PrerequisiteError(
            f"{variable}: proxies with the scheme {scheme.lower()}:// are not supported, "
            "only http:// and https:// are\n"
            "  give the URL of another proxy, or unset the variable; hosts in NO_PROXY are asked "
            "without a proxy"
        )
    try:
        proxy = str(prepend_scheme_if_needed(address, "http"))  # type: ignore[no-untyped-call]
        # `proxy` is the URL as another parser (urllib3's) writes it, so both texts are checked.
        is_address = _is_address(address) and _is_address(proxy)
    except (ValueError, TypeError, LocationValueError):
        is_address = False
    if not is_address:
        raise PrerequisiteError(
            f"{variable}: is not the address of a proxy, such as http://proxy.example:3128\n"
            "  correct the variable, or unset it"
        )
    return proxy


def _is_address(url: str) -> bool:
    """Return True if a URL names a host, optionally a user and a port, and nothing else.

    Raises:
        ValueError: the port or the host is not valid.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""  # the empty text is refused below
    if any(letter.isspace() for letter in url) or parts.path not in ("", "/"):
        return False
    if parts.scheme not in _SCHEMES or parts.query or parts.fragment or parts.port == 0:
        return False
    if ":" in host:
        address, _, _ = host.partition("%")  # without the network interface, as in fe80::1%eth0
        return ip_address(address).version == 6
    host.encode("idna")  # only for its error: a name that is not valid raises a ValueError
    return bool(_HOST.fullmatch(host))


def check_no_proxy(env: Mapping[str, str]) -> None:
    """Check that every entry of NO_PROXY can be parsed.

    An entry that cannot be parsed would have no effect, and requests to its host would go through
    the proxy.

    Raises:
        PrerequisiteError: an entry cannot be parsed.
    """
    for name in ("no_proxy", "NO_PROXY"):
        for entry in env.get(name, "").split(","):
            if entry.strip() and not _is_no_proxy_entry(entry.strip()):
                raise PrerequisiteError(
                    f"{name}: holds an entry that is not a host, an address or a range of "
                    "addresses (host.example,.example,10.0.0.0/8)\n"
                    "  correct the variable, or unset it"
                )


def _is_no_proxy_entry(entry: str) -> bool:
    """Return True if an entry of NO_PROXY has a form that `requests` knows.

    The forms are a host or a domain, optionally with a port; an address; a range of addresses; `*`
    for all hosts.
    """
    if _NO_PROXY_ENTRY.fullmatch(entry):
        return True
    try:
        ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


def shown_variables(env: Mapping[str, str]) -> list[str]:
    """Return a line NAME=value for each variable about proxies, without users and passwords.

    A value with a user is shown only from the host on, without its scheme.
    """
    lines = []
    for name in sorted(env):
        if name.lower().endswith("_proxy") and env[name]:
            lines.append(f"{name}={env[name].rpartition('@')[2]}")
    return lines


def proxy_problems(env: Mapping[str, str]) -> list[str]:
    """Return a message for each variable about proxies whose value cannot be used."""
    problems = []
    # Sorting puts capitals first. If http_proxy and HTTP_PROXY are both set, the name in small
    # letters thus replaces the name in capitals, as `requests` requires.
    set_names = {}
    for name in sorted(env):
        if env[name]:
            set_names[name.lower()] = name
    variables = []
    for name in _SCHEME_VARIABLES:
        if name in set_names:
            variables.append(set_names[name])
    is_general_used = len(variables) < len(_SCHEME_VARIABLES)
    if is_general_used and _GENERAL_VARIABLE in set_names:
        variables.append(set_names[_GENERAL_VARIABLE])
    for variable in variables:
        try:
            parsed_proxy(env[variable], variable)
        except PrerequisiteError as error:
            problems.append(str(error))
    try:
        check_no_proxy(env)
    except PrerequisiteError as error:
        problems.append(str(error))
    return problems


def find_trusted_certificates() -> tuple[str, str]:
    """Return (file or folder of the trusted certificates, the variable that names it).

    If no variable is set, return the file of the package certifi, and "certifi".

    Raises:
        PrerequisiteError: the file or folder does not exist.
    """
    name = next((name for name in CERTIFICATE_VARIABLES if os.environ.get(name)), None)
    if name is None:
        return certifi.where(), "certifi"
    bundle = os.environ[name]
    if not os.path.exists(bundle):  # noqa: PTH110 - the path stays as the user wrote it
        raise PrerequisiteError(
            f"{name}: there is no file or folder {bundle}; name the trusted certificates (PEM), "
            "or unset the variable"
        )
    return bundle, name


def certificates_hint() -> str:
    """Return a line with advice for the message of a TLS error.

    Raises:
        PrerequisiteError: the file or folder of the trusted certificates does not exist.
    """
    bundle, source = find_trusted_certificates()
    *first, last = CERTIFICATE_VARIABLES
    return (
        f"  the certificates in {bundle} ({source}) are trusted; to trust those of your own "
        f"authority, name their file (PEM) in {', '.join(first)} or {last}: the first of these "
        "that is set counts"
    )


def tls_context() -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates which `find_trusted_certificates` finds.

    Raises:
        PrerequisiteError: the file or folder of the certificates does not exist.
        OSError: the certificates cannot be read, or the file holds no certificates.
    """
    bundle, _ = find_trusted_certificates()
    is_folder = os.path.isdir(bundle)  # noqa: PTH112 - the path stays as the user wrote it
    context = ssl.create_default_context(
        capath=bundle if is_folder else None, cafile=None if is_folder else bundle
    )
    context.set_alpn_protocols(["http/1.1"])
    return context
