"""Reads URLs of endpoints, and makes `served://...` URLs of models that eval-factory serves itself.

The server of a served model has another port at each start, but the model stays the same. The URL
`served://...` therefore identifies the command that starts the server, and an environment variable
holds the current address. The run's identity and the keys of stored answers contain only the URL.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from eval_factory.core.errors import PrerequisiteError

if TYPE_CHECKING:
    from eval_factory.core.helm_run_settings import HostAndPort

_PORTS = {"http": 80, "https": 443}


def host_and_port_of(url: str) -> HostAndPort | None:
    """Return (host, port) of a URL; None if the URL has no host or is not http(s)."""
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in _PORTS:
        return None
    return normal_host_name(parts.hostname), parts.port or _PORTS[parts.scheme]


def origin_of(url: str) -> tuple[str, object]:
    """Return (scheme, (host, port)) of a URL.

    If the URL has no host, or is not http(s), the second part is the URL's own text between `//`
    and its path. Secrets for one origin must not be sent to another origin, even if only the scheme
    differs.
    """
    parts = urlsplit(url)
    return parts.scheme, host_and_port_of(url) or parts.netloc


def normal_host_name(name: object) -> str:
    """Return a host's name in its normal form.

    The form is lower case, without a dot at the end and without an IPv6 zone, in ASCII (IDNA) as in
    urllib3's requests.
    """
    # The functions of `socket` also accept bytes and None.
    if isinstance(name, (bytes, bytearray)):
        text = name.decode("utf-8", "replace")
    else:
        text = str(name or "")
    text = text.lower().partition("%")[0].rstrip(".")
    if text.isascii():
        return text
    import idna  # only here: this import is slow, and few hosts need it

    try:
        return idna.encode(text, uts46=True).decode("ascii").rstrip(".")
    except idna.IDNAError:
        return text


API_PATHS = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "images": "/images/generations",
}
"""Type of an endpoint -> path of its requests. `chat` comes before `completions`, because the chat
path ends with the completions path.
"""


def request_url(url: str, endpoint_type: str, *, use_nvcf: bool = False) -> str:
    """Return the URL for POST requests.

    Args:
        url: the base URL or the complete URL, with or without a slash at its end. A query stays.
        endpoint_type: a key of `API_PATHS`.
        use_nvcf: True for an NVIDIA cloud function: only a slash at the end is removed.
    """
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not use_nvcf:
        type_in_url = endpoint_type_of(url)
        if type_in_url is not None:
            path = path.removesuffix(API_PATHS[type_in_url])
        path += API_PATHS[endpoint_type]
    return urlunsplit(parts._replace(path=path))


def endpoint_type_of(url: str) -> str | None:
    """Return the endpoint type of a complete URL (a key of `API_PATHS`); None for a base URL."""
    path = urlsplit(url).path.rstrip("/")
    return next((kind for kind, ending in API_PATHS.items() if path.endswith(ending)), None)


def base_of(url: str) -> str:
    """Return the base URL in its normal form, for a base URL or a complete URL.

    The host is put in lower case, but the name of a variable (`${HOST}`) is not changed.
    """
    parts = urlsplit(request_url(url, "chat"))
    host = parts.netloc.lower()
    if "$" in parts.netloc:
        host = parts.netloc
    return urlunsplit(parts._replace(netloc=host, path=parts.path.removesuffix(API_PATHS["chat"])))


SERVED_SCHEME = "served"
SERVED_AT = "EVAL_FACTORY_SERVED_AT"
"""The variable with the addresses of a model's servers (`http://127.0.0.1:PORT`), separated by
blanks. The variable is set only for the processes of a suite's runs that ask the model.
"""
PORT_PLACEHOLDER = "{port}"
REPLICA_PLACEHOLDER = "{replica}"
"""Placeholders in the command of a server: the port of the server, and the number of the server
(from 0) among several servers of the model.
"""


def served_url(command: str, path: str) -> str:
    """Return the `served://` URL of a model.

    Different commands have different URLs, but white space in a command does not matter.

    Args:
        command: the command that starts the server.
        path: the path of the API on the server.
    """
    words = shlex.split(command)
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
    program = PurePath(words[0]).name.lower()
    host = re.sub("[^a-z0-9]+", "-", program).strip("-")[:30] or "server"  # "llama-server"
    return f"{SERVED_SCHEME}://{host}-{digest}{path}"


def is_at_a_server(url: str, env: Mapping[str, str]) -> bool:
    """Return True if a URL has the address of a server that was started for this run."""
    return origin_of(url) in map(origin_of, env.get(SERVED_AT, "").split())


def server_urls(url: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the URLs to which requests for a URL are sent.

    For a `served://` URL, these are the URLs of its servers; otherwise, it is the URL itself.

    Raises PrerequisiteError if no server was started for a `served://` URL.
    """
    if not url.startswith(f"{SERVED_SCHEME}:"):
        return (url,)
    addresses = env.get(SERVED_AT, "").split()
    if not addresses:
        raise PrerequisiteError(
            f"{url} is a model that its suite serves, "
            "and its server runs only while the suite does\n"
            "  run the suite: eval-factory run_suite --run_config suite_config.yml, "
            "in the suite's folder"
        )
    return tuple(address + urlsplit(url).path for address in addresses)
