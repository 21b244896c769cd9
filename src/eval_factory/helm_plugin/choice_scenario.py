"""Published multiple-choice benchmarks as HELM's instances, and their run specs. Importing this registers them.

What asks and scores them is HELM's own: its joint multiple-choice adapter and exact match.
"""

from __future__ import annotations

from pathlib import Path

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

from eval_factory.helm_plugin.conversation_scenario import downloaded, refuse
from eval_factory.tasks.published_choices import EVERY_TIER, PUBLISHED, read_choice_file

INSTRUCTIONS = "Answer the medical question with the letter of the one right option and nothing else."


class ChoiceScenario(Scenario):  # type: ignore[misc]
    """The questions of a published file."""

    tags = ("question_answering", "biomedical", "multiple_choice")

    def __init__(self, name: str, published: str, tier: str = EVERY_TIER, data_path: str | None = None) -> None:
        """
        Args:
            published: which file; its form is the part before a colon.
            data_path: a file of that form that is read instead.
        """
        super().__init__()
        self.name, self.description = name, f"Published multiple-choice questions ({name})"
        self._published, self._tier, self._own = published, tier, data_path

    def get_instances(self, output_path: str) -> list[Instance]:
        if self._own is None:
            path, address = PUBLISHED[self._published]
            file = downloaded(output_path, path, f"{address}{path}")
        else:
            file = Path(self._own)
        read = read_choice_file(file, self._published.partition(":")[0])
        refuse(file, read.problems)
        return [
            Instance(
                input=Input(text=question.question),
                references=[
                    Reference(Output(text=text), tags=[CORRECT_TAG] if number == question.right else [])
                    for number, text in enumerate(question.choices)
                ],
                split=TEST_SPLIT,
                id=question.id,
                extra_data=question.extra_data(),
            )
            for question in read.of_tier(self._tier)
        ]


def _run_spec(run_name: str, published: str, data_path: str | None, tier: str = EVERY_TIER) -> RunSpec:
    name = run_name.partition(":")[0]
    return RunSpec(
        name=run_name,
        scenario_spec=ScenarioSpec(
            class_name=f"{__name__}.{ChoiceScenario.__name__}",
            args={"name": name, "published": published, "tier": tier, "data_path": data_path},
        ),
        adapter_spec=get_multiple_choice_adapter_spec(
            method=ADAPT_MULTIPLE_CHOICE_JOINT,
            instructions=INSTRUCTIONS,
            input_noun="Question",
            output_noun="Answer",
            max_tokens=5,
            max_train_instances=0,
        ),
        metric_specs=get_exact_match_metric_specs(),
        groups=[name],
    )


def _register(name: str, published: str) -> None:
    """The run spec of one published file."""

    @run_spec_function(name)  # type: ignore[untyped-decorator]
    def whole_file(data_path: str | None = None) -> RunSpec:
        return _run_spec(name, published, data_path)


_register("medxpertqa_text", "medxpertqa")
_register("metamedqa", "metamedqa")
_register("longhealth", "longhealth")  # task 1 over all documents of a patient


@run_spec_function("careqa")  # type: ignore[untyped-decorator]
def careqa(language: str = "en", data_path: str | None = None) -> RunSpec:
    """CareQA, the closed questions."""
    return _run_spec(f"careqa:language={language}", f"careqa:{language}", data_path)


@run_spec_function("afrimed_qa")  # type: ignore[untyped-decorator]
def afrimed_qa(subset: str = "expert", data_path: str | None = None) -> RunSpec:
    """AfriMed-QA, its multiple-choice questions."""
    return _run_spec(f"afrimed_qa:subset={subset}", "afrimed_qa", data_path, tier=subset)
