"""Counts the samples of another program's run in one pass.

The counts have the values by metric, the numbers of problems, the groups, and the scores of answers
without a model.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.finish_reasons import FinishReason
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import FailureCause, Floor, Instances
from eval_factory.importing.foreign_run import MAX_OPTIONS, ForeignSample
from eval_factory.reading import is_refusal, stated_option

SPLIT = "test"  # the split of all imported instances
READER_METRIC = "exact_match.lenient"
"""The name of the reader's score, as in results of eval-factory's own runs."""
SampleKey = tuple[str, int, str | None]  # id of the question, repeat, perturbation
MAX_GROUPS = 40  # a category with more different values makes no groups
MAX_CAUSES = 20  # the maximum number of causes of failures in a result
REFUSED = "refused"
UNPARSED = "unparsed"


def key_of(sample: ForeignSample) -> SampleKey:
    """Return the key of a sample, as scores use it: id, repeat, and no perturbation."""
    return sample.id, sample.repeat, None


def options_by_letter(options: Iterable[str]) -> dict[str, str]:
    """Return the options by their letters: A, B and so on."""
    return {chr(ord("A") + index): option for index, option in enumerate(options)}


def stated_option_index(sample: ForeignSample) -> int | None:
    """Return the index of the option that the answer states; None if there is no such option."""
    if not sample.completion or not 1 < len(sample.options) <= MAX_OPTIONS:
        return None
    letter = stated_option(sample.completion, options_by_letter(sample.options))
    if letter is None:
        return None
    return ord(letter) - ord("A")


def signs_of(sample: ForeignSample, option: int | None) -> tuple[str, ...]:
    """Return the sign of an answer that states no option, in a tuple: `refused` or `unparsed`.

    The tuple is empty if the answer states an option or is blank, or if neither sign applies.

    Args:
        sample: one answer, as the other program stored it.
        option: the index of the stated option, from `stated_option_index`.
    """
    answer = sample.completion or ""
    if option is not None or not answer.strip():
        return ()
    if is_refusal(answer):
        return (REFUSED,)
    if sample.is_readable:
        return (UNPARSED,)
    return ()


@dataclass
class SampleCounts:
    """The facts about all samples of a run, without their texts."""

    main_metric: str
    requested: int = 0  # the number of samples
    failed: set[SampleKey] = field(default_factory=set)  # samples with an error
    without_value: int = 0  # answers without a value of the main metric
    empty: int = 0  # answers without a visible character
    truncated: int = 0  # answers that reached the limit of output tokens
    filtered: int = 0  # answers that a content filter has ended
    # readable answers in which the reader finds no option; includes refusals and empty answers
    unread: int = 0
    refused: int = 0
    unparsed: int = 0
    readable: int = 0  # answers that the reader can compare with options (`is_readable`)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    values: dict[str, dict[SampleKey, float]] = field(default_factory=dict)  # metric -> values
    # for each readable answer: 1 if the reader finds a right option, else 0
    read_values: dict[SampleKey, float] = field(default_factory=dict)
    signs: dict[SampleKey, tuple[str, ...]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)  # message -> number of samples
    # category -> value of the category -> samples
    members: dict[str, dict[str, list[SampleKey]]] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)  # question -> cluster
    _too_many: set[str] = field(
        default_factory=set
    )  # categories with more than `MAX_GROUPS` values
    _prompts: Counter[bytes] = field(default_factory=Counter)  # SHA-256 of a prompt -> samples
    _ids: set[SampleKey] = field(default_factory=set)
    # For each strategy that needs no model: the sum of its scores over all questions.
    _always: Counter[str] = field(default_factory=Counter)  # letter -> sum if always this letter
    _longest: int = 0  # the sum if the answer is always the longest option
    _random: float = 0.0  # the expected sum for random options
    _with_options: int = 0  # the number of questions whose right options are known

    def add(self, sample: ForeignSample) -> str | None:
        """Count one sample. Returns None, or an error message if its key was counted before."""
        key = key_of(sample)
        if key in self._ids:
            return f"question {sample.id}, asking {sample.repeat + 1}, occurs twice"
        self._ids.add(key)
        self.requested += 1
        self._prompts[hashlib.sha256(sample.prompt.encode("utf-8", "replace")).digest()] += 1
        if sample.cluster is not None:
            self.clusters[sample.id] = sample.cluster
        self._add_categories(sample, key)
        if sample.options and sample.repeat == 0:  # each question once
            self._add_options(sample)
        if sample.prompt_tokens is not None:
            self.prompt_tokens += sample.prompt_tokens
        if sample.completion_tokens is not None:
            self.completion_tokens += sample.completion_tokens
        if sample.error is not None:
            self.failed.add(key)
            self.errors[one_line(sample.error)] += 1
            return None
        self._add_answer(sample, key)
        return None

    def _add_answer(self, sample: ForeignSample, key: SampleKey) -> None:
        """Count the values and problems of a sample without an error."""
        for metric, value in sample.values.items():
            self.values.setdefault(metric, {})[key] = value
        if self.main_metric not in sample.values:
            self.without_value += 1
        if sample.finish_reason == FinishReason.LENGTH:
            self.truncated += 1
        if sample.finish_reason == FinishReason.FILTERED:
            self.filtered += 1
        if sample.completion is None:
            return
        if not sample.completion.strip():
            self.empty += 1
        index = stated_option_index(sample)
        signs = signs_of(sample, index)
        if signs:
            self.signs[key] = signs
        if REFUSED in signs:
            self.refused += 1
        if UNPARSED in signs:
            self.unparsed += 1
        if sample.is_readable:
            self.readable += 1
            if index is None:
                self.unread += 1
            # An answer without a stated option (None) has the value 0.
            self.read_values[key] = float(index in sample.right_options)

    def _add_categories(self, sample: ForeignSample, key: SampleKey) -> None:
        """Add a sample to its groups; drop categories with too many values."""
        for name, value in sample.categories.items():
            if name in self._too_many:
                continue
            by_value = self.members.setdefault(name, {})
            by_value.setdefault(str(value), []).append(key)
            if len(by_value) > MAX_GROUPS:
                del self.members[name]
                self._too_many.add(name)

    def _add_options(self, sample: ForeignSample) -> None:
        """Add the scores that answers without a model have on a question."""
        if not sample.right_options:
            return
        self._with_options += 1
        for index in sample.right_options:
            self._always[chr(ord("A") + index)] += 1
        lengths = [len(option) for option in sample.options]
        if lengths.index(max(lengths)) in sample.right_options:
            self._longest += 1
        self._random += len(sample.right_options) / len(sample.options)

    def prompts_sha256(self) -> str:
        """Return a SHA-256 of all prompts, which does not depend on their order in the source."""
        digest = hashlib.sha256()
        for prompt, count in sorted(self._prompts.items()):
            digest.update(prompt)
            digest.update(count.to_bytes(8, "big"))
        return digest.hexdigest()

    @property
    def duplicates(self) -> int:
        """The number of questions whose prompt is also the prompt of an earlier question."""
        # Repeats may have different prompts: there can be more prompts than questions.
        return max(0, self.questions - len(self._prompts))

    @property
    def questions(self) -> int:
        """The number of different questions; repeats are not counted."""
        return len({key[0] for key in self._ids})

    def floor(self) -> Floor | None:
        """Return the best score that is possible without a model.

        Returns None if a question's options or right options are not known, or if the main metric
        has no values, or values other than 0 and 1.
        """
        questions = self.questions
        if not questions or self._with_options < questions:
            return None
        main = self.values.get(self.main_metric, {})
        if not main or not set(main.values()) <= {0.0, 1.0}:
            return None
        scores = {
            f"always {letter}": count / questions for letter, count in sorted(self._always.items())
        }
        scores["longest option"] = self._longest / questions
        scores["random"] = self._random / questions
        best = max(scores, key=lambda name: scores[name])
        return Floor(best, scores[best], questions, scores)

    def failures(self) -> tuple[FailureCause, ...]:
        """Return the most frequent errors with their counts, at most `MAX_CAUSES`."""
        causes = []
        for text, count in self.errors.most_common(MAX_CAUSES):
            causes.append(FailureCause(MODEL_ROLE, count, text, None))
        return tuple(causes)

    def instances(self) -> Instances:
        """Return the numbers of instances by outcome."""
        scored = self.requested - len(self.failed) - self.without_value
        return Instances(
            requested=self.requested,
            scored=scored,
            failed=len(self.failed),
            empty=self.empty,
            truncated=self.truncated,
            filtered=self.filtered,
            unparsed=self.unparsed,
            refused=self.refused,
            unreadable=self.unparsed,
        )


def question_means(values: Mapping[SampleKey, float]) -> dict[str, float]:
    """Return the mean value of each question over its repeats."""
    by_question: dict[str, list[float]] = {}
    for (question, _, _), value in values.items():
        by_question.setdefault(question, []).append(value)
    return {name: math.fsum(numbers) / len(numbers) for name, numbers in by_question.items()}
