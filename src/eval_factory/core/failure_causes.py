"""Groups the errors of failed instances into causes, and finds a remedy for an error.

Errors that differ only in numbers, ids and quoted names have the same cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.core.results import MODEL_ROLE, FailureCause

MAX_CAUSE = 300  # characters of a cause in result files
_MAX_SHOWN = 120  # characters of a cause on the screen
_MAX_CAUSES = 20  # causes of one role; rarer causes are counted together
_OTHERS = "other errors (see `error` in results.jsonl)"
_UNKNOWN = "no error was recorded"
VARIES = "..."  # replaces a part that differs between the errors of one cause

_STATUS = re.compile(r"HTTP (\d{3})")  # "HTTP 429"
_STATUS_IN_ERROR = re.compile(r"\b(?:HTTP|answers) (\d{3})\b")  # "HTTP 429", "answers 401"
_PART = re.compile(
    r"'[^'\s]{1,80}'|\"[^\"\s]{1,80}\"|`[^`\s]{1,80}`"  # a quoted name: 'llama'
    # a number, or an id (a word with a digit in it): "1,024", "12:30", "req_8f3"
    r"|[A-Za-z0-9_\-]*\d[A-Za-z0-9_\-]*(?:[.,:]\d+)*"
)


@dataclass
class _Group:
    """The errors that differ only in numbers, ids and quoted names."""

    # words and variable parts, alternately; `...` for a part that differs between the errors
    pieces: list[str]
    first: str  # the first error
    count: int = 0

    @property
    def text(self) -> str:
        """The errors as one text."""
        return "".join(self.pieces)


class Causes:
    """Collects the errors of instances, and groups errors with the same cause."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, tuple[str, ...]], _Group] = {}

    def add(self, role: str, error: str | None) -> None:
        """Add the error of one failed instance.

        Args:
            role: `model`, or the name of a judge.
            error: the message; None if no error was recorded.
        """
        line = one_line(error or _UNKNOWN)
        # An HTTP status at the beginning is not a variable part: another status is another cause.
        status = _STATUS.match(line)
        pieces = []
        end = 0
        for match in _PART.finditer(line, status.end() if status else 0):
            pieces += [line[end : match.start()], match[0]]
            end = match.end()
        pieces.append(line[end:])
        # Every second piece is text between variable parts: errors of one group have equal texts.
        group = self._groups.setdefault((role, tuple(pieces[::2])), _Group(pieces, line))
        group.count += 1
        group.pieces = [
            earlier if earlier == piece else VARIES
            for earlier, piece in zip(group.pieces, pieces, strict=True)
        ]

    @property
    def all_permanent(self) -> bool:
        """True if each error would recur with the same request; False if there are no errors."""
        return bool(self._groups) and all(
            is_permanent(group.first) for group in self._groups.values()
        )

    def listed(self) -> tuple[FailureCause, ...]:
        """Return the causes: first the model's causes, then each judge's causes by judge.

        The causes of a role are sorted by frequency, the most frequent first, and then by text. At
        most `_MAX_CAUSES` causes of a role are listed; the others are counted as one cause.
        """
        causes = []
        roles = {role for role, _ in self._groups}
        # False is sorted before True: the model's role comes first.
        for role in sorted(roles, key=lambda role: (role != MODEL_ROLE, role)):
            groups = []
            for (role_of_group, _), group in self._groups.items():
                if role_of_group == role:
                    groups.append(group)
            groups.sort(key=lambda group: (-group.count, group.text))
            for group in groups[:_MAX_CAUSES]:
                hint = hint_for(group.first, role)
                causes.append(FailureCause(role, group.count, group.text[:MAX_CAUSE], hint))
            rarer = sum(group.count for group in groups[_MAX_CAUSES:])
            if rarer:
                causes.append(FailureCause(role, rarer, _OTHERS, hint=None))
        return tuple(causes)


def cause_line(cause: FailureCause) -> str:
    """Return a cause's line on the screen: its count, the shortened error, and the remedy."""
    line = f"{cause.count} x {short_cause(cause.cause)}"
    if cause.hint:
        line += f"; {cause.hint}"
    return line


def short_cause(cause: str) -> str:
    """Return a cause for the screen, without a full stop at its end.

    A cause of more than `_MAX_SHOWN` characters is cut, and ` ...` marks the cut.
    """
    text = cause.strip()
    if text.endswith(".") and not text.endswith(VARIES):
        text = text[:-1]
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[:_MAX_SHOWN].rstrip()} ..."


@dataclass(frozen=True)
class Remedy:
    """A row of failure_remedies.yml: the remedy of errors that match the row."""

    judge: str  # the remedy if a judge's endpoint reports the error
    model: str | None = None  # the remedy for the model's endpoint; None: only judges report it
    # patterns; the error, in lower case, must match at least one. By default, any error matches
    says: tuple[str, ...] = ("",)
    status: str | None = None  # a pattern for the HTTP status
    unless: str | None = None  # a text that the error must not contain
    again: bool = True  # False if the same request would fail in the same way
    # True if a 401 or 403 is not about the API key, or a 404 is not about the URL or the model
    not_the_key: bool = False

    def applies_to(self, error: str) -> bool:
        """Return True if the row matches an error."""
        text = error.lower()
        if self.status is not None:
            status = _STATUS_IN_ERROR.search(error)
            if status is None or not re.fullmatch(self.status, status[1]):
                return False
        if self.unless is not None and self.unless in text:
            return False
        return re.search("|".join(self.says), text) is not None


@cache
def remedies() -> tuple[Remedy, ...]:
    """Return the rows of failure_remedies.yml; the first row that matches an error applies."""
    rows = []
    for row in load_packaged("core/failure_remedies.yml"):
        if "says" in row:
            row["says"] = tuple(row["says"])
        rows.append(Remedy(**row))
    return tuple(rows)


def hint_for(error: str, role: str) -> str | None:
    """Return the remedy of an error for the model or a judge; None if no remedy is known."""
    remedy = remedy_for(error)
    if remedy is None:
        return None
    if role == MODEL_ROLE:
        return remedy.model
    return remedy.judge


def is_permanent(error: str) -> bool:
    """Return True if the same request would fail in the same way again."""
    remedy = remedy_for(error)
    return remedy is not None and not remedy.again


def is_not_about_key(error: str) -> bool:
    """Return True if the status of the error is misleading.

    Examples are a 401 or 403 that is not about the key, and a 404 that is not about the URL or the
    model.
    """
    remedy = remedy_for(error)
    return remedy is not None and remedy.not_the_key


def remedy_for(error: str) -> Remedy | None:
    """Return the first row that matches an error; None if no row matches."""
    for remedy in remedies():
        if remedy.applies_to(error):
            return remedy
    return None
