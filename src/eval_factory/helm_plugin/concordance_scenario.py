"""Lets HELM run script concordance tests: the instances, the metric and the run spec.

Importing this module registers the run spec.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helm.benchmark.adaptation.adapter_spec import ADAPT_GENERATION
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.metrics.metric import Metric, MetricSpec
from helm.benchmark.metrics.metric_name import MetricName
from helm.benchmark.metrics.statistic import Stat
from helm.benchmark.run_spec import RunSpec, run_spec_function
from helm.benchmark.scenarios.scenario import TEST_SPLIT, Input, Instance, Scenario, ScenarioSpec

from eval_factory.helm_plugin.conversation_scenario import (
    plain_adapter,
    raise_if_problems,
    right_replies,
)
from eval_factory.tasks.concordance import (
    CONCORDANCE_METRICS,
    EXPERT_COUNTS_KEY,
    ConcordanceCase,
    credit_of_answer,
    read_concordance_file,
)

# Cached answers depend on each character of this text, its line breaks included.
_INSTRUCTIONS = """\
A clinical case and a hypothesis are given, and then something new is found. How does the new \
finding change the
hypothesis? Answer with one rating and nothing else:
-2: far less likely (or far less useful)
-1: less likely
0: neither
+1: more likely
+2: far more likely (or far more useful)"""
_MAX_TOKENS = 32  # the maximum number of tokens in an answer


def prompt_of(case: ConcordanceCase) -> str:
    """Return the prompt that asks the model to rate a case."""
    parts = [
        _INSTRUCTIONS,
        f"Case: {case.stem}",
        f"Hypothesis: {case.hypothesis}",
        f"New finding: {case.finding}",
        "Rating:",
    ]
    return "\n\n".join(parts)


class ConcordanceScenario(Scenario):  # type: ignore[misc]
    """A HELM scenario whose instances are the cases of a file in SCT-Bench's form."""

    name = "script_concordance"
    description = "Script concordance (in the form of SCT-Bench)"
    tags = ("reasoning", "biomedical")

    def __init__(self, data_path: str) -> None:
        super().__init__()
        self._file = Path(data_path)

    def get_instances(self, output_path: str) -> list[Instance]:  # noqa: ARG002 - HELM's interface
        content = read_concordance_file(self._file)
        raise_if_problems(self._file, content.problems)
        instances = []
        for case in content.rows:
            instances.append(
                Instance(
                    input=Input(text=prompt_of(case)),
                    references=right_replies(case.best),
                    split=TEST_SPLIT,
                    id=case.id,
                    extra_data={EXPERT_COUNTS_KEY: list(case.expert_counts)},
                )
            )
        return instances


class ConcordanceMetric(Metric):  # type: ignore[misc]
    """A HELM metric that computes two scores of a rating from the experts' choices.

    The first score is the credit that the rating earns, from 0 to 1. The second score is 1 if any
    expert chose this rating, else 0. An answer without a rating, and a failed request, get 0.
    """

    def evaluate_generation(self, _adapter: Any, state: RequestState, *_: Any) -> list[Stat]:
        answer = state.result.completions[0].text if state.result else ""
        earned = credit_of_answer(state.instance.extra_data[EXPERT_COUNTS_KEY], answer)
        is_chosen = float(earned > 0)
        # CONCORDANCE_METRICS names the two scores in this order.
        values = zip(CONCORDANCE_METRICS, (earned, is_chosen), strict=True)
        return [Stat(MetricName(name)).add(value) for name, value in values]


@run_spec_function(ConcordanceScenario.name)  # type: ignore[untyped-decorator]
def script_concordance(data_path: str) -> RunSpec:
    """Return the run spec of script concordance for the cases of the user's file."""
    scenario = ScenarioSpec(
        class_name=f"{__name__}.{ConcordanceScenario.__name__}", args={"data_path": data_path}
    )
    return RunSpec(
        name=ConcordanceScenario.name,
        scenario_spec=scenario,
        adapter_spec=plain_adapter(ADAPT_GENERATION, _MAX_TOKENS),
        metric_specs=[MetricSpec(class_name=f"{__name__}.{ConcordanceMetric.__name__}", args={})],
        groups=[ConcordanceScenario.name],
    )
