"""What trivial answers score on the questions of a run, by HELM's own metrics, after the run's scores are written.

No request is sent: only metrics are computed that look at one answer and its references, of those that are known to
ask nobody, load no model and execute nothing. Juries and annotators are never asked; ehr_sql's queries are executed as
the model's are. It takes a tenth of the run's time at most; what was not scored by then is named.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.metrics.evaluate_reference_metrics import get_rouge_function
from helm.benchmark.metrics.metric import MetricSpec, create_metric
from helm.benchmark.metrics.metric_name import MetricName
from helm.benchmark.metrics.statistic import Stat
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.scenarios.scenario import CORRECT_TAG
from helm.common.request import GeneratedOutput, RequestResult

from eval_factory.core.this_process import Clock, OutOfTime, TimeLimit
from eval_factory.endpoint import media
from eval_factory.helm import names
from eval_factory.helm.environments import installed_upstream
from eval_factory.helm.metric_facts import OVERLAP, facts_of, is_score
from eval_factory.helm.trivial_answers import (
    VERSION,
    AskedQuestion,
    Strategy,
    StrategyScores,
    TrivialScores,
    read_trivial_scores,
    strategies,
    with_answer,
)
from eval_factory.helm_plugin.patches import sql_execution
from eval_factory.helm_plugin.session import raised_at
from eval_factory.tasks.custom_table import CLUSTER
from eval_factory.tasks.framework import ClusterRule, load_framework

SHARE = 10  # a run's time is this many times what may be spent here

_METRICS = "helm.benchmark.metrics."
BASIC = f"{_METRICS}basic_metrics.BasicGenerationMetric"
SUMMARIES = f"{_METRICS}summarization_metrics.SummarizationMetric"
SQL = f"{_METRICS}ehr_sql_metrics.EhrSqlMetric"
EXECUTED = frozenset({"pass", "code_eval_acc"})  # names of HELM's basic metrics that execute the answer
ROUGE = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}
"""HELM's name of a metric -> the rouge_score package's."""
_FORMS = {
    SQL: "sql",
    f"{_METRICS}medec_metrics.MedecMetric": "sentence",
    f"{_METRICS}medcalc_bench_metrics.MedCalcBenchMetric": "value",
    names.CONCORDANCE_METRIC_CLASS: "rating",
}
"""Metric -> the form in which its benchmark asks for answers, as framework.yml has it (`answer_form`)."""


def clock_for(run_spec: RunSpec) -> Clock:
    """What their time is measured by: of this thread on a processor, so that a busy machine leaves out nothing that an
    idle one computes. A query is executed by another process, which is waited for.
    """
    return time.monotonic if _executes(run_spec) else time.thread_time


def _executes(run_spec: RunSpec) -> bool:
    return any(spec.class_name == SQL for spec in run_spec.metric_specs)


def score_trivial_answers(
    run_spec: RunSpec, state: ScenarioState, service: Any, helm_dir: Path, limit: TimeLimit
) -> str | None:
    """Writes the file that `helm/trivial_answers.py` reads. Returns why it could not, where something went wrong.

    Args:
        state: the requests of the run; whether they were answered does not matter.
        service: HELM's own for metrics.
        limit: within which it has to be done.
    """
    try:
        with limit:
            made = _scored(run_spec, state, service, helm_dir, limit)
    except OutOfTime:
        made = TrivialScores(left_out=["all"])
    except Exception as error:  # floors are worth no failed run, whatever HELM's metrics make of these answers
        made = TrivialScores(error=f"{type(error).__name__} in {raised_at(error)}")
    made = replace(made, run=run_spec.name, limit_s=limit.seconds, spent_s=limit.spent)
    try:
        made.write(helm_dir)
    except (OSError, ValueError) as error:
        return made.error or f"{type(error).__name__}: it could not be written down"
    return made.error


def _scored_before(helm_dir: Path, sha256: str) -> dict[str, StrategyScores]:
    """Of the same questions."""
    before = read_trivial_scores(helm_dir)
    if before is None or before.data_sha256 != sha256:
        return {}
    return {scored.name: scored for scored in before.strategies}


def _is_scored(spec: MetricSpec) -> bool:
    measures = spec.args.get("names", [])
    basic = spec.class_name == BASIC and bool(measures) and not EXECUTED.intersection(measures)
    return basic or spec.class_name in _FORMS or spec.class_name == SUMMARIES


def _measures_overlap(spec: MetricSpec) -> bool:
    return spec.class_name == SUMMARIES or any(facts_of(name) is OVERLAP for name in spec.args.get("names", []))


def _input_text(instance: Any) -> str:
    content = instance.input.multimedia_content
    objects = [one.to_dict() for one in content.media_objects] if content else ()
    return str(instance.input.text) or media.as_text(objects)


def _question_of(one: RequestState, sources: ClusterRule) -> AskedQuestion:
    text = _input_text(one.instance)
    source = sources.found_in(text, one.instance.extra_data or {})
    return AskedQuestion(str(one.instance.id), _right(one), one.output_mapping or {}, text, source)


def _scored(run_spec: RunSpec, state: ScenarioState, service: Any, helm_dir: Path, limit: TimeLimit) -> TrivialScores:
    specs = list(filter(_is_scored, run_spec.metric_specs))
    asked = _asked(state.request_states)
    if not specs or not asked:
        return TrivialScores()
    # How the source is found that questions share: as framework.yml says, else by a field of a custom benchmark.
    name, known = run_spec.name.partition(":")[0], load_framework().evaluations
    declared = (task.helm.cluster for task in known if task.helm.run_spec == name and task.helm.cluster is not None)
    sources = next(declared, ClusterRule(what=CLUSTER, field=CLUSTER))
    sha256 = _sha256(run_spec, specs, sources, asked, limit)
    from eval_factory.tasks.errata import known_floors  # needs pydantic; all answers are there by now

    if known_floors(sha256) is not None:
        return TrivialScores(data_sha256=sha256, known=True)
    form = next((_FORMS[spec.class_name] for spec in specs if spec.class_name in _FORMS), None)
    questions = [_question_of(one, sources) for one in asked]
    found = strategies(questions, form, by=sources.what, overlap=any(map(_measures_overlap, specs)))
    done = _scored_before(helm_dir, sha256)
    metrics = [_Overlap() if spec.class_name == SUMMARIES else create_metric(spec) for spec in specs]
    scorer = _Scorer(metrics, run_spec, service, asked, limit)
    for strategy in found:
        try:
            if strategy.name not in done:
                done[strategy.name] = scorer.score(strategy)
        except OutOfTime:
            break
    return TrivialScores(
        data_sha256=sha256,
        lower_is_better=sorted(
            {one.name for metric in metrics for one in metric.get_metadata() if one.lower_is_better}
        ),
        questions=[(str(one.instance.id), one.train_trial_index, one.instance.split) for one in asked],
        strategies=list(done.values()),
        left_out=[strategy.name for strategy in found if strategy.name not in done],
    )


class _Overlap:
    """ROUGE as HELM's metric of summaries has it: the best over all references, without a brace at an end.

    What else that metric does is left out: it looks the answer up in a download, counts what was copied of the source,
    and loads models where there is a GPU.
    """

    def __init__(self) -> None:
        self._scorers = {name: get_rouge_function(kind) for name, kind in ROUGE.items()}

    def evaluate_generation(self, _adapter: Any, state: RequestState, *_: Any) -> list[Stat]:
        answer = _without_braces(state.result.completions[0].text.strip() if state.result else "")
        texts = [_without_braces(one.output.text) for one in state.instance.references]
        return [
            Stat(MetricName(name)).add(max(float(scorer(text, answer)) for text in texts))
            for name, scorer in self._scorers.items()
        ]

    def get_metadata(self) -> list[Any]:
        return []


def _without_braces(text: str) -> str:
    return text.removeprefix("{").removesuffix("}")


def _asked(states: Sequence[RequestState]) -> list[RequestState]:
    """One request for each instance: of one trial, not perturbed, for text, not for an option or the prompt alone."""
    found: dict[str, RequestState] = {}
    for state in states:
        plain = state.reference_index is None and state.instance.perturbation is None and state.request.max_tokens != 0
        if plain and state.instance.references:
            found.setdefault(str(state.instance.id), state)
    return list(found.values())


def _right(state: RequestState) -> tuple[str, ...]:
    return tuple(one.output.text for one in state.instance.references if CORRECT_TAG in one.tags)


def _sha256(
    run_spec: RunSpec, specs: Sequence[Any], sources: ClusterRule, asked: Sequence[RequestState], limit: TimeLimit
) -> str:
    """Of all that the floors depend on: what is asked and what is right, but not how the prompt is made of it.

    Queries are executed on a database; of that its size and time are taken.
    """
    adapter = run_spec.adapter_spec
    found = hashlib.sha256()
    name = run_spec.name.partition(":")[0]
    head = [VERSION, version(installed_upstream().package), name, adapter.method, adapter.output_mapping_pattern]
    metrics = [
        [spec.class_name, spec.args, sql_execution.database_state() if spec.class_name == SQL else None]
        for spec in specs
    ]
    found.update(json.dumps([*head, metrics, sources.what, sources.field, sources.text], sort_keys=True).encode())
    for state in asked:
        limit.check()
        instance = state.instance
        references = [[one.output.text, one.tags] for one in instance.references]
        asked_as = [instance.id, instance.split, _input_text(instance)]
        parts = [*asked_as, references, state.output_mapping, instance.extra_data]
        found.update(json.dumps(parts, sort_keys=True, default=str).encode())
    return found.hexdigest()


def _expected(each: Sequence[dict[str, float]]) -> dict[str, float]:
    """Where the answer is any of several, as likely one as another: the mean of what all of them have."""
    if len(each) == 1:
        return each[0]
    shared = [name for name in each[0] if all(name in row for row in each)]
    return {name: sum(row[name] for row in each) / len(each) for name in shared}


class _Scorer:
    """HELM's metrics of one run, for other answers."""

    def __init__(
        self, metrics: Sequence[Any], run_spec: RunSpec, service: Any, asked: Sequence[RequestState],
        limit: TimeLimit,
    ) -> None:  # fmt: skip
        self._metrics, self._adapter, self._service, self._limit = metrics, run_spec.adapter_spec, service, limit
        from helm.benchmark.metrics import basic_metrics  # imported here: it takes a while, and is not always needed

        self._basic, self._asked = basic_metrics, asked
        self._known: dict[tuple[int, str], dict[str, float]] = {}
        """Question and answer -> values: letters are answered more than once."""
        self._all_basic = all(type(metric) is basic_metrics.BasicGenerationMetric for metric in metrics)
        self._alike = self._first_alike()
        self._executes = _executes(run_spec)

    def score(self, strategy: Strategy) -> StrategyScores:
        """Raises OutOfTime."""
        constant = strategy.constant
        annotation = None
        if self._executes and constant is not None:
            annotation = sql_execution.query_annotation_of(constant)
        rows = []
        for number, likely in zip(self._alike, strategy.answers, strict=True):
            self._limit.check()
            rows.append(_expected([self._row(number, answer, annotation) for answer in likely]))
        measured = dict.fromkeys(chain.from_iterable({id(row): row for row in rows}.values()))
        columns = {name: [row.get(name) for row in rows] for name in measured}
        one_each = all(len(likely) == 1 for likely in strategy.answers)
        answers = [likely[0] for likely in strategy.answers] if one_each and constant is None else None
        return StrategyScores(
            name=strategy.name, answer=constant, answers=answers, annotation=annotation, values=columns
        )

    def _row(self, number: int, answer: str, annotation: dict[str, Any] | None) -> dict[str, float]:
        key = number, self._as_read(self._asked[number], answer)
        if key not in self._known:
            asked = self._asked[number]
            completions = [GeneratedOutput(answer, 0.0, [])]
            result = RequestResult(success=True, embedding=[], completions=completions, cached=True)
            state = replace(asked, result=result)
            if annotation is not None:
                of_model = asked.annotations or {}
                changed = {**of_model, "ehr_sql": with_answer(of_model.get("ehr_sql", {}), annotation)}
                state = replace(state, annotations=changed)
            self._known[key] = self._values(state)
        return self._known[key]

    def _first_alike(self) -> list[int]:
        """Of each question the first that has the same values: HELM's basic metrics look at what is right, and at the
        options; others at anything."""
        if not self._all_basic:
            return list(range(len(self._asked)))
        first: dict[Any, int] = {}
        return [
            first.setdefault((_right(state), options if options is None else tuple(options.items())), number)
            for number, (state, options) in enumerate((state, state.output_mapping) for state in self._asked)
        ]

    def _as_read(self, state: RequestState, answer: str) -> str:
        """To HELM's basic metrics, whatever names no option is nothing."""
        options = state.output_mapping
        is_nothing = self._all_basic and options is not None and not self._adapter.output_mapping_pattern
        return "" if is_nothing and answer.strip() not in (options or {}) else answer

    def _values(self, state: RequestState) -> dict[str, float]:
        stats: list[Stat] = []
        for metric in self._metrics:
            if isinstance(metric, self._basic.BasicGenerationMetric):
                # Without what is about time and tokens: that is the greater part of the metric's work.
                stats += self._basic.compute_reference_metrics(metric.names, self._adapter, state, self._service)
            else:
                stats += metric.evaluate_generation(self._adapter, state, self._service, "")
        return {
            stat.name.name: float(stat.mean) for stat in stats if stat.mean is not None and is_score(stat.name.name)
        }
