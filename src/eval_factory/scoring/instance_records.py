"""Yields the record of each instance of a run, with all facts about its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eval_factory.core.results import InstanceRecord
from eval_factory.helm import output
from eval_factory.helm.criteria import decision_signs
from eval_factory.helm.injection_signs import find_injection_signs
from eval_factory.helm.output import categories_of
from eval_factory.scoring import journal
from eval_factory.scoring.journal import UNKNOWN_ANSWER
from eval_factory.scoring.readability import Readability
from eval_factory.scoring.request_states import (
    answer_text_of,
    finish_reason_of,
    has_failed,
    key_of,
    media_of,
    prompt_of,
)
from eval_factory.scoring.rubric import RubricTally
from eval_factory.scoring.scores import InstanceKey, MetricValues, is_judged
from eval_factory.scoring.tally import Tally


@dataclass(frozen=True)
class InstanceRecords:
    """An iterable of the records of all instances. Each iteration reads HELM's output again.

    Attributes:
        run: HELM's output.
        metrics: the values of each metric.
        answers: the answers in the cache.
        tally: the instances with each kind of answer, such as empty or unjudged answers.
        jury_metric: the name of the jury's metric; None if the run has no jury.
        readability: the signs of answers, such as answers that a metric cannot read.
        judges: dict from a judge's role to the judge's name in HELM's annotations.
        rubric: the decisions on criteria; None if the task has no rubric.
    """

    run: output.HelmRun
    metrics: Sequence[MetricValues]
    answers: journal.StoredAnswers
    tally: Tally
    jury_metric: str | None
    readability: Readability
    judges: Mapping[str, str] = field(default_factory=dict)
    rubric: RubricTally | None = None

    def __iter__(self) -> Iterator[InstanceRecord]:
        """Yield the record of each instance, in the order of HELM's output."""
        return map(self._record, self.run.request_states())

    def _record(self, state: output.RequestState) -> InstanceRecord:
        """Return the record of one instance."""
        key = key_of(state)
        _, _, perturbation = key
        result = state.result
        answer = self.answers.answer_to(state) or UNKNOWN_ANSWER
        prompt_tokens, completion_tokens = answer.tokens
        completion = None
        metrics = {}
        scores_by_judge = {}
        judgements = {}
        if not has_failed(state):
            if result and result.completions:
                completion = result.completions[0].text
            metrics = self._metrics_of(key)
            scores_by_judge = self._scores_by_judge(key)
            judgements = self._judgements_in(state)
        signs = self.readability.signs_of(key)
        if key in self.tally.empty:
            signs = ("empty", *signs)
        categories = categories_of(state.instance)
        criteria: tuple[dict[str, Any], ...] = ()
        if self.rubric is not None:
            # A field of the instance itself takes precedence over a field of the rubric.
            categories = {**self.rubric.tag_fields_of(key), **categories}
            criteria = self.rubric.criteria_in(state)
        error = None
        if result and not result.success:
            error = result.error
        # The folder of a run is HELM_DIR/runs/SUITE/RUN.
        helm_dir = self.run.folder.parents[2]
        return InstanceRecord(
            id=state.instance.id,
            split=state.instance.split or "",  # HELM permits instances without a split
            sub_split=state.instance.sub_split,
            trial=state.train_trial_index,
            perturbation=perturbation,
            prompt=prompt_of(state),
            references=tuple(map(_reference_record, state.instance.references)),
            categories=categories,
            completion=completion,
            metrics=metrics,
            finish_reason=finish_reason_of(state),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            latency_s=answer.latency_s,
            cached=bool(result and result.cached),
            error=error,
            judges=scores_by_judge,
            unjudged=key in self.tally.unjudged,
            injection=self._injection_in(answer_text_of(state)),
            signs=signs,
            cluster=self.tally.clusters.get(state.instance.id),
            turns=self.answers.messages_of(state),
            media=media_of(state, helm_dir),
            reasoning=self.answers.thinking_before(answer),
            judgements=judgements,
            criteria=criteria,
        )

    def _scores_by_judge(self, key: InstanceKey) -> dict[str, float]:
        """Return each judge's score of an instance.

        With a rubric, this is the score by the judge's decisions; otherwise, it is the mean of the
        judge's ratings.
        """
        if self.rubric is None:
            return self.tally.ratings.mean_by_judge(key)
        return self.rubric.scores_by_judge(key)

    def _metrics_of(self, key: InstanceKey) -> dict[str, float]:
        """Return the instance's value in each metric.

        A judged metric is left out if no judge scored the instance.
        """
        values = {}
        for metric in self.metrics:
            unjudged = key in self.tally.unjudged and is_judged(metric, self.jury_metric)
            if key in metric.values and not unjudged:
                values[metric.name] = metric.values[key]
        return values

    def _judgements_in(self, state: output.RequestState) -> dict[str, Any]:
        """Return the jury's judgements in HELM's annotations, by judge; none without a jury."""
        judgements: dict[str, Any] = {}
        if self.run.jury is None:
            return judgements
        for judge, name in self.judges.items():
            judgement = output.judgement_of(state.annotations, self.run.jury, name)
            if judgement:
                judgements[judge] = judgement
        return judgements

    def _injection_in(self, answer: str) -> tuple[str, ...]:
        """Return the signs that an answer tries to influence its judges; none without judges."""
        if self.rubric is not None:
            return tuple(decision_signs(answer))
        if self.run.jury:
            return tuple(find_injection_signs(answer))
        return ()


def _reference_record(reference: output.Reference) -> dict[str, Any]:
    return {"text": reference.output.text, "tags": reference.tags}
