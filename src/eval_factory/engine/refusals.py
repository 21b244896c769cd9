"""What an endpoint refuses in requests, learned from its errors and heeded from then on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

OPTIONAL_FIELDS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "stop")
"""Fields that a model may refuse (OpenAI's reasoning models do); they are left out then, and the result says so."""


class Refusals:
    """Of one endpoint; safe among threads."""

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}
        """Field -> the name that it is sent under; None: it is left out."""
        self._lock = threading.Lock()

    def heeded(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The body as the endpoint takes it, as far as is known, and in words how it differs."""
        with self._lock:
            names = {name: new for name, new in self._names.items() if name in body}
        sent = {}
        for name, value in body.items():
            new = names.get(name, name)
            if new is not None:
                sent[new] = value
        return sent, tuple(_told(name, new) for name, new in names.items())

    def learn(self, text: str, sent: Mapping[str, Any]) -> bool:
        """Whether the text of an error names a field that can be renamed or left out."""
        found: dict[str, str | None] = {}
        if "max_completion_tokens" in text and "max_tokens" in sent:
            found["max_tokens"] = "max_completion_tokens"
        elif "unsupported" in text.lower():
            quoted = [name for name in OPTIONAL_FIELDS if f"'{name}'" in text or f'"{name}"' in text]
            found = dict.fromkeys([name for name in quoted if name in sent][:1])
        with self._lock:
            self._names.update(found)
        return bool(found)


def _told(name: str, new: str | None) -> str:
    if new is None:
        return f"the endpoint refuses {name}: it was left out, the model's own default was used"
    return f"the endpoint takes {new} in place of {name}"
