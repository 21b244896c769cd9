"""Pairs the equal questions of two results that were made by different programs.

The programs give a question different ids. The questions are therefore paired by their texts.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core import formats
from eval_factory.core.results import InstanceRecord
from eval_factory.report.reader import StoredResult

# The tiers: what is compared to pair two questions. The user sees these names.
QUESTION = "question and options"
PROMPT = "prompt"
COLUMNS = "named columns"  # the ids, which come from a column that the user named

TABLE = "table"  # `provenance.imported.program` of a result that was imported from a table
MIN_PAIRED = 0.9
"""At least this share of the questions of the smaller result must be paired, by default."""
MIN_CONTAINED = 12
"""The length, in characters, of the shortest question that is searched for in prompts.

A shorter text may be contained in a prompt by chance.
"""
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Question:
    """A question of a result, with its normalised texts."""

    id: str
    prompt: str
    text: str | None  # the question alone; None if the result has only prompts
    options: tuple[str, ...]


@dataclass(frozen=True)
class Pairing:
    """The questions that two results have in common."""

    tier: str  # what was compared, such as `PROMPT`
    # id of a question in the second result -> its id in the first result
    ids: Mapping[str, str] = field(default_factory=dict)
    smaller: int = 0  # the number of questions in the smaller result

    @property
    def share(self) -> float:
        """The share of the smaller result's questions that are paired; 0 without questions."""
        if not self.smaller:
            return 0.0
        return len(self.ids) / self.smaller

    def __str__(self) -> str:
        return f"{len(self.ids)} of {self.smaller} paired (by {self.tier})"


def is_imported(stored: StoredResult) -> bool:
    """Return True if another program made the result, and this program imported it."""
    return stored.result.provenance.imported is not None


def normalised(text: str) -> str:
    """Return a text in lower case, with single spaces as its only white space."""
    return _SPACES.sub(" ", text).strip().casefold()


def questions_of(records: Iterable[InstanceRecord]) -> list[Question]:
    """Return each question once, in the order of the result; perturbed questions are left out."""
    questions: dict[str, Question] = {}
    for record in records:
        if record.id in questions or record.perturbation is not None:
            continue
        text = None
        if record.question is not None:
            text = normalised(record.question)
        options: tuple[str, ...] = ()
        if len(record.references) > 1:  # A single reference is a right answer, not an option.
            options = tuple(normalised(str(option.get("text"))) for option in record.references)
        questions[record.id] = Question(record.id, normalised(record.prompt), text, options)
    return list(questions.values())


def pair_questions(first: StoredResult, second: StoredResult, min_paired: float) -> Pairing:
    """Pair the questions of two results.

    The first tier of `_tiers` that pairs enough questions is used. If no tier pairs enough, the
    tier that pairs most questions is used.

    Args:
        first: a result.
        second: the result whose questions are paired with those of the first result.
        min_paired: the share of the smaller result's questions that is enough.
    """
    first_questions = questions_of(first.result.instances)
    second_questions = questions_of(second.result.instances)
    smaller = min(len(first_questions), len(second_questions))
    best = Pairing(QUESTION, smaller=smaller)
    for tier, pairs in _tiers(first, second, first_questions, second_questions):
        pairing = Pairing(tier, dict(pairs), smaller=smaller)
        if pairing.share >= min_paired:
            return pairing
        if len(pairing.ids) > len(best.ids):
            best = pairing
    return best


def paired_ids(stored: Sequence[StoredResult]) -> list[Mapping[str, str]]:
    """Return for each result a dict from its questions' ids to their ids in the first result.

    If this program made all results, the list is empty, because equal questions have equal ids.
    """
    if not any(map(is_imported, stored)):
        return []
    first, *others = stored
    ids_of_first = {question.id: question.id for question in questions_of(first.result.instances)}
    pairs: list[Mapping[str, str]] = [ids_of_first]
    for other in others:
        pairs.append(pair_questions(first, other, MIN_PAIRED).ids)
    return pairs


def _tiers(
    first: StoredResult,
    second: StoredResult,
    first_questions: Sequence[Question],
    second_questions: Sequence[Question],
) -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    """Yield each tier, the most reliable first, with its pairs.

    A pair is (id in the second result, id in the first result).
    """
    yield QUESTION, _pairs_by_question(first_questions, second_questions)
    yield PROMPT, _pairs_by_key(_prompt_keys(first_questions), _prompt_keys(second_questions))
    if _is_table(first) or _is_table(second):
        yield COLUMNS, _pairs_by_key(_id_keys(first_questions), _id_keys(second_questions))


