"""Scores trivial answers to the questions of a run with HELM's own metrics.

A trivial answer needs no model, such as an empty text or always the same letter
(`helm/trivial_answers.py`). The best scores of trivial answers are the floors of the run's scores.
They are computed after the run's scores, without any request.

A metric is computed only if it looks at one answer and its references. It must also be known to ask
no judge, load no model and execute no code. An exception is ehr_sql: a trivial query is executed
like the model's queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.metrics.evaluate_reference_metrics import get_rouge_function
from helm.benchmark.metrics.metric import MetricSpec, create_metric
from helm.benchmark.metrics.metric_name import MetricName
from helm.benchmark.metrics.statistic import Stat
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.scenarios.scenario import CORRECT_TAG
from helm.common.request import GeneratedOutput, RequestResult

from eval_factory.endpoint import media
from eval_factory.helm import names
from eval_factory.helm import trivial_answers as trivial
from eval_factory.helm.metric_facts import OVERLAP, is_score, metric_facts_of
from eval_factory.helm_plugin.error_causes import raised_at
from eval_factory.helm_plugin.patches import executed_queries
from eval_factory.tasks.custom_table import CLUSTER_FIELD
from eval_factory.tasks.framework import ClusterRule, load_framework

_METRICS = "helm.benchmark.metrics."
BASIC = f"{_METRICS}basic_metrics.BasicGenerationMetric"
SUMMARIES = f"{_METRICS}summarization_metrics.SummarizationMetric"
SQL = f"{_METRICS}ehr_sql_metrics.EhrSqlMetric"
EXECUTED = frozenset({"pass", "code_eval_acc"})
"""Names of HELM's basic metrics that execute the answer as code."""
ROUGE = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}
"""A dict from HELM's name of a metric to its name in the package rouge_score."""
_FORMS = {
    SQL: "sql",
    f"{_METRICS}medec_metrics.MedecMetric": "sentence",
    f"{_METRICS}medcalc_bench_metrics.MedCalcBenchMetric": "value",
    names.CONCORDANCE_METRIC_CLASS: "rating",
}
"""A dict from a metric's class to the form in which the metric's benchmark asks for answers. The
forms are the values of `answer_form` in framework.yml.
"""


def score_trivial_answers(
    run_spec: RunSpec, state: ScenarioState, service: Any, helm_dir: Path
) -> None:
    """Write the scores of trivial answers into the file that `helm/trivial_answers.py` reads.

    If scoring fails, the file holds the error instead, and the run goes on.

    Args:
        run_spec: the run spec of the run.
        state: the answered requests of the run.
        service: HELM's metric service.
        helm_dir: HELM's output folder, in which the file is written.
    """
    try:
        scores = _score_questions(run_spec, state, service)
    except Exception as error:
        # HELM's metrics may raise any error for a trivial answer, and the run must not fail then.
        scores = trivial.TrivialScores(error=f"{type(error).__name__} in {raised_at(error)}")
    with suppress(OSError):  # Without the file, the result has no floors.
        replace(scores, run=run_spec.name).write(helm_dir)


def _is_scored(spec: MetricSpec) -> bool:
    """Return True if trivial answers can be scored by this metric without any request."""
    score_names = spec.args.get("names", [])
    if spec.class_name == BASIC:
        return bool(score_names) and not EXECUTED.intersection(score_names)
    return spec.class_name in (*_FORMS, SUMMARIES)


def _measures_overlap(spec: MetricSpec) -> bool:
    """Return True if a metric measures how many words an answer shares with a reference."""
    if spec.class_name == SUMMARIES:
        return True
    return any(metric_facts_of(name) is OVERLAP for name in spec.args.get("names", []))


def _question_of(state: RequestState, source_rule: ClusterRule) -> trivial.AskedQuestion:
    """Return the question of a request, as the strategies for trivial answers read it."""
    content = state.instance.input.multimedia_content
    media_objects = content.media_objects if content else []
    media_parts = [part.to_dict() for part in media_objects]
    text = str(state.instance.input.text) or media.as_text(media_parts)
    return trivial.AskedQuestion(
        id=str(state.instance.id),
        right=_right_texts(state),
        options=state.output_mapping or {},
        text=text,
        source=source_rule.value_in(text, state.instance.extra_data or {}),
    )


