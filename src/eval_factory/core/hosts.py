"""Hosts and ports, as URLs name them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import idna

if TYPE_CHECKING:
    from eval_factory.core.helm_run_settings import Place

_PORTS = {"http": 80, "https": 443}


def place_of(url: str) -> Place | None:
    """Host and port of a URL; None where it has none."""
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in _PORTS:
        return None
    return host_of(parts.hostname), parts.port or _PORTS[parts.scheme]


def origin_of(url: str) -> tuple[str, object]:
    """Scheme, host and port: what is sent to one origin must not reach another, were it the same name in plain text."""
    parts = urlsplit(url)
    return parts.scheme, place_of(url) or parts.netloc


def host_of(name: object) -> str:
    """A host's one spelling: lower case, no dot at the end, no zone, and in ASCII, as urllib3 asks for it (IDNA)."""
    text = name.decode("utf-8", "replace") if isinstance(name, (bytes, bytearray)) else str(name or "")
    text = text.lower().partition("%")[0].rstrip(".")
    if text.isascii():
        return text
    try:
        return idna.encode(text, uts46=True).decode("ascii").rstrip(".")
    except idna.IDNAError:
        return text
