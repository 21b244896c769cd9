"""Reads multiple-choice questions from the rows of tables, and reorders their choices.

Error messages name a column and never quote its cells.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# dict from a column to the value of its cell: text, a number, a mapping, or None for an empty cell
DataRow = Mapping[str, Any]

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # the letters of options, in the order of the options
FEWEST_CHOICES = 2  # a list with fewer entries is not a list of choices
# The letter of an option: "A.", "A:", "A)", "(A)" or "[A]" at the start of a line, and only "A)" or
# "(A)" within a line. The letter is the first group at the start of a line, else the second.
_OPTION_MARK = re.compile(
    r"(?:^[ \t]*[(\[]?([A-Z])[.:)\]]|(?<=[ \t])\(?([A-Z])\))[ \t]+(?=\S)", re.MULTILINE
)


class RowFaultError(ValueError):
    """A row has a mistake; the message names the column and the reason."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")


@dataclass(frozen=True)
class ChoiceQuestion:
    """A question with its choices, or with its short answer as the only choice."""

    id: str  # "" if the published form has no ids: the reader then makes an id of the row's number
    question: str
    choices: tuple[str, ...]
    right: int  # the index of the right choice, from 0
    groups: Mapping[str, str] = field(default_factory=dict)
    """Dict from a column (specialty, country ...) to the group of the question; scores are shown by
    group.
    """
    # the kind and name of the source that several questions share: `("patient", "patient_01")`
    cluster: tuple[str, str] | None = None
    pictures: tuple[str, ...] = ()  # file names, in the order in which the pictures are shown

    def extra_data(self) -> dict[str, str]:
        """Return the groups and the cluster, which HELM stores as the instance's extra data."""
        extra_data = dict(self.groups)
        if self.cluster is not None:
            kind, name = self.cluster
            extra_data[kind] = name
        return extra_data


def options_shown(prompt: str) -> dict[str, str]:
    """Return the options that a prompt lists, as a dict from letter to text.

    Options are listed at the start of lines (`A. fever`) or in one line (`A) fever B) cough`). Each
    A begins a new list. If the prompt has several lists, the longest list is returned; if several
    lists are equally long, the last of them. The result is empty if no list has the letters A and
    B.
    """
    # `split` returns the text before the first mark, and then three parts for each mark: the letter
    # of a mark at the start of a line, the letter of a mark in a line, and the text after the mark.
    # One of the two letters is None.
    parts = _OPTION_MARK.split(prompt)
    lists: list[dict[str, str]] = []
    for letter_at_start, letter_in_line, text in zip(
        parts[1::3], parts[2::3], parts[3::3], strict=True
    ):
        letter = letter_at_start or letter_in_line
        if letter == LETTERS[0]:
            lists.append({})
        # The letter must be the next letter of its list. `%` only avoids an IndexError after Z.
        if lists and letter == LETTERS[len(lists[-1]) % len(LETTERS)]:
            lists[-1][letter] = text.partition("\n")[0].strip()
    # Of equally long lists, `max` returns the first that it sees: the last list of the prompt.
    longest = max(reversed(lists), key=len, default={})
    return longest if len(longest) >= FEWEST_CHOICES else {}


def is_blank(value: Any) -> bool:
    """Return True if a cell is missing or empty, holds only white space, or is NaN.

    Some readers of tables return NaN for an empty cell.
    """
    if value is None:
        return True
    if isinstance(value, float) and math.isnan(value):
        return True
    return not str(value).strip()


def cell_text(row: DataRow, column: str) -> str:
    """Return the text of a cell. Raises RowFaultError if the cell is missing, empty or not text."""
    if column not in row:
        raise RowFaultError(column, "is missing")
    value = row[column]
    if is_blank(value):
        raise RowFaultError(column, "is empty")
    if not isinstance(value, str):
        raise RowFaultError(column, "must be text")
    return value.strip()


def groups_in_columns(row: DataRow, columns: Iterable[str]) -> dict[str, str]:
    """Return a dict from columns to the row's texts, without the columns that have no value."""
    return {name: str(row[name]).strip() for name in columns if not is_blank(row.get(name))}


