"""Parameters that an endpoint refuses, and the change of a request that its error asks for.

The words of servers are refused_parameters.yml, with their sources. A change is tried once; only
an answer to the changed request shows that it was needed, so a wrong guess costs one refusal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from eval_factory.core.foreign_text import one_line, texts_in
from eval_factory.core.plain_yaml import packaged
from eval_factory.endpoint import openai_api

Changes = Mapping[
    str, str | None
]  # parameter of a request -> the name that it is sent under; None: it is left out

STATUSES = frozenset({400, 422})
LOOKED_AT = 4000  # characters of an error; long ones repeat the request
_FIELD = re.compile(r'"(?:param|parameter|loc)\\?"\s*:\s*\\?(?:"([^"\\]{1,80})|\[([^\]]{1,120}))')
"""Where an error names the parameter in a field of its own."""


@dataclass(frozen=True)
class _Table:
    """refused_parameters.yml, compiled."""

    names: Mapping[str, re.Pattern[str]]
    refuses: re.Pattern[str]
    excludes: re.Pattern[str]
    unnamed: tuple[tuple[re.Pattern[str], str], ...]


def _any_of(rows: list[dict[str, Any]]) -> re.Pattern[str]:
    return re.compile("|".join(chain.from_iterable(row["says"] for row in rows)))


@cache
def _table() -> _Table:
    document = packaged("endpoint/refused_parameters.yml")
    names = {}
    for name, spellings in document["names"].items():
        names[name] = re.compile(rf"(?<![\w-])(?:{'|'.join(spellings)})(?![\w-])")
    unnamed = tuple((_any_of([row]), row["parameter"]) for row in document["unnamed"])
    return _Table(names, _any_of(document["words"]), _any_of(document["excludes"]), unnamed)


def changes_asked_for(error: str, sent: Mapping[str, Any]) -> dict[str, str | None]:
    """The change that the text of an error asks for, if any.

    The error may be about this one prompt all the same. What it quotes of the prompt names no
    parameter.
    """
    text = one_line(error[:LOOKED_AT], LOOKED_AT, prompt=texts_in(sent)).lower()
    if "max_completion_tokens" in text and "max_tokens" in sent:
        return {"max_tokens": "max_completion_tokens"}
    if "response_format" in text and sent.get("response_format") == openai_api.BASE64:
        # some models of pictures have this form alone, and refuse the field
        return {"response_format": None}
    table = _table()
    for words, name in table.unnamed:
        if name in sent and words.search(text):
            return {name: None}
    excludes = table.excludes.search(text)
    if not excludes and not table.refuses.search(text):
        return {}
    named = _named_in(text, sent)
    if not named:
        return {}
    if excludes:  # temperature stays, top_p goes
        return {named[-1]: None}
    return {named[0]: None}


def _named_in(text: str, sent: Mapping[str, Any]) -> list[str]:
    """The optional parameters of the request that an error names; one in a field of its own is
    the only one.
    """
    table = _table()
    known = [name for name in table.names if name in sent]
    fields = " ".join(one or several for one, several in _FIELD.findall(text))
    in_field = [name for name in known if table.names[name].search(fields)]
    if in_field:
        return in_field
    return [name for name in known if table.names[name].search(text)]
