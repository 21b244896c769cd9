"""The scenario and its run spec, as HELM has them. Only helm-run imports this."""

from __future__ import annotations

import json
from pathlib import Path

from helm.benchmark.adaptation.common_adapter_specs import get_generation_adapter_spec
from helm.benchmark.metrics.common_metric_specs import get_exact_match_metric_specs
from helm.benchmark.run_spec import RunSpec, run_spec_function
from helm.benchmark.scenarios.scenario import (
    CORRECT_TAG,
    TEST_SPLIT,
    Input,
    Instance,
    Output,
    Reference,
    Scenario,
    ScenarioSpec,
)


class DosingScenario(Scenario):  # type: ignore[misc]
    name = "dosing_questions"
    description = "Doses by weight"
    tags = ("biomedical",)

    def __init__(self, data_path: str) -> None:
        super().__init__()
        self._file = Path(data_path)

    def get_instances(self, output_path: str) -> list[Instance]:  # noqa: ARG002 - nothing is downloaded
        rows = [json.loads(line) for line in self._file.read_text(encoding="utf-8").splitlines()]
        return [
            Instance(
                Input(text=row["question"]),
                [Reference(Output(text=str(row["milligrams"])), tags=[CORRECT_TAG])],
                TEST_SPLIT,
                id=row["id"],
            )
            for row in rows
        ]


@run_spec_function("dosing_questions")  # type: ignore[untyped-decorator]
def dosing_questions(data_path: str) -> RunSpec:
    return RunSpec(
        name="dosing_questions",
        scenario_spec=ScenarioSpec(f"{__name__}.DosingScenario", {"data_path": data_path}),
        adapter_spec=get_generation_adapter_spec(
            instructions="Answer with the dose in milligrams, a number and nothing else.",
            input_noun="Question",
            output_noun="Answer",
            max_tokens=10,
            max_train_instances=0,
        ),
        metric_specs=get_exact_match_metric_specs(),
        groups=["dosing_questions"],
    )