def _score_questions(
    run_spec: RunSpec, state: ScenarioState, service: Any
) -> trivial.TrivialScores:
    """Return the scores of all strategies for trivial answers.

    The scores are empty if no metric of the run can score trivial answers.
    """
    specs = list(filter(_is_scored, run_spec.metric_specs))
    states = _first_requests(state.request_states)
    if not specs or not states:
        return trivial.TrivialScores()
    source_rule = _source_rule_of(run_spec.name.partition(":")[0])
    # A benchmark asks for answers in at most one of these forms.
    forms = [_FORMS[spec.class_name] for spec in specs if spec.class_name in _FORMS]
    strategies = trivial.strategies(
        [_question_of(asked_state, source_rule) for asked_state in states],
        form=forms[0] if forms else None,
        source_noun=source_rule.what,
        compares_words=any(map(_measures_overlap, specs)),
    )
    metrics = []
    for spec in specs:
        if spec.class_name == SUMMARIES:
            metrics.append(_RougeMetric())
        else:
            metrics.append(create_metric(spec))
    executes = any(spec.class_name == SQL for spec in specs)
    scorer = _Scorer(metrics, run_spec.adapter_spec, service, states, executes=executes)
    questions = []
    for asked_state in states:
        instance = asked_state.instance
        questions.append((str(instance.id), asked_state.train_trial_index, instance.split))
    return trivial.TrivialScores(
        lower_is_better=sorted(chain.from_iterable(map(_lower_is_better, metrics))),
        questions=questions,
        strategies=[scorer.score(strategy) for strategy in strategies],
    )


def _source_rule_of(run_spec: str) -> ClusterRule:
    """Return the rule that finds the source of a question, such as an article.

    The rule comes from framework.yml if framework.yml has a rule for the run spec. For every other
    run spec, the rule reads the column in which custom benchmarks state the source.
    """
    for task in load_framework().evaluations:  # the tasks of framework.yml
        if task.helm.run_spec == run_spec and task.helm.cluster is not None:
            return task.helm.cluster
    return ClusterRule(what=CLUSTER_FIELD, field=CLUSTER_FIELD)


def _lower_is_better(metric: Any) -> set[str]:
    """Return the names of a metric's scores for which lower values are better."""
    names_of_scores = set()
    try:
        for entry in metric.get_metadata():
            if entry.lower_is_better:
                names_of_scores.add(entry.name)
    except (NotImplementedError, AttributeError):
        # The metric has no metadata, as for example eval-factory's own metrics.
        return set()
    return names_of_scores


class _RougeMetric:
    """The ROUGE scores of HELM's metric of summaries.

    A score is the best score over all references. As in HELM, one brace at each end of a text is
    ignored. The other scores of HELM's metric are left out. They look the answer up in a downloaded
    table, measure how much was copied from the source, and load models if there is a GPU.
    """

    def __init__(self) -> None:
        self._scorers = {name: get_rouge_function(kind) for name, kind in ROUGE.items()}

    def evaluate_generation(self, _adapter: Any, state: RequestState, *_: Any) -> list[Stat]:
        answer = ""
        if state.result:
            answer = _without_braces(state.result.completions[0].text.strip())
        texts = [_without_braces(reference.output.text) for reference in state.instance.references]
        stats = []
        for name, scorer in self._scorers.items():
            best = max(float(scorer(text, answer)) for text in texts)
            stats.append(Stat(MetricName(name)).add(best))
        return stats


def _without_braces(text: str) -> str:
    return text.removeprefix("{").removesuffix("}")


def _first_requests(states: Sequence[RequestState]) -> list[RequestState]:
    """Return the first request of each instance that has references.

    Requests about a single reference, requests of perturbed instances, and requests that ask for no
    tokens are skipped.
    """
    by_instance: dict[str, RequestState] = {}
    for state in states:
        is_plain = (
            state.reference_index is None
            and state.instance.perturbation is None
            and state.request.max_tokens != 0
        )
        if is_plain and state.instance.references:
            by_instance.setdefault(str(state.instance.id), state)
    return list(by_instance.values())


def _right_texts(state: RequestState) -> tuple[str, ...]:
    return tuple(
        reference.output.text
        for reference in state.instance.references
        if CORRECT_TAG in reference.tags
    )