def _is_table(stored: StoredResult) -> bool:
    """Return True if the result was imported from a table."""
    imported = stored.result.provenance.imported
    return imported is not None and imported.program == TABLE


def _id_keys(questions: Sequence[Question]) -> list[tuple[str, str]]:
    """Return (key, id) of each question, for `_pairs_by_key`: the key is the id itself."""
    return [(question.id, question.id) for question in questions]


def _prompt_keys(questions: Sequence[Question]) -> list[tuple[str, str]]:
    """Return (key, id) of each question, for `_pairs_by_key`: the key is a hash of the prompt."""
    return [(_digest(question.prompt), question.id) for question in questions]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()


def _pairs_by_key(
    first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield (id in the second result, id in the first result) for equal keys.

    If several questions of a result have a key, the key is skipped.

    Args:
        first: (key, id) for each question of the first result.
        second: (key, id) for each question of the second result.
    """
    first_ids = _ids_of_unique_keys(first)
    for key, second_id in _ids_of_unique_keys(second).items():
        if key in first_ids:
            yield second_id, first_ids[key]


def _ids_of_unique_keys(keys: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return a dict from key to id, without the keys that several questions have."""
    ids_by_key: dict[str, list[str]] = {}
    for key, question_id in keys:
        ids_by_key.setdefault(key, []).append(question_id)
    return {key: ids[0] for key, ids in ids_by_key.items() if len(ids) == 1}


def _pairs_by_question(
    first: Sequence[Question], second: Sequence[Question]
) -> Iterator[tuple[str, str]]:
    """Yield (id in the second result, id in the first result) for equal questions and options.

    If one result has only prompts, the questions of the other result are searched for in these
    prompts. If both results have only prompts, there are no pairs.
    """
    first_keys = _question_keys(first)
    second_keys = _question_keys(second)
    if first_keys and second_keys:
        yield from _pairs_by_key(first_keys, second_keys)
    elif second_keys:
        yield from _pairs_by_containment(second, first)
    elif first_keys:
        # Here the questions are those of the first result, so each pair is turned round.
        for first_id, second_id in _pairs_by_containment(first, second):
            yield second_id, first_id


def _question_keys(questions: Sequence[Question]) -> list[tuple[str, str]]:
    """Return (digest of the question and its options, id) of each question with a text.

    The order of the options does not matter.
    """
    keys = []
    for question in questions:
        if question.text is not None:
            keys.append((_digest(question.text, *sorted(question.options)), question.id))
    return keys


def _pairs_by_containment(
    questions: Sequence[Question], prompts: Sequence[Question]
) -> Iterator[tuple[str, str]]:
    """Yield (id of a question, id of the only prompt that contains the question).

    A question that several prompts contain is not paired. If a prompt is the only match of several
    questions, none of them is paired.
    """
    by_options: dict[tuple[str, ...], list[Question]] = {}
    for prompt in prompts:
        by_options.setdefault(tuple(sorted(prompt.options)), []).append(prompt)
    matches: dict[str, list[str]] = {}  # id of a question -> ids of the prompts that contain it
    for question in questions:
        if question.text is not None and len(question.text) >= MIN_CONTAINED:
            ids = list(_prompts_with(question.text, question.options, by_options))
            matches[question.id] = ids
    only_match = {question_id: ids[0] for question_id, ids in matches.items() if len(ids) == 1}
    question_count = Counter(only_match.values())  # id of a prompt -> number of its questions
    for question_id, prompt_id in only_match.items():
        if question_count[prompt_id] == 1:
            yield question_id, prompt_id


def _prompts_with(
    text: str,
    options: tuple[str, ...],
    by_options: Mapping[tuple[str, ...], Sequence[Question]],
) -> Iterator[str]:
    """Yield the ids of the prompts that contain a question, and have the question's options.

    Args:
        text: the text of the question.
        options: the options of the question.
        by_options: the prompts, by their sorted options.
    """
    for prompt in by_options.get(tuple(sorted(options)), []):
        if text in prompt.prompt:
            yield prompt.id
    if options:
        # Some results store no options: the options are then searched for in the prompts.
        for prompt in by_options.get((), []):
            if _contains_all(prompt.prompt, (text, *options)):
                yield prompt.id


def _contains_all(prompt: str, texts: Iterable[str]) -> bool:
    return all(text in prompt for text in texts)


def too_few_text(pairing: Pairing, min_paired: float) -> str:
    """Return the text that states how many questions are paired, and how many are needed."""
    share = formats.percent(min_paired)
    return f"{pairing}; {share} are needed (--min_paired)"
