"""Parameters that an endpoint does not support: supposed of one request, known once that request was answered."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

OPTIONAL_PARAMS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "stop")
"""Parameters that a model may refuse (OpenAI's reasoning models do); they are left out then, and the result says so."""

Changes = Mapping[str, str | None]
"""Parameter of a request -> the name that it is sent under; None: it is left out."""


class UnsupportedParams:
    """Of one endpoint; safe among threads."""

    def __init__(self) -> None:
        self._changes: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def changes_for(self, body: Mapping[str, Any]) -> dict[str, str | None]:
        """The changes without which the endpoint is known to refuse this body."""
        if not self._changes:  # read without the lock: the usual case costs nothing
            return {}
        with self._lock:
            return {name: new for name, new in self._changes.items() if name in body}

    def learn(self, changes: Changes) -> None:
        """A request that was refused without these changes was answered with them."""
        with self._lock:
            self._changes.update(changes)


def changes_asked_for(error: str, sent: Mapping[str, Any]) -> dict[str, str | None]:
    """The change that the text of an error asks for, if any. The error may be about this one prompt all the same."""
    if "max_completion_tokens" in error and "max_tokens" in sent:
        return {"max_tokens": "max_completion_tokens"}
    if "unsupported" not in error.lower():
        return {}
    quoted = [name for name in OPTIONAL_PARAMS if f"'{name}'" in error or f'"{name}"' in error]
    return dict.fromkeys([name for name in quoted if name in sent][:1])


def described(changes: Changes) -> tuple[str, ...]:
    """The changes in words."""
    return tuple(
        f"the endpoint refuses {name}: it was left out, the model's own default was used"
        if new is None
        else f"the endpoint takes {new} in place of {name}"
        for name, new in changes.items()
    )