def _mean_row(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each score that all rows have; a row is a dict from names to scores.

    The rows are the scores of several equally likely answers, so a mean is the expected score.
    """
    if len(rows) == 1:
        return rows[0]
    means = {}
    for name in rows[0]:
        if all(name in row for row in rows):
            means[name] = sum(row[name] for row in rows) / len(rows)
    return means


class _Scorer:
    """A scorer that computes HELM's metrics of one run for answers that the model did not give."""

    def __init__(
        self,
        metrics: Sequence[Any],
        adapter: AdapterSpec,
        service: Any,
        states: Sequence[RequestState],
        *,
        executes: bool,
    ) -> None:
        """Make a scorer.

        Args:
            metrics: the metrics to compute.
            adapter: the adapter of the run.
            service: HELM's metric service.
            states: one request for each question, in the order of the strategies' answers.
            executes: True if an annotator executes the answer and a metric reads the annotation.
        """
        # Imported late, because the import is slow and not always needed.
        from helm.benchmark.metrics import basic_metrics

        self._metrics = metrics
        self._adapter = adapter
        self._service = service
        self._states = states
        self._basic = basic_metrics
        self._executes = executes
        self._all_basic = all(
            type(metric) is basic_metrics.BasicGenerationMetric for metric in metrics
        )
        # A cache of rows of scores, because several strategies give the same letter as an answer.
        self._rows_by_key: dict[Any, dict[str, float]] = {}

    def score(self, strategy: trivial.Strategy) -> trivial.StrategyScores:
        """Return the scores of a strategy's answers to all questions."""
        constant = strategy.constant
        annotation = None
        if self._executes and constant is not None:
            annotation = executed_queries.query_annotation_of(constant)
        rows = []  # a row is a dict from the name of a score to the score of one question
        for number, candidates in enumerate(strategy.answers):
            # `candidates` are the equally likely answers to one question.
            row = _mean_row([self._row(number, answer, annotation) for answer in candidates])
            rows.append(row)
        # A dict instead of a set, because a dict has the names in the order of the rows.
        names_of_scores = dict.fromkeys(chain.from_iterable(rows))
        columns = {name: [row.get(name) for row in rows] for name in names_of_scores}
        # The answers are stored if the strategy is not one constant answer, and has exactly one
        # answer to each question.
        answers = None
        if constant is None and all(len(candidates) == 1 for candidates in strategy.answers):
            answers = [candidates[0] for candidates in strategy.answers]
        return trivial.StrategyScores(
            name=strategy.name,
            answer=constant,
            answers=answers,
            annotation=annotation,
            values=columns,
        )

    def _row(self, number: int, answer: str, annotation: dict[str, Any] | None) -> dict[str, float]:
        """Return a dict from the name of each score to the score of an answer to one question.

        Args:
            number: the index of the question in the list of requests.
            answer: the answer to score.
            annotation: the annotation of an executed answer; None if no answer is executed.
        """
        state = self._states[number]
        # HELM's basic metrics read only a few things of a question, so equal answers to different
        # questions may share their scores. Other metrics may read anything.
        key: Any = (number, answer)
        if self._all_basic:
            key = self._score_key(state, answer)
        if key not in self._rows_by_key:
            completions = [GeneratedOutput(answer, logprob=0.0, tokens=[])]
            result = RequestResult(success=True, embedding=[], completions=completions, cached=True)
            answered = replace(state, result=result)
            if annotation is not None:
                model_annotations = state.annotations or {}
                sql_annotation = trivial.ehr_sql_annotation_of_strategy(
                    model_annotations.get("ehr_sql", {}), annotation
                )
                answered = replace(
                    answered, annotations={**model_annotations, "ehr_sql": sql_annotation}
                )
            self._rows_by_key[key] = self._values(answered)
        return self._rows_by_key[key]

    def _score_key(self, state: RequestState, answer: str) -> Any:
        """Return everything that HELM's basic metrics read; equal keys have equal scores."""
        options = state.output_mapping
        if options is None:
            return _right_texts(state), None, answer
        if not self._adapter.output_mapping_pattern and answer.strip() not in options:
            answer = ""  # All answers that name no option have equal scores.
        return _right_texts(state), tuple(options.items()), answer

    def _values(self, state: RequestState) -> dict[str, float]:
        """Compute the metrics of an answered request, and return the value of each score."""
        stats: list[Stat] = []
        no_cache_path = ""  # no metric of this module has a cache
        for metric in self._metrics:
            if isinstance(metric, self._basic.BasicGenerationMetric):
                # Compute only the scores. The complete metric would spend most of its time on
                # statistics about time and tokens.
                stats += self._basic.compute_reference_metrics(
                    metric.names, self._adapter, state, self._service
                )
            else:
                stats += metric.evaluate_generation(
                    self._adapter, state, self._service, no_cache_path
                )
        values = {}
        for stat in stats:
            if stat.mean is not None and is_score(stat.name.name):
                values[stat.name.name] = float(stat.mean)
        return values