def options_and_right_index(
    choices: Mapping[str, Any], right: str, answer_column: str, choices_column: str
) -> tuple[tuple[str, ...], int]:
    """Return the texts of the choices in their order, and the index of the right choice.

    Args:
        choices: dict from the name of a choice in the published form to its text; choices without
            a text are skipped.
        right: the name of the right choice.
        answer_column: the column that an error about the right choice names.
        choices_column: the column that an error about the choices names.

    Raises:
        RowFaultError: there are too few or too many choices, a choice is not text, or the right
            choice does not exist.
    """
    texts = {name: text for name, text in choices.items() if not is_blank(text)}
    if any(not isinstance(text, str) for text in texts.values()):
        raise RowFaultError(choices_column, "each choice must be text")
    if not FEWEST_CHOICES <= len(texts) <= len(LETTERS):
        raise RowFaultError(
            choices_column,
            f"must hold {FEWEST_CHOICES} to {len(LETTERS)} choices, holds {len(texts)}",
        )
    if right not in texts:
        raise RowFaultError(answer_column, f"must be one of {', '.join(texts)}")
    index_of_right = list(texts).index(right)
    return tuple(text.strip() for text in texts.values()), index_of_right


def lettered_options(row: DataRow, column: str) -> dict[str, Any]:
    """Return the mapping in a cell, from capital letters to values, sorted by letter.

    Raises RowFaultError if the cell is missing, is None, or is not a mapping from capital letters.
    """
    value = row.get(column)
    if value is None:
        raise RowFaultError(column, "is missing")
    # The length is tested because texts such as "AB" and "" are also `in LETTERS`.
    if not isinstance(value, Mapping) or any(
        name not in LETTERS or len(name) != 1 for name in value
    ):
        raise RowFaultError(column, 'must be an object such as {"A": "...", "B": "..."}')
    return {name: value[name] for name in sorted(value)}


# the text that takes the place of the right choice if `extra.none_of_the_others` is set
NONE_OF_THE_OTHERS_TEXT = "None of the other options"
# a word of a negated question in English, Spanish or Portuguese, such as "not", "except" or "isn't"
_NEGATION = re.compile(
    r"\b(?:not|except|least|false|incorrect(?:ly)?|untrue|unlikely|never|wrong|cannot"
    r"|excepto|exceto|fals[ao]|incorrect[ao]|incorret[ao]|n\u00e3o)\b"
    r"|n['\u2019]t\b",
    re.IGNORECASE,
)


def may_lose_its_right_option(question: str, choices: Sequence[str]) -> bool:
    """Return True if `NONE_OF_THE_OTHERS_TEXT` can replace the right choice and is then right.

    Returns False for a negated question ("Which is NOT a sign of ..."): it can be read in two ways,
    and "None of the other options" may then be wrong. Returns False too if the choices must not be
    reordered (`why_not_reordered`), for example because a choice refers to other choices.
    """
    return why_not_reordered(choices) is None and _NEGATION.search(question) is None


MAX_ORDERS = 24  # the highest number of orders that a run may ask: all orders of four choices
_PERTURBATION_PREFIX = "choice_order_"  # `choice_order_2` is the perturbation of the second order

REFERS = "a choice refers to others"
LABELS = "the choices are labels"
ALONE = "one choice"
"""The three reasons why the choices of a question are never reordered."""

# Patterns of English and Spanish words, with the texts that they match.
_LABEL = r"(?:[a-h]|[1-9]|i{1,3}|iv|vi{0,3})"  # "a", "3", "iv"
_NAMED = (  # "a", "(3)", "options a"
    r"(?:(?:option|choice|answer|statement|opci[oó]n|respuesta)(?:e?s)?\s+)?"
    rf"[(\"']?{_LABEL}[)\"'.]?"
)
# ", ", " & ", " and ", ", or "
_AND = r"(?:\s*(?:,|;|&|\+|/)\s*(?:and\s+|or\s+|y\s+|o\s+)?|\s+(?:and|or|y|o|e)\s+)"
_SEVERAL = rf"{_NAMED}(?:{_AND}{_NAMED})+"  # "a and b"
_OTHERS = (  # "above", "others", "other options"
    r"(?:above|these|those|preceding|previous|foregoing|following|below|others?|other\s+\w+|options|choices|answers"
    r"|listed\s+\w+)"
)
_NOUN = r"(?:option|choice|answer|statement|opci[oó]n|respuesta)"
_HOW_MANY = r"(?:all|none|any|both|neither|either|each|some|two|three|more than one|one)"
_RIGHT_OR_WRONG_ES = r"(?:correct|ciert|fals|verdader|incorrect)"
_REFERENCES = (
    rf"\b{_HOW_MANY}\s+of\s+(?:the\s+)?{_OTHERS}\b",  # "none of the above"
    # "all the above"
    r"\b(?:all|none|both|any)\s+(?:the\s+)?(?:above|options|choices|answers)\b",
    # "the drugs listed above"
    r"\b(?:mentioned|listed|stated|given)\s+above\b|\babove[- ]mentioned\b",
    # "both a and b", "neither a nor b"
    rf"\b(?:both|either|neither|only|all\s+(?:but|except))\s+{_NAMED}(?:(?:\s+nor\s+|{_AND}){_NAMED})+(?![\w-])",
    # "a, b and c are correct"
    rf"^\W*{_SEVERAL}(?:\s+(?:only|alone|both|are|is|son|es)\b.*)?\W*$",
    rf"^\W*(?:only|solo|sólo|all\s+(?:but|except))\s+{_NAMED}\W*$",  # "only a", "all except c"
    # "option a only", "solo respuesta b"
    rf"^\W*(?:(?:only|solo|sólo)\s+)?{_NOUN}s?\s+{_NAMED}(?:\s+(?:only|alone|is|es)\b.*)?\W*$",
    # "all are correct"
    r"\b(?:all|both|none)\s+(?:are|is)\s+(?:correct|true|false|right|wrong|incorrect)\b",
    # "todas las anteriores"
    r"\b(?:tod[oa]s|ningun[oa]|cualquiera)\s+(?:(?:de\s+)?l[oa]s\s+)?(?:respuestas\s+|opciones\s+)?(?:anterior|opcion|respuesta)",
    r"\b(?:las|los)\s+(?:dos|tres)\s+anteriores\b",  # "las dos anteriores"
    rf"\b(?:tod[oa]s|ningun[oa])\s+(?:son|es)\s+{_RIGHT_OR_WRONG_ES}",  # "todas son correctas"
    # "son correctas a y b", "respuestas a y b"
    rf"\bson\s+{_RIGHT_OR_WRONG_ES}[oa]s\s+{_NAMED}|\brespuestas\s+{_SEVERAL}",
    r"^\W*(?:all|none|neither|both)\W*$",  # "None."
)
"""The patterns of choices that refer to other choices."""
_REFERENCE = "|".join(f"(?:{reference})" for reference in _REFERENCES)


