"""Why instances failed: errors that differ only in numbers and ids are one cause, with its count and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import MODEL_ROLE, FailureCause

LONGEST_CAUSE = 300
_LONGEST_SHOWN = 120
"""On the screen; the files have it all."""
_MOST_CAUSES = 20
"""Of one role; what is rarer is counted together."""
_OTHERS = "other errors (see `error` in results.jsonl)"
_UNKNOWN = "no error was recorded"
VARIES = "..."

_STATUS = re.compile(r"HTTP (\d{3})")
_STATUS_TOLD = re.compile(r"\b(?:HTTP|answers) (\d{3})\b")
_PART = re.compile(
    r"'[^'\s]{1,80}'|\"[^\"\s]{1,80}\"|`[^`\s]{1,80}`"  # a quoted name
    r"|[A-Za-z0-9_\-]*\d[A-Za-z0-9_\-]*(?:[.,:]\d+)*"  # a number, or an id: a word with a digit in it
)


@dataclass
class _Group:
    """Errors with the same words; `parts` are what may differ between them, None where it does."""

    count: int = 0
    words: list[str] = field(default_factory=list)
    parts: list[str | None] = field(default_factory=list)
    first: str = ""

    def text(self) -> str:
        shown = [self.words[0]]
        for part, word in zip(self.parts, self.words[1:], strict=True):
            shown += [VARIES if part is None else part, word]
        return "".join(shown)


class Causes:
    """Errors of instances, grouped as they are added."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, tuple[str, ...]], _Group] = {}

    def add(self, role: str, error: str | None) -> None:
        """One failed instance. `error` is None where nothing says why."""
        line = one_line(error or _UNKNOWN)
        status = _STATUS.match(line)
        start = status.end() if status else 0
        words, parts, at = [], [], 0
        for match in _PART.finditer(line, start):
            words.append(line[at : match.start()])
            parts.append(match[0])
            at = match.end()
        words.append(line[at:])
        group = self._groups.setdefault((role, tuple(words)), _Group())
        if not group.count:
            group.words, group.parts, group.first = words, list(parts), line
        group.count += 1
        group.parts = [known if known == part else None for known, part in zip(group.parts, parts, strict=True)]

    def listed(self) -> tuple[FailureCause, ...]:
        """The model's before the judges', the most frequent first, equally frequent ones by their text."""
        by_role: dict[str, list[_Group]] = {}
        for (role, _), group in self._groups.items():
            by_role.setdefault(role, []).append(group)
        found = []
        for role in sorted(by_role, key=lambda role: (role != MODEL_ROLE, role)):
            groups = sorted(by_role[role], key=lambda group: (-group.count, group.text()))
            found += [
                FailureCause(role, group.count, group.text()[:LONGEST_CAUSE], hint_for(group.first, role))
                for group in groups[:_MOST_CAUSES]
            ]
            if rest := sum(group.count for group in groups[_MOST_CAUSES:]):
                found.append(FailureCause(role, rest, _OTHERS, None))
        return tuple(found)


def line_of(cause: FailureCause) -> str:
    """For the screen: how often, why, and what to do."""
    return f"{cause.count} x {short_cause(cause.cause)}" + (f"; {cause.hint}" if cause.hint else "")


def short_cause(cause: str) -> str:
    whole = cause.strip()
    if whole.endswith(".") and not whole.endswith(VARIES):
        whole = whole[:-1]
    return whole if len(whole) <= _LONGEST_SHOWN else f"{whole[:_LONGEST_SHOWN].rstrip()} ..."


@dataclass(frozen=True)
class _Remedy:
    applies: Callable[[int | None, str], object]
    """Of (HTTP status, error in lower case)."""
    of_the_model: str
    of_a_judge: str


def _says(*patterns: str) -> Callable[[int | None, str], object]:
    pattern = re.compile("|".join(patterns))
    return lambda _status, error: pattern.search(error)


def _is(*statuses: int) -> Callable[[int | None, str], object]:
    return lambda status, _error: status in statuses


