"""Proxies and certificates from the environment, by requests' rules: of everything that this
program asks.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from certifi import where
from requests.utils import get_environ_proxies, prepend_scheme_if_needed, select_proxy
from urllib3.exceptions import LocationValueError

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.urls import is_at_a_server

CERTIFICATE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
"""The first that is set counts, for everything that this program asks."""


def proxy_for(url: str) -> str | None:
    """The proxy that leads to an endpoint. Where helm-run is given proxies, the usual variables
    are not looked at.
    """
    configured = HelmRunSettings.from_environment(os.environ).proxies
    if configured is None:
        return proxy_from_environment(url)
    parts = urlsplit(url)
    return configured.get(f"{parts.scheme}://{parts.netloc}")


def proxy_variable(url: str) -> str:
    """The variable that names the proxy, by requests' rules; the usual one where none is set."""
    scheme = urlsplit(url).scheme
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    return next((name for name in names if os.environ.get(name)), names[1])


def proxy_from_environment(url: str) -> str | None:
    """By requests' rules; what has no scheme is an HTTP proxy.

    Raises PrerequisiteError: it is another kind of proxy, or its address cannot be parsed.
    """
    if is_at_a_server(url, os.environ):
        return None
    named: str | None = select_proxy(url, get_environ_proxies(url))
    if not named:
        return None
    names = [
        name
        for name, value in os.environ.items()
        if value == named and name.lower().endswith("_proxy")
    ]
    who = " and ".join(names) or "the proxy"
    proxy = parsed_proxy(named, who)
    scheme = urlsplit(proxy).scheme
    if scheme not in ("http", "https"):
        raise PrerequisiteError(
            f"{who}: "
            f"a proxy of the kind {scheme}:// is not known, only http:// and"
            f" https:// are\n  name another one, or unset it; NO_PROXY={urlsplit(url).hostname} "
            "goes past it"
        )
    return proxy


def parsed_proxy(named: str, variable: str) -> str:
    """The address of a proxy; what has no scheme is an HTTP proxy.

    Raises PrerequisiteError: it is no address. The value is not shown: it may hold a password.
    """
    try:
        proxy = str(prepend_scheme_if_needed(named, "http"))  # type: ignore[no-untyped-call]
        parts = urlsplit(proxy)
        is_address = bool(parts.hostname) and parts.port != 0
    except (ValueError, TypeError, LocationValueError):
        is_address = False
    if not is_address or any(letter.isspace() for letter in named):
        raise PrerequisiteError(
            f"{variable}: is no address of a proxy, such as http://proxy.example:3128\n"
            "  correct it, or unset it"
        )
    return proxy


def proxy_problems(env: Mapping[str, str]) -> list[str]:
    """What is wrong with the variables that name proxies."""
    problems = []
    for name in sorted(env):
        if not name.lower().endswith("_proxy") or name.lower() == "no_proxy" or not env[name]:
            continue
        try:
            parsed_proxy(env[name], name)
        except PrerequisiteError as error:
            problems.append(str(error))
    return problems


def certificates() -> tuple[str, str]:
    """The file or folder of the certificates that are trusted, and who named it.

    Raises PrerequisiteError: it is not there.
    """
    name = next((name for name in CERTIFICATE_VARIABLES if os.environ.get(name)), None)
    if name is None:
        return where(), "certifi"
    bundle = os.environ[name]
    if not os.path.exists(bundle):  # noqa: PTH110 - a variable's text
        raise PrerequisiteError(
            f"{name}: there is no file {bundle}; it has to hold the certificates to trust (PEM)"
        )
    return bundle, name


def certificates_hint() -> str:
    """What to do where TLS fails, as a line of an error."""
    bundle, origin = certificates()
    *first, last = CERTIFICATE_VARIABLES
    return (
        f"  the certificates to trust are those of {bundle} ({origin}); "
        "to trust your own authority's, name their file"
        f" (PEM) in {', '.join(first)} or {last}: the first of these that is set counts"
    )


def tls_context() -> ssl.SSLContext:
    """Trusts those certificates. Raises OSError: they cannot be read, or are none."""
    bundle, _ = certificates()
    is_folder = os.path.isdir(bundle)  # noqa: PTH112 - a variable's text
    context = ssl.create_default_context(
        capath=bundle if is_folder else None, cafile=None if is_folder else bundle
    )
    context.set_alpn_protocols(["http/1.1"])
    return context
