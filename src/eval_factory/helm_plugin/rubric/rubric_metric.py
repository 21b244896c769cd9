"""Computes the score of a rubric case from the judges' decisions about its criteria."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.metrics.metric import Metric
from helm.benchmark.metrics.metric_name import MetricName
from helm.benchmark.metrics.statistic import Stat

from eval_factory.helm.criteria import decisions_of
from eval_factory.helm_plugin.rubric.criterion_judge import is_answered, rubric_criteria
from eval_factory.tasks.rubric_case import case_score, share_by_majority


class RubricMetric(Metric):  # type: ignore[misc]
    """A HELM metric that computes the rubric score of each case.

    The score is the sum of the points of the criteria that are met, divided by the sum of all
    positive points.
    """

    def __init__(self, metric_name: str, judges: Mapping[str, str]) -> None:
        """Make the metric.

        Args:
            metric_name: the name of the score.
            judges: a dict from the name of each judge to the judge's deployment. Only the names are
                used here.
        """
        self._name = metric_name
        self._judges = tuple(judges)

    def evaluate_generation(
        self, _adapter: Any, request_state: RequestState, *_: Any
    ) -> list[Stat]:
        criteria = rubric_criteria(request_state)
        if not is_answered(request_state):
            # The request failed. The user's options decide whether the collector counts the case as
            # 0 or leaves the case out.
            return [Stat(MetricName(self._name)).add(0.0)]
        decided = decisions_of(request_state.annotations, self._judges, len(criteria))
        # None if there is a criterion without any decision, or if no criterion has positive points.
        score = case_score(criteria, [share_by_majority(by_judge.values()) for by_judge in decided])
        return [] if score is None else [Stat(MetricName(self._name)).add(score)]
