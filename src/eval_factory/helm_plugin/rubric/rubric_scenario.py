"""Turns rubric cases into HELM's instances, and registers the run specs of rubric benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from helm.benchmark.adaptation.adapter_spec import ADAPT_CHAT
from helm.benchmark.annotation.annotator import AnnotatorSpec
from helm.benchmark.metrics.metric import MetricSpec
from helm.benchmark.run_spec import RunSpec, run_spec_function
from helm.benchmark.scenarios.scenario import TEST_SPLIT, Instance, Scenario, ScenarioSpec

from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.helm import names
from eval_factory.helm_plugin.conversation_scenario import (
    download_missing_files,
    input_of_turns,
    plain_adapter,
    raise_if_problems,
    right_replies,
)
from eval_factory.tasks.case_reports import CASE_REPORTS_FORM, read_case_reports
from eval_factory.tasks.message_files import (
    EVAL_FACTORY_FORM,
    HEALTHBENCH_FORM,
    PROFESSIONAL_FORM,
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

# The maximum number of tokens in an answer, as in the published sampler of HealthBench.
_MAX_TOKENS = 2048


class RubricScenario(Scenario):  # type: ignore[misc]
    """A HELM scenario of conversations, each with the criteria by which the answer is judged."""

    tags = ("biomedical", "rubric")

    def __init__(
        self, name: str, description: str, form: str, dataset_file: str | None, subset: str | None
    ) -> None:
        """Make the scenario.

        Args:
            name: the name of the task.
            description: a sentence about the benchmark.
            form: the form of the file: `CASE_REPORTS_FORM` or a `FileForm`.
            dataset_file: the path of the user's file; None to download the published file.
            subset: the subset of HealthBench to download; None for other benchmarks.
        """
        super().__init__()
        self.name = name
        self.description = description
        self._form = form
        self._file = dataset_file
        self._subset = subset

    def get_instances(self, output_path: str) -> list[Instance]:
        if self._file is None:
            # `data/sources.yml` lists each subset's file under a task such as `healthbench_hard`.
            task = self.name if self._subset in (None, ALL_CASES) else f"{self.name}_{self._subset}"
            (file,) = download_missing_files(output_path, task)
        else:
            file = Path(self._file)
        if self._form == CASE_REPORTS_FORM:
            content = read_case_reports(file)
        else:
            content = read_rubric_file(file, cast(FileForm, self._form))
        raise_if_problems(file, content.problems)
        return [
            Instance(
                input=input_of_turns(case.messages),
                references=right_replies(case.reference),
                split=TEST_SPLIT,
                id=case.id,
                extra_data=case.extra_data(),
            )
            for case in content.rows
        ]


def _scenario_spec(
    *, name: str, description: str, form: str, file: str | None, subset: str | None = None
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
    *,
    metric: str,
    judges: Any,
    criteria_per_request: int,
    max_tokens: int = _MAX_TOKENS,
) -> RunSpec:
    """Return the run spec of a rubric benchmark.

    Args:
        name: the name of the run, such as `healthbench:subset=hard`.
        scenario: the scenario of the run.
        metric: the name of the score.
        judges: the judges, each with `name` and `model_deployment`.
        criteria_per_request: the maximum number of criteria in a request to a judge.
        max_tokens: the maximum number of tokens in an answer.
    """
    deployments = {judge["name"]: judge["model_deployment"] for judge in judges}
    annotator_args = {
        "judges": deployments,
        "criteria_per_request": int(criteria_per_request),
    }
    metric_args = {"metric_name": metric, "judges": deployments}
    return RunSpec(
        name=name,
        scenario_spec=scenario,
        adapter_spec=plain_adapter(ADAPT_CHAT, max_tokens),
        annotators=[AnnotatorSpec(class_name=names.RUBRIC_ANNOTATOR_CLASS, args=annotator_args)],
        metric_specs=[MetricSpec(class_name=names.RUBRIC_METRIC_CLASS, args=metric_args)],
        groups=[scenario.args["name"]],
    )


def _read_config(path: str) -> Any:
    """Return the content of a file that eval-factory wrote for this run."""
    return parse_own_text(Path(path).read_text(encoding="utf-8"))


@run_spec_function(RUBRIC_RUN_SPEC)  # type: ignore[untyped-decorator]
def rubric_benchmark(config_path: str, criteria_per_request: int = 1) -> RunSpec:
    """Return the run spec of a custom rubric benchmark.

    `config_path` is the file that eval-factory wrote, with the description of the benchmark.
    """
    config = _read_config(config_path)
    scenario = _scenario_spec(
        name=config["name"],
        description=config["description"],
        form=EVAL_FACTORY_FORM,
        file=config["dataset_file"],
    )
    return _run_spec(
        config["name"],
        scenario,
        metric=config["metric"],
        judges=config["judges"],
        criteria_per_request=criteria_per_request,
        max_tokens=config.get("max_tokens", _MAX_TOKENS),
    )


@run_spec_function("healthbench")  # type: ignore[untyped-decorator]
def healthbench(
    jury_config_path: str,
    subset: str = ALL_CASES,
    data_path: str | None = None,
    criteria_per_request: int = 1,
) -> RunSpec:
    """Return the run spec of HealthBench.

    The cases come from the file `data_path`. If `data_path` is not set, they come from the subset's
    published file.
    """
    scenario = _scenario_spec(
        name="healthbench",
        description="HealthBench (Arora et al. 2025)",
        form=HEALTHBENCH_FORM,
        file=data_path,
        subset=subset,
    )
    return _run_spec(
        f"healthbench:subset={subset}",
        scenario,
        metric=HEALTHBENCH_METRIC,
        judges=_read_config(jury_config_path)["judges"],
        criteria_per_request=criteria_per_request,
    )


@run_spec_function("healthbench_professional")  # type: ignore[untyped-decorator]
def healthbench_professional(
    jury_config_path: str, data_path: str, criteria_per_request: int = 1
) -> RunSpec:
    """Return the run spec of HealthBench Professional, with the cases of the user's file."""
    name = "healthbench_professional"
    scenario = _scenario_spec(
        name=name,
        description="HealthBench Professional (Soskin Hicks et al. 2026)",
        form=PROFESSIONAL_FORM,
        file=data_path,
    )
    return _run_spec(
        name,
        scenario,
        metric=PROFESSIONAL_METRIC,
        judges=_read_config(jury_config_path)["judges"],
        criteria_per_request=criteria_per_request,
    )


@run_spec_function("medcasereasoning")  # type: ignore[untyped-decorator]
def medcasereasoning(
    jury_config_path: str, data_path: str | None = None, criteria_per_request: int = 1
) -> RunSpec:
    """Return the run spec of MedCaseReasoning's test set.

    The cases come from the file `data_path`. If `data_path` is not set, they come from the
    published file.
    """
    name = "medcasereasoning"
    scenario = _scenario_spec(
        name=name,
        description="MedCaseReasoning (Wu et al. 2025)",
        form=CASE_REPORTS_FORM,
        file=data_path,
    )
    return _run_spec(
        name,
        scenario,
        metric=DIAGNOSIS_METRIC,
        judges=_read_config(jury_config_path)["judges"],
        criteria_per_request=criteria_per_request,
    )
