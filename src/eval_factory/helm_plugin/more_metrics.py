"""`more_metrics=rouge_l+f1_score` in a run entry: what HELM computes of any answer, beside a run's own metrics."""

from __future__ import annotations

from dataclasses import replace

from helm.benchmark.metrics.common_metric_specs import get_basic_generation_metric_specs
from helm.benchmark.run_expander import RUN_EXPANDERS, RunExpander
from helm.benchmark.run_spec import RunSpec


class MoreMetricsRunExpander(RunExpander):  # type: ignore[misc]
    """Without those that the run has: a score comes once."""

    name = "more_metrics"

    def __init__(self, value: str) -> None:
        self._names = value.split("+")

    def expand(self, run_spec: RunSpec) -> list[RunSpec]:
        if "multiple_choice" in run_spec.adapter_spec.method:  # f1_score of what names no option is an error of HELM's
            raise ValueError(f"extra.metrics: {run_spec.name} has options")
        own = run_spec.metric_specs
        known = {name for one in own for name in one.args.get("names", ())}
        known |= {"rouge_l" for one in own if one.class_name.endswith(".SummarizationMetric")}
        new = [name for name in self._names if name not in known]
        return [replace(run_spec, metric_specs=[*own, *(get_basic_generation_metric_specs(new) if new else ())])]


RUN_EXPANDERS[MoreMetricsRunExpander.name] = MoreMetricsRunExpander
