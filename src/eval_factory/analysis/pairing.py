"""Which questions of two results are the same, where the results are of several programs and ids
say nothing.
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

QUESTION = "question and options"
PROMPT = "prompt"
COLUMNS = "named columns"
TABLE = "table"
MIN_PAIRED = 0.9
"""The share of the smaller result's questions that have to be paired, if the user names none."""
MIN_CONTAINED = 12
"""The shortest question, in characters, that is looked for inside a prompt."""
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class AskedQuestion:
    """One question of a result: its id, and what can be compared of it."""

    id: str
    prompt: str
    question: str | None
    options: tuple[str, ...]


@dataclass(frozen=True)
class Pairing:
    """The questions that two results share."""

    tier: str  # what they were found to be equal by
    ids: Mapping[str, str] = field(default_factory=dict)  # id in the second -> id in the first
    smaller: int = 0  # questions of the smaller result

    @property
    def share(self) -> float:
        """Return the share of the smaller result's questions that are paired."""
        if not self.smaller:
            return 0.0
        return len(self.ids) / self.smaller

    def __str__(self) -> str:
        return f"{len(self.ids)} of {self.smaller} paired (by {self.tier})"


def is_imported(stored: StoredResult) -> bool:
    """Return whether another program asked for the answers of a result."""
    return stored.result.provenance.imported is not None


def normalised(text: str) -> str:
    """Return a text without differences of blanks and letter case."""
    return _SPACES.sub(" ", text).strip().casefold()


def questions_of(records: Iterable[InstanceRecord]) -> list[AskedQuestion]:
    """Return each question once, in the order of the result; perturbed ones are left out."""
    questions: dict[str, AskedQuestion] = {}
    for record in records:
        if record.perturbation is not None or record.id in questions:
            continue
        options = tuple(normalised(str(reference.get("text"))) for reference in record.references)
        question = None if record.question is None else normalised(record.question)
        if len(options) < 2:
            options = ()
        questions[record.id] = AskedQuestion(
            record.id, normalised(record.prompt), question, options
        )
    return list(questions.values())


def paired(first: StoredResult, second: StoredResult, min_paired: float) -> Pairing:
    """Pair the questions of two results: by the first tier that pairs enough, else by the best."""
    questions = questions_of(first.result.instances)
    others = questions_of(second.result.instances)
    smaller = min(len(questions), len(others))
    best = Pairing(QUESTION, {}, smaller)
    for tier, pairs in _tiers(first, second, questions, others):
        pairing = Pairing(tier, dict(pairs), smaller)
        if pairing.share >= min_paired:
            return pairing
        if len(pairing.ids) > len(best.ids):
            best = pairing
    return best


def _tiers(
    first: StoredResult,
    second: StoredResult,
    questions: Sequence[AskedQuestion],
    others: Sequence[AskedQuestion],
) -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    yield QUESTION, _by_question(questions, others)
    yield PROMPT, _by_key(_prompt_keys(questions), _prompt_keys(others))
    if _is_table(first) or _is_table(second):
        own = [(question.id, question.id) for question in questions]
        foreign = [(question.id, question.id) for question in others]
        yield COLUMNS, _by_key(own, foreign)


def _is_table(stored: StoredResult) -> bool:
    imported = stored.result.provenance.imported
    return imported is not None and imported.program == TABLE


def _prompt_keys(questions: Sequence[AskedQuestion]) -> list[tuple[str, str]]:
    return [(_digest(question.prompt), question.id) for question in questions]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()


def _by_key(
    first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield (id in the second, id in the first) of equal keys. A key that is there twice on one
    side names no question and pairs nothing.
    """
    counts = Counter(key for key, _ in first)
    own = {key: name for key, name in first if counts[key] == 1}
    other_counts = Counter(key for key, _ in second)
    for key, name in second:
        if other_counts[key] == 1 and key in own:
            yield name, own[key]


def _by_question(
    questions: Sequence[AskedQuestion], others: Sequence[AskedQuestion]
) -> Iterator[tuple[str, str]]:
    """Pair by question and options; where one side keeps prompts alone, the question of the other
    has to be in one prompt with the same options, and in no second one.
    """
    own_keys = _question_keys(questions)
    foreign_keys = _question_keys(others)
    if own_keys and foreign_keys:
        yield from _by_key(own_keys, foreign_keys)
    elif foreign_keys:
        for name, prompt_name in _contained(others, questions):
            yield name, prompt_name
    elif own_keys:
        for name, prompt_name in _contained(questions, others):
            yield prompt_name, name


def _question_keys(questions: Sequence[AskedQuestion]) -> list[tuple[str, str]]:
    keys = []
    for asked in questions:
        if asked.question is not None:
            keys.append((_digest(asked.question, *sorted(asked.options)), asked.id))
    return keys


def _contained(
    questions: Sequence[AskedQuestion], prompts: Sequence[AskedQuestion]
) -> Iterator[tuple[str, str]]:
    """Yield (id of a question, id of the one prompt that holds it)."""
    by_options: dict[tuple[str, ...], list[AskedQuestion]] = {}
    for prompt in prompts:
        by_options.setdefault(tuple(sorted(prompt.options)), []).append(prompt)
    holders: dict[str, list[str]] = {}
    for asked in questions:
        if asked.question is None or len(asked.question) < MIN_CONTAINED:
            continue
        candidates = by_options.get(tuple(sorted(asked.options)), [])
        holders[asked.id] = [prompt.id for prompt in candidates if asked.question in prompt.prompt]
        if asked.options:
            # a prompt that has its options in its text alone
            for prompt in by_options.get((), []):
                if _holds(prompt.prompt, (asked.question, *asked.options)):
                    holders[asked.id].append(prompt.id)
    taken = Counter(names[0] for names in holders.values() if len(names) == 1)
    for name, names in holders.items():
        if len(names) == 1 and taken[names[0]] == 1:
            yield name, names[0]


def _holds(prompt: str, texts: Iterable[str]) -> bool:
    return all(text in prompt for text in texts)


def too_few(pairing: Pairing, min_paired: float) -> str:
    """Return why two results are not compared: too few of their questions are the same."""
    share = formats.percent(min_paired)
    return f"{pairing}; {share} are needed (--min_paired)"
