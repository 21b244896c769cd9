"""A request's body and its JSON text, which is made once: for the wire, and for what is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_compact_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class JsonBody(dict[str, Any]):
    """A body that nobody changes any more. To write its JSON takes a look at every letter of the prompt."""

    _text: str | None = None

    def text(self) -> str:
        """As `json_text` has it."""
        if self._text is None:
            self._text = _compact_json(self)
        return self._text


def json_text(body: Mapping[str, Any]) -> str:
    """Without white space; half a surrogate pair stays what it is."""
    return body.text() if isinstance(body, JsonBody) else _compact_json(body)
