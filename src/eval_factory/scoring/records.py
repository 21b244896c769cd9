"""Every instance of a run with all that is known about its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core.results import InstanceRecord
from eval_factory.helm import output
from eval_factory.helm.criteria import decision_signs
from eval_factory.helm.judge_output import injection_signs
from eval_factory.helm.output import categories_of
from eval_factory.scoring.journal import StoredAnswers
from eval_factory.scoring.readability import Readability
from eval_factory.scoring.request_states import finish_reason_of, has_failed, key_of, media_of, prompt_of, text_of
from eval_factory.scoring.rubric import RubricTally
from eval_factory.scoring.scores import MetricValues, is_judged
from eval_factory.scoring.tally import Tally


@dataclass(frozen=True)
class InstanceRecords:
    """Every instance with all that is known about its answer, read again each time."""

    run: output.HelmRun
    metrics: Sequence[MetricValues]
    answers: StoredAnswers
    tally: Tally
    jury_metric: str | None
    readability: Readability
    judges: Mapping[str, str] = field(default_factory=dict)  # judge -> its name in HELM's annotations
    rubric: RubricTally | None = None

    def __iter__(self) -> Iterator[InstanceRecord]:
        return map(self._record, self.run.request_states())

    def _record(self, state: output.RequestState) -> InstanceRecord:
        key, result, failed = key_of(state), state.result, has_failed(state)
        answer, jury, rubric = self.answers.to(state), self.run.jury, self.rubric
        tokens = answer.tokens if answer else (None, None)
        unjudged = key in self.tally.unjudged
        metrics, judges, judgements = {}, {}, {}
        if not failed:
            metrics = {
                metric.name: metric.values[key]
                for metric in self.metrics
                if key in metric.values and not (unjudged and is_judged(metric, self.jury_metric))
            }
            judges = self.tally.ratings.means_of(key) if rubric is None else rubric.scores_by_judge(key)
        if not failed and jury is not None:
            said = {judge: output.judgement_of(state.annotations, jury, name) for judge, name in self.judges.items()}
            judgements = {judge: judgement for judge, judgement in said.items() if judgement}
        signs_of = decision_signs if rubric is not None else injection_signs if jury else lambda _text: ()
        return InstanceRecord(
            id=state.instance.id,
            split=state.instance.split or "",
            sub_split=state.instance.sub_split,
            trial=state.train_trial_index,
            perturbation=key[2],
            prompt=prompt_of(state),
            references=tuple({"text": r.output.text, "tags": r.tags} for r in state.instance.references),
            categories={**({} if rubric is None else rubric.fields_of(key)), **categories_of(state.instance)},
            completion=None if failed or not result or not result.completions else result.completions[0].text,
            metrics=metrics,
            finish_reason=finish_reason_of(state),
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            latency_s=answer.latency_s if answer else None,
            cached=bool(result and result.cached),
            error=result.error if result and not result.success else None,
            judges=judges,
            unjudged=unjudged,
            injection=tuple(signs_of(text_of(state))),
            signs=("empty",) * (key in self.tally.empty) + self.readability.signs_of(key),
            cluster=self.tally.clusters.get(state.instance.id),
            turns=self.answers.turns_of(state),
            media=media_of(state, self.run.folder.parents[2]),
            reasoning=self.answers.thought_of(answer),
            judgements=judgements,
            criteria=() if rubric is None else rubric.criteria_in(state),
        )
