"""Removes internal host names from exports.

The name of a host may reveal where in an institution a model runs.
"""

from __future__ import annotations

import ipaddress
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eval_factory.report.reader import StoredResult

PLACEHOLDER = "inner-host"  # the text that exports contain in place of an internal host
_PUBLIC_PLATFORMS = (
    "anthropic.com",
    "cerebras.ai",
    "cohere.com",
    "deepinfra.com",
    "deepseek.com",
    "fireworks.ai",
    "generativelanguage.googleapis.com",
    "groq.com",
    "huggingface.co",
    "integrate.api.nvidia.com",
    "mistral.ai",
    "openai.com",
    "openrouter.ai",
    "perplexity.ai",
    "together.ai",
    "together.xyz",
    "x.ai",
)
"""Domains of public platforms. Their names, and those of their subdomains, reveal nothing about the
user. Any other host may be inside a hospital.
"""
_URL = re.compile(r"https?://[^\s\"'<>]+")  # `http://gpu-7:8000/v1`, up to a blank or a quote


def is_public_platform(host: str) -> bool:
    """Return True if a host belongs to a public platform. `host` may include a port."""
    name = host.lower().partition(":")[0]
    # The dots make `openai.com` match `openai.com` and `api.openai.com`, but not `myopenai.com`.
    return any(f".{name}".endswith(f".{platform}") for platform in _PUBLIC_PLATFORMS)


def inner_hosts(stored: StoredResult) -> tuple[str, ...]:
    """Return the internal hosts that a result names, without ports, in alphabetical order.

    These are the hosts of the URLs in the configuration and in the command, and the hosts that were
    asked. Public platforms and this machine (`localhost`, loopback addresses) are left out.
    """
    hosts: set[str] = set()
    for text in _texts_in([stored.config, stored.target, stored.command]):
        hosts |= {_host_of(url) for url in _URL.findall(text)}
    for endpoint in stored.result.provenance.endpoints.values():
        # As a part of a URL, the host is read without its port.
        hosts.add(_host_of(f"http://{endpoint.host}"))
    hosts.discard("")  # Texts that look like URLs but are invalid have no host.
    inner = []
    for host in sorted(hosts):
        if not is_public_platform(host) and not _is_this_machine(host):
            inner.append(host)
    return tuple(inner)


def without_hosts(text: str, hosts: Iterable[str]) -> str:
    """Return the text with a placeholder in place of each host.

    A host name without a dot may also be an ordinary word. Such a name is replaced only after `//`
    or `host: `, or before a port.
    """
    for host in hosts:
        name = re.escape(host)
        # Parts of longer names do not match: `a.org` is not found in `b.a.org` or `a.org.uk`. A
        # period after the name may end a sentence.
        pattern = rf"(?<![\w.-]){name}(?![\w-]|\.\w)"
        # A host with a colon is an IPv6 address.
        is_name_without_dot = "." not in host and ":" not in host
        if is_name_without_dot:
            in_url = rf"(?<=//){name}(?![\w.-])"  # `gpu` in `http://gpu/v1`
            before_port = rf"(?<![\w.-]){name}(?=:\d)"  # `gpu` in `gpu:8000`
            after_host = rf"(?<=host: ){name}\b"  # `gpu` in `host: gpu`
            pattern = f"{in_url}|{before_port}|{after_host}"
        text = re.sub(pattern, PLACEHOLDER, text, flags=re.IGNORECASE)
    return text


@contextmanager
def files_without_hosts(files: Iterable[Path], hosts: Iterable[str]) -> Iterator[list[Path]]:
    """Yield the files, with a cleaned temporary copy in place of each file that names a host.

    A copy has the same file name as the original. The copies are deleted when the context ends.
    """
    hosts = tuple(hosts)  # `hosts` is read once for each file, so an iterator would be used up
    clean_files: list[Path] = []
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            text = file.read_text(encoding="utf-8")
            clean = without_hosts(text, hosts)
            if clean == text:
                clean_files.append(file)
                continue
            copy = Path(folder) / file.name
            copy.write_text(clean, encoding="utf-8")
            clean_files.append(copy)
        yield clean_files


def _host_of(url: str) -> str:
    """Return the host of a URL; an empty string if the text is not a valid URL."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_this_machine(host: str) -> bool:
    """Return True if a host is `localhost` or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _texts_in(value: Any) -> Iterator[str]:
    """Yield every string in nested dicts, lists and tuples."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _texts_in(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _texts_in(member)
