"""A token that all processes of a user share that ask the same service for the same client and scope.

It stands in a file of the user's cache folder (mode 0600); deleting the file forces a new one. A file that another
could have written is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import cache_folder, write_atomic
from eval_factory.core.secrets import variable_of

RENEW_BEFORE_S, MAX_PART_OF_LIFETIME = 60.0, 0.25
"""A token is renewed so long before it expires, for a request that is under way must not outlive it; but no longer
before than this part of its life: one of 30 s would be renewed at each request."""
MAX_LIFETIME_S = 24 * 3600.0
"""Whatever the service, or a file, says."""


@dataclass(frozen=True)
class OAuthSettings:
    """Which service gives tokens, and where it is when the environment does not say."""

    service: str
    token_url: str | None
    scope: str | None


@dataclass(frozen=True)
class Token:
    value: str
    expires_at: float
    lifetime: float
    """Seconds that the service gave it for."""

    @property
    def is_fresh(self) -> bool:
        return time.time() < self.expires_at - min(RENEW_BEFORE_S, MAX_PART_OF_LIFETIME * self.lifetime)


def token_file(oauth: OAuthSettings, env: Mapping[str, str], folder: Path | None = None) -> Path:
    """Where a token is cached: another file for another token URL, client or scope, whose token is another's."""
    named = (env.get(variable_of(oauth.service, name)) for name in ("TOKEN_URL", "CLIENT_ID", "SCOPE"))
    whose = [
        (one or "").strip() or default for one, default in zip(named, (oauth.token_url, None, oauth.scope), strict=True)
    ]
    digest = hashlib.sha256(json.dumps(whose).encode()).hexdigest()[:16]
    return (folder or cache_folder(env)) / f"{oauth.service}_{digest}_oauth_token.json"


def cached_token(oauth: OAuthSettings, env: Mapping[str, str]) -> str | None:
    """The token that is cached now, for those who must not show it."""
    token = read_token(token_file(oauth, env))
    return token.value if token else None


def read_token(file: Path) -> Token | None:
    """A cached token; None where there is none, or the file is no token's, or is not the user's own alone."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a FIFO must not be waited for
        with os.fdopen(descriptor, encoding="utf-8") as opened:
            about = os.fstat(descriptor)
            if about.st_mode != stat.S_IFREG | PRIVATE or about.st_uid != os.geteuid():
                return None
            document = json.loads(opened.read(65536))
        value, expires_at, lifetime = document["access_token"], document["expires_at"], document["lifetime_s"]
        is_possible = 0 < lifetime <= MAX_LIFETIME_S and 0 < expires_at <= time.time() + MAX_LIFETIME_S
        if is_possible and isinstance(value, str) and value and document["file"] == file.name:
            return Token(value, float(expires_at), float(lifetime))
    return None


def write_token(file: Path, token: Token) -> None:
    """Raises OSError."""
    document = {
        "file": file.name, "access_token": token.value, "expires_at": token.expires_at, "lifetime_s": token.lifetime,
    }  # fmt: skip
    write_atomic(file, json.dumps(document) + "\n", mode=PRIVATE)