_AGAIN = "the same command asks again"
_REMEDIES = (
    _Remedy(
        _says(r"^unusable judgement"),
        "",
        "see responses/ for what it said; another judge (extra.judges) may follow the instructions better; " + _AGAIN,
    ),
    _Remedy(
        _says(r"insufficient_quota|exceeded your current quota|billing|insufficient (?:credit|balance)"),
        "the account has no credit left: add some; " + _AGAIN,
        "the judge's account has no credit left: add some; " + _AGAIN,
    ),
    _Remedy(
        lambda status, error: status == 429 and "request too large" not in error,
        "lower config.params.parallelism, or set target.api_endpoint.requests_per_minute; " + _AGAIN,
        "set the judge's requests_per_minute in extra.judges, or lower its parallelism; " + _AGAIN,
    ),
    _Remedy(
        _says(
            r"(?:context|sequence|token)s? (?:length|window|size|limit)",
            r"maximum (?:context|input|model|prompt)",
            r"max_model_len",
            r"n_ctx",
            r"context_length",
            r"too many (?:input |prompt )?tokens",
            r"(?:prompt|input|request)s? (?:is |are |was )?too (?:long|large)",
            r"longer than the (?:model|maximum)",
            r"must have less than \d+ tokens",
            r"exceeds? .{0,40}\b(?:context|tokens)\b",
        ),
        "try max_length (config.params.extra.max_length cuts prompts to so many tokens)",
        "give extra.judges a model that takes longer prompts",
    ),
    _Remedy(
        _is(413),
        "try max_length (config.params.extra.max_length cuts prompts), or raise the server's limit",
        "raise the server's limit of a request, or name another judge in extra.judges",
    ),
    _Remedy(
        _says(r"content.{0,3}(?:filter|policy|management)", r"moderat", r"flagged", r"responsible ai", r"safety"),
        "the provider's filter refuses these prompts, and will again: have it loosened, or lower extra.min_coverage",
        "the provider's filter refuses these prompts: have it loosened, or name another judge in extra.judges",
    ),
    _Remedy(
        _says(r"no whole answer within", r"gave no answer within", r"timed? ?out"),
        "raise config.params.request_timeout, or lower parallelism; " + _AGAIN,
        "raise config.params.request_timeout, or lower the judge's parallelism in extra.judges; " + _AGAIN,
    ),
    _Remedy(
        _says(r"unsupported|not supported|unrecognized|unknown (?:field|parameter|argument)", r"extra inputs? "),
        "leave the field out, or rename it: adapter_config.params_to_remove and params_to_rename",
        "set the judge's temperature, top_p or max_tokens in extra.judges to what it takes",
    ),
    _Remedy(
        _is(401, 403),
        "check that the key (target.api_endpoint.api_key names its variable) may use this model",
        "check that the judge's key may use its model",
    ),
    _Remedy(
        _is(404),
        "check target.api_endpoint.url and model_id",
        "check the judge's url and model_id in extra.judges",
    ),
    _Remedy(
        _says(
            r"the answer is not (?:json|valid http)|another protocol"
            r"|holds no (?:choices|message|text)|unknown form|no json object"
        ),
        "is there an OpenAI-compatible API at target.api_endpoint.url, and is `type` right (chat or completions)?",
        "is there an OpenAI-compatible API at the judge's url in extra.judges?",
    ),
    _Remedy(
        _says(r"connection was closed|no connection"),
        "the endpoint hangs up: look at its own log, or lower config.params.parallelism; " + _AGAIN,
        "the judge's endpoint hangs up: look at its own log, or lower its parallelism; " + _AGAIN,
    ),
    _Remedy(
        lambda status, _error: status is not None and status >= 500,
        "the endpoint itself fails: look at its own log; " + _AGAIN,
        "the judge's endpoint itself fails: look at its own log; " + _AGAIN,
    ),
)


def hint_for(error: str, role: str) -> str | None:
    """What to do about an error; None where nothing is known to help."""
    found = _STATUS_TOLD.search(error)
    status, text = int(found[1]) if found else None, error.lower()
    for remedy in _REMEDIES:
        if remedy.applies(status, text):
            return (remedy.of_the_model if role == MODEL_ROLE else remedy.of_a_judge) or None
    return None
