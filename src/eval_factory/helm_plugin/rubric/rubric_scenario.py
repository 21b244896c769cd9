"""Rubric cases as HELM's instances, and the run specs that ask them. Importing this registers
the run specs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from helm.benchmark.adaptation.adapter_spec import ADAPT_CHAT
from helm.benchmark.annotation.annotator import AnnotatorSpec
from helm.benchmark.metrics.metric import MetricSpec
from helm.benchmark.run_spec import RunSpec, run_spec_function
from helm.benchmark.scenarios.scenario import TEST_SPLIT, Instance, Scenario, ScenarioSpec

from eval_factory.core.plain_yaml import parse_own
from eval_factory.helm import names
from eval_factory.helm_plugin.conversation_scenario import (
    downloaded,
    input_of,
    plain_adapter,
    refuse,
    right_replies,
)
from eval_factory.tasks.case_reports import CASE_REPORTS, read_case_reports
from eval_factory.tasks.message_files import (
    HEALTHBENCH,
    OWN,
    PROFESSIONAL,
    FileForm,
    read_rubric_file,
)
from eval_factory.tasks.rubric_case import (
    ALL_CASES,
    DIAGNOSIS_METRIC,
    HEALTHBENCH_METRIC,
    PROFESSIONAL_METRIC,
    RUBRIC_RUN_SPEC,
)

_MAX_TOKENS = 2048  # in an answer: what the published sampler of HealthBench grants


class RubricScenario(Scenario):  # type: ignore[misc]
    """Conversations, each with the criteria that its answer is judged by."""

    tags = ("biomedical", "rubric")

    def __init__(
        self, name: str, description: str, form: str, dataset_file: str | None, subset: str | None
    ) -> None:
        """Take a `dataset_file`, or None for HealthBench's published file of `subset`."""
        super().__init__()
        self.name = name
        self.description = description
        self._form = form
        self._file = dataset_file
        self._subset = subset

    def get_instances(self, output_path: str) -> list[Instance]:
        if self._file is None:
            task = self.name if self._subset in (None, ALL_CASES) else f"{self.name}_{self._subset}"
            (file,) = downloaded(output_path, task)
        else:
            file = Path(self._file)
        if self._form == CASE_REPORTS:
            read = read_case_reports(file)
        else:
            read = read_rubric_file(file, cast(FileForm, self._form))
        refuse(file, read.problems)
        return [
            Instance(
                input=input_of(case.messages),
                references=right_replies(case.reference),
                split=TEST_SPLIT,
                id=case.id,
                extra_data=case.extra_data(),
            )
            for case in read.rows
        ]


def _scenario(
    name: str, description: str, form: str, file: str | None, subset: str | None = None
) -> ScenarioSpec:
    args = {
        "name": name,
        "description": description,
        "form": form,
        "dataset_file": file,
        "subset": subset,
    }
    return ScenarioSpec(class_name=f"{__name__}.{RubricScenario.__name__}", args=args)


def _run_spec(
    name: str,
    scenario: ScenarioSpec,
    metric: str,
    judges: Any,
    at_once: int,
    max_tokens: int = _MAX_TOKENS,
) -> RunSpec:
    """Return a rubric's run spec, with `at_once` criteria in a request to a judge and answers of at
    most `max_tokens`.
    """
    deployments = {judge["name"]: judge["model_deployment"] for judge in judges}
    args = {"judges": deployments, "criteria_per_request": int(at_once)}
    scored = {"metric_name": metric, "judges": deployments}
    return RunSpec(
        name=name,
        scenario_spec=scenario,
        adapter_spec=plain_adapter(ADAPT_CHAT, max_tokens),
        annotators=[AnnotatorSpec(class_name=names.RUBRIC_ANNOTATOR_CLASS, args=args)],
        metric_specs=[MetricSpec(class_name=names.RUBRIC_METRIC_CLASS, args=scored)],
        groups=[scenario.args["name"]],
    )


def _read(path: str) -> Any:
    return parse_own(Path(path).read_text(encoding="utf-8"))


@run_spec_function(RUBRIC_RUN_SPEC)  # type: ignore[untyped-decorator]
def rubric_benchmark(config_path: str, criteria_per_request: int = 1) -> RunSpec:
    """A custom rubric benchmark: the file that eval-factory wrote says what it is."""
    config = _read(config_path)
    scenario = _scenario(config["name"], config["description"], OWN, config["dataset_file"])
    max_tokens = config.get("max_tokens", _MAX_TOKENS)
    return _run_spec(
        config["name"],
        scenario,
        config["metric"],
        config["judges"],
        criteria_per_request,
        max_tokens,
    )


@run_spec_function("healthbench")  # type: ignore[untyped-decorator]
def healthbench(
    jury_config_path: str,
    subset: str = ALL_CASES,
    data_path: str | None = None,
    criteria_per_request: int = 1,
) -> RunSpec:
    """HealthBench, from `data_path` where that is set, else as it is published."""
    scenario = _scenario(
        "healthbench", "HealthBench (Arora et al. 2025)", HEALTHBENCH, data_path, subset
    )
    judges = _read(jury_config_path)["judges"]
    return _run_spec(
        f"healthbench:subset={subset}", scenario, HEALTHBENCH_METRIC, judges, criteria_per_request
    )


@run_spec_function("healthbench_professional")  # type: ignore[untyped-decorator]
def healthbench_professional(
    jury_config_path: str, data_path: str, criteria_per_request: int = 1
) -> RunSpec:
    """HealthBench Professional, from the user's file."""
    name = "healthbench_professional"
    description = "HealthBench Professional (Soskin Hicks et al. 2026)"
    judges = _read(jury_config_path)["judges"]
    scenario = _scenario(name, description, PROFESSIONAL, data_path)
    return _run_spec(name, scenario, PROFESSIONAL_METRIC, judges, criteria_per_request)


@run_spec_function("medcasereasoning")  # type: ignore[untyped-decorator]
def medcasereasoning(
    jury_config_path: str, data_path: str | None = None, criteria_per_request: int = 1
) -> RunSpec:
    """MedCaseReasoning, the test set, from `data_path` where that is set."""
    name = "medcasereasoning"
    description = "MedCaseReasoning (Wu et al. 2025)"
    judges = _read(jury_config_path)["judges"]
    scenario = _scenario(name, description, CASE_REPORTS, data_path)
    return _run_spec(name, scenario, DIAGNOSIS_METRIC, judges, criteria_per_request)
