"""Defines the sample benchmark as a HELM scenario.

Importing this module registers the benchmark in HELM. Only helm-run imports the module.
"""

from __future__ import annotations

import csv
from importlib import resources

from helm.benchmark.adaptation.adapter_spec import ADAPT_MULTIPLE_CHOICE_JOINT
from helm.benchmark.adaptation.common_adapter_specs import get_multiple_choice_adapter_spec
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

from eval_factory.demo.example import PACKAGED_TABLES

_NAME = "sample_medical_qa"


class SampleMedicalQAScenario(Scenario):  # type: ignore[misc]
    """A HELM scenario of multiple-choice questions that were written for eval-factory.

    The questions are from general medical knowledge.
    """

    name = _NAME
    description = "Sample of multiple-choice medical questions"
    tags = ("question_answering", "biomedical")

    def get_instances(self, output_path: str) -> list[Instance]:  # noqa: ARG002 - nothing is downloaded
        """Return the instances from the packaged CSV file."""
        table = resources.files("eval_factory.demo") / PACKAGED_TABLES[_NAME]
        with table.open(encoding="utf-8") as file:
            return [_instance(question) for question in csv.DictReader(file)]


def _instance(question: dict[str, str]) -> Instance:
    """Return the instance of a row of the CSV file."""
    references = []
    for letter in "ABCD":
        tags = []
        if letter == question["correct_answer"]:
            tags.append(CORRECT_TAG)
        references.append(Reference(Output(text=question[f"option_{letter.lower()}"]), tags=tags))
    return Instance(
        Input(text=question["question"]),
        references,
        TEST_SPLIT,
        id=question["id"],
        extra_data={"category": question["category"]},
    )


@run_spec_function(_NAME)  # type: ignore[untyped-decorator]
def sample_medical_qa() -> RunSpec:
    """Return the run spec; it is built like those of HELM's multiple-choice medical benchmarks."""
    adapter_spec = get_multiple_choice_adapter_spec(
        method=ADAPT_MULTIPLE_CHOICE_JOINT,
        instructions="Answer the medical question with the letter of the right option (A, B, "
        "C or D) and nothing else.",
        input_noun="Question",
        output_noun="Answer",
        max_tokens=5,
        max_train_instances=0,
    )
    return RunSpec(
        name=_NAME,
        scenario_spec=ScenarioSpec(
            class_name=f"{__name__}.{SampleMedicalQAScenario.__name__}", args={}
        ),
        adapter_spec=adapter_spec,
        metric_specs=get_exact_match_metric_specs(),
        groups=[_NAME],
    )