def why_not_reordered(choices: Sequence[str]) -> str | None:
    """Return the reason why the choices must not be reordered; None if they may be reordered.

    "All of the above" and "both A and B" are meaningful only in the original order. If the choices
    themselves are letters (the question contains their texts), another order would put them next to
    wrong letters.
    """
    if len(set(choices)) < FEWEST_CHOICES:  # also if all choices have the same text
        return ALONE
    if all(re.fullmatch(r"\W*[A-Za-z]\W*", choice) for choice in choices):  # "B", "(b)"
        return LABELS
    if any(refers_to_others(choice) for choice in choices):
        return REFERS
    return None


def refers_to_others(choice: str) -> bool:
    """Return True if a choice refers to other choices: "none of the above", "both A and B"."""
    # Not compiled at import: this large pattern would slow down commands that do not need it.
    return re.search(_REFERENCE, choice, re.IGNORECASE) is not None


def orders_of(question_id: str, choices: Sequence[str], max_orders: int) -> list[tuple[int, ...]]:
    """Return different orders of the choices; the original order is the first.

    An order lists the indices of the choices. The orders depend only on the question's id and the
    number of choices, so each run asks the same orders. If the choices have fewer than
    `max_orders` orders, all orders are returned. If the choices must not be reordered, only the
    original order is returned.

    Args:
        question_id: the id of the question.
        choices: the texts of the choices, in the benchmark's order.
        max_orders: the maximum number of orders, including the original order.
    """
    count = len(choices)
    original = tuple(range(count))
    if why_not_reordered(choices) is not None:
        return [original]
    seed = hashlib.sha256(f"choice orders of {question_id}".encode()).digest()
    # S311 is about secrets, and an order is no secret.
    rng = random.Random(seed)  # noqa: S311
    orders = {original: None}  # a dict, because a set does not preserve the sequence of its entries
    number_wanted = min(max_orders, math.factorial(count))
    while len(orders) < number_wanted:
        random_order = tuple(rng.sample(original, count))
        orders[random_order] = None
    return list(orders)


def perturbation_of_order(order: int) -> str:
    """Return the name of the perturbation that asks the choices in an order.

    Args:
        order: the number of the order, from 2. Order 1 is the original, which has no perturbation.
    """
    return f"{_PERTURBATION_PREFIX}{order}"


def number_of_order(perturbation: str | None) -> int | None:
    """Return the number of an instance's order.

    Args:
        perturbation: the name of the instance's perturbation; None for an original instance.

    Returns:
        The number of the order, from 1; 1 for an original instance; None for a perturbation that
        is not another order.
    """
    if perturbation is None:
        return 1
    if not perturbation.startswith(_PERTURBATION_PREFIX):
        return None
    number = perturbation.removeprefix(_PERTURBATION_PREFIX)
    if not number.isdecimal():  # HELM adds endings such as `.worst`
        return None
    return int(number)
