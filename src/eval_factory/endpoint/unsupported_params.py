"""What an endpoint refuses in requests: believed of one request, and known of the endpoint once that was answered."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

OPTIONAL_FIELDS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "stop")
"""Fields that a model may refuse (OpenAI's reasoning models do); they are left out then, and the result says so."""

Changes = Mapping[str, str | None]
"""Field of a request -> the name that it is sent under; None: it is left out."""


class Refusals:
    """Of one endpoint; safe among threads."""

    def __init__(self) -> None:
        self._known: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def known(self, body: Mapping[str, Any]) -> dict[str, str | None]:
        """The changes without which the endpoint is known to refuse this body."""
        if not self._known:  # read without the lock: the usual case costs nothing
            return {}
        with self._lock:
            return {name: new for name, new in self._known.items() if name in body}

    def learn(self, changes: Changes) -> None:
        """A request that was refused without these changes was answered with them."""
        with self._lock:
            self._known.update(changes)


def named_in(text: str, sent: Mapping[str, Any]) -> dict[str, str | None]:
    """The change that the text of an error asks for, if any. It may be about this one prompt all the same."""
    if "max_completion_tokens" in text and "max_tokens" in sent:
        return {"max_tokens": "max_completion_tokens"}
    if "unsupported" not in text.lower():
        return {}
    quoted = [name for name in OPTIONAL_FIELDS if f"'{name}'" in text or f'"{name}"' in text]
    return dict.fromkeys([name for name in quoted if name in sent][:1])


def told(changes: Changes) -> tuple[str, ...]:
    """The changes in words."""
    return tuple(
        f"the endpoint refuses {name}: it was left out, the model's own default was used"
        if new is None
        else f"the endpoint takes {new} in place of {name}"
        for name, new in changes.items()
    )
