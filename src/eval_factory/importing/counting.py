"""Counts the samples of another program's run in one pass.

The counts contain the values by metric, the numbers of problems, the groups, and the scores that
are possible without a model. The reader (`reading/`) finds the option that an answer states.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.finish_reasons import FinishReason
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import FailureCause, Floor, Instances, Score
from eval_factory.importing.foreign_run import MAX_OPTIONS, ForeignSample
from eval_factory.reading import is_refusal, stated_option
from eval_factory.scoring.intervals import PROPORTION, describe

SPLIT = "test"  # the split of all imported instances
READER_METRIC = "exact_match.lenient"
"""The metric of the reader: the share of answers that state a right option. It has the same name in
results of eval-factory's own runs.
"""
# id of the question, repeat, perturbation; as `InstanceKey` in scoring/scores.py
SampleKey = tuple[str, int, str | None]
# A category of questions with more than this number of values (such as an id) makes no groups.
MAX_GROUPS = 40
MAX_CAUSES = 20  # the maximum number of causes of failures in a result
# The signs of an answer: the model declines to answer, or the answer states none of the options.
REFUSED = "refused"
UNPARSED = "unparsed"


def sample_key_of(sample: ForeignSample) -> SampleKey:
    """Return the key of a sample, which has no perturbation."""
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


def signs_of(sample: ForeignSample, stated_index: int | None) -> tuple[str, ...]:
    """Return the sign of an answer in a tuple, which is empty if the answer has no sign.

    An answer that refuses has the sign `REFUSED`. Another answer to a question with known right
    options that states none of the options has the sign `UNPARSED`. A blank answer has no sign.

    Args:
        sample: the answer.
        stated_index: the index of the stated option, from `stated_option_index`.
    """
    answer = sample.completion or ""
    if stated_index is not None or not answer.strip():
        return ()
    if is_refusal(answer):
        return (REFUSED,)
    if sample.is_comparable:
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
    # answers to questions with lettered options of which a right option is known
    comparable: int = 0
    # comparable answers in which the reader finds no option; includes refusals and empty answers
    comparable_without_option: int = 0
    refused: int = 0  # answers with the sign `REFUSED`
    unparsed: int = 0  # answers with the sign `UNPARSED`
    prompt_tokens: int = 0
    completion_tokens: int = 0
    values: dict[str, dict[SampleKey, float]] = field(default_factory=dict)  # metric -> values
    # for each comparable answer: 1 if the reader finds a right option, else 0
    reader_values: dict[SampleKey, float] = field(default_factory=dict)
    signs: dict[SampleKey, tuple[str, ...]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)  # message -> number of samples
    # category -> value of the category -> samples
    members: dict[str, dict[str, list[SampleKey]]] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)  # question -> cluster
    # categories with more than `MAX_GROUPS` values
    _dropped_categories: set[str] = field(default_factory=set)
    # SHA-256 of a prompt -> number of samples with this prompt
    _prompts: Counter[bytes] = field(default_factory=Counter)
    _keys: set[SampleKey] = field(default_factory=set)
    _with_right_options: int = 0  # the number of questions whose right options are known
    # For three ways to answer without a model: the number of questions answered rightly.
    # letter -> number, if every answer is this letter
    _right_if_always: Counter[str] = field(default_factory=Counter)
    _right_if_longest: int = 0  # if every answer is the longest option
    _right_if_random: float = 0.0  # the expected number, if every answer is a random option

    def add(self, sample: ForeignSample) -> str | None:
        """Count one sample; or return an error message if its key was counted before."""
        key = sample_key_of(sample)
        if key in self._keys:
            return f"question {sample.id}, asking {sample.repeat + 1}, occurs twice"
        self._keys.add(key)
        self.requested += 1
        prompt = sample.prompt.encode("utf-8", "replace")  # UTF-8 cannot encode lone surrogates
        self._prompts[hashlib.sha256(prompt).digest()] += 1
        if sample.cluster is not None:
            self.clusters[sample.id] = sample.cluster
        self._add_categories(sample, key)
        if sample.repeat == 0:  # a repeat has the same options
            self._add_answers_without_model(sample)
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
        stated_index = stated_option_index(sample)
        signs = signs_of(sample, stated_index)
        if signs:
            self.signs[key] = signs
        if REFUSED in signs:
            self.refused += 1
        if UNPARSED in signs:
            self.unparsed += 1
        if sample.is_comparable:
            self.comparable += 1
            if stated_index is None:
                self.comparable_without_option += 1
            # If the answer states no option, `stated_index` is None, and the value is 0.
            self.reader_values[key] = float(stated_index in sample.right_options)

    def _add_categories(self, sample: ForeignSample, key: SampleKey) -> None:
        """Add a sample to its groups; drop a category that has too many values."""
        for name, value in sample.categories.items():
            if name in self._dropped_categories:
                continue
            by_value = self.members.setdefault(name, {})
            by_value.setdefault(str(value), []).append(key)
            if len(by_value) > MAX_GROUPS:
                del self.members[name]
                self._dropped_categories.add(name)

    def _add_answers_without_model(self, sample: ForeignSample) -> None:
        """Count the ways to answer without a model that answer this question rightly."""
        if not sample.options or not sample.right_options:
            return
        self._with_right_options += 1
        for index in sample.right_options:
            self._right_if_always[chr(ord("A") + index)] += 1
        lengths = [len(option) for option in sample.options]
        if lengths.index(max(lengths)) in sample.right_options:
            self._right_if_longest += 1
        self._right_if_random += len(sample.right_options) / len(sample.options)

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
        # If repeats of a question have different prompts, there can be more prompts than questions.
        return max(0, self.questions - len(self._prompts))

    @property
    def questions(self) -> int:
        """The number of different questions; repeats are not counted."""
        return len({question for question, _, _ in self._keys})

    def floor(self) -> Floor | None:
        """Return the best score that is possible without a model.

        Returns None if the right options of a question are not known. Returns None too if the main
        metric has no values, or values other than 0 and 1.
        """
        questions = self.questions
        if not questions or self._with_right_options < questions:
            return None
        main = self.values.get(self.main_metric, {})
        is_right_or_wrong = set(main.values()) <= {0.0, 1.0}
        if not main or not is_right_or_wrong:
            return None
        scores = {}
        for letter, count in sorted(self._right_if_always.items()):
            scores[f"always {letter}"] = count / questions
        scores["longest option"] = self._right_if_longest / questions
        scores["random"] = self._right_if_random / questions
        best = max(scores, key=lambda name: scores[name])
        return Floor(best, scores[best], instances=questions, answers=scores)

    def failures(self) -> tuple[FailureCause, ...]:
        """Return the most frequent errors with their counts, at most `MAX_CAUSES`."""
        causes = []
        for text, count in self.errors.most_common(MAX_CAUSES):
            causes.append(FailureCause(MODEL_ROLE, count, text, hint=None))
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
            # An imported result has no other kinds of unreadable answers than unparsed answers.
            unreadable=self.unparsed,
        )


def question_means(values: Mapping[SampleKey, float]) -> dict[str, float]:
    """Return the mean value of each question over its repeats."""
    by_question: dict[str, list[float]] = {}
    for (question, _, _), value in values.items():
        by_question.setdefault(question, []).append(value)
    return {
        question: math.fsum(repeats) / len(repeats) for question, repeats in by_question.items()
    }


def reader_score(means: Mapping[str, float], clusters: Sequence[str] | None) -> Score:
    """Return the score `READER_METRIC`.

    Args:
        means: the mean of the reader's values by question.
        clusters: the cluster of each question in `means`; None if there are no clusters.
    """
    stats = describe(list(means.values()), scale=PROPORTION, clusters=clusters)
    return Score(
        stats.mean,
        stats,
        READER_METRIC,
        SPLIT,
        higher_is_better=True,
        scale=PROPORTION,
        unit="share",
    )
