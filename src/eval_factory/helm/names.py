"""Lists names of HELM and of eval-factory's plug-in, and reads helm-run's command line.

The names are those in generated files, in helm-run's command line and in HELM's output folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# classes and modules of the plug-in
CLIENT_CLASS = "eval_factory.helm_plugin.client.EndpointClient"
RUNNER_CLASS = "eval_factory.helm_plugin.runner.EvalRunner"
MEASURING_RUNNER_CLASS = "eval_factory.helm_plugin.runner.MeasuringRunner"
RUBRIC_ANNOTATOR_CLASS = "eval_factory.helm_plugin.rubric.criterion_judge.CriterionAnnotator"
CONCORDANCE_METRIC_CLASS = "eval_factory.helm_plugin.concordance_scenario.ConcordanceMetric"
RUBRIC_METRIC_CLASS = "eval_factory.helm_plugin.rubric.rubric_metric.RubricMetric"
PLUGIN_MODULE = "eval_factory.helm_plugin.plugin"
LOG_FILTER_CLASS = "eval_factory.helm_plugin.log_filter.WithholdText"

# the generated files in model_configs/
MODEL_DEPLOYMENTS_FILE = "model_deployments.yaml"
MODEL_METADATA_FILE = "model_metadata.yaml"
JUDGES_FILE = "judges.yaml"
BENCHMARK_FILE = "benchmark.yaml"
JUDGE_PROMPT_FILE = "judge_prompt.txt"
LOGGING_FILE = "logging.yaml"
OTHER_RUN_FILE = (
    "other_run.json"  # the instances of the run that `extra.stop_when.differs_from` names
)
SETTINGS_FILE = "settings.json"  # for the plug-in: the paths of data, and the permitted hosts

_ORGANIZATION = "endpoint"  # HELM requires names of the form <organization>/<name>

LENGTH_TOKENIZER = "openai/cl100k_base"
"""The tokenizer that counts the tokens of prompts if `max_length` limits the prompts."""

# the value of `--max-eval-instances` for all instances; HELM requires the option
NO_INSTANCE_LIMIT = 2_147_483_647

DEFAULT_JURY = {
    "gpt": "stanfordhealthcare/gpt-4o-2024-05-13",
    "llama": "stanfordhealthcare/llama-3.3-70b-instruct",
    "claude": "stanfordhealthcare/claude-3-7-sonnet-20250219",
}
"""The deployments of HELM's default judges, by the judges' names."""

JURY_RUN_SPECS = frozenset(
    {
        "aci_bench",
        "chw_care_plan",
        "dischargeme",
        "med_dialog",
        "medalign",
        "medhelm_configurable_benchmark",
        "medi_qa",
        "medication_qa",
        "mental_health",
        "mimic_bhc",
        "mimic_rrs",
        "mtsamples_procedures",
        "mtsamples_replicate",
        "starr_patient_instructions",
        "eval_factory_conversations",
    }
)
"""The run specs that a jury scores, or may score."""

# folders in HELM's output folder
RUNS_FOLDER = "runs"
SCENARIOS_FOLDER = "scenarios"
MADE_PICTURES_FOLDER = "generated_images"
PERTURBATIONS_FOLDER = "perturbations"

# the files that the plug-in writes into HELM's output folder
RUN_RECORD_FILE = "run_record.json"  # helm-run's record of itself
TRIVIAL_SCORES_FILE = "trivial_scores.json"
CONFIDENCE_FILE = "stated_confidence.json"
LETTERS_FILE = "asked_for_letters.json"

# HELM's own files in a run folder
RUN_SPEC_FILE = "run_spec.json"
SCENARIO_STATE_FILE = "scenario_state.json"
SCENARIO_FILE = "scenario.json"
STATS_FILE = "stats.json"
PER_INSTANCE_STATS_FILE = "per_instance_stats.json"

NOT_JUDGED_FIELD = "eval_factory_not_judged"
"""The key in a jury's annotation whose value lists the judges without a rating, with the reasons.
"""

DECISIONS_FIELD = "eval_factory_decisions"
"""The key in the annotation of medhelm's HealthBench whose value has each judge's decisions about
the criteria. The decisions are in the rubric's order.
"""

UNSCORABLE_PREFIX = "HELM cannot score this answer: "
"""The beginning of the reason if an answer has no score because a metric raised an error."""

MEDHELM_HEALTHBENCH_ANNOTATORS = frozenset(
    f"helm.benchmark.annotation.health_bench_annotator.{name}"
    for name in ("HealthBenchAnnotator", "HealthBenchProfessionalAnnotator")
)
"""The classes of medhelm's annotators for HealthBench."""
SHARE_JURIES = frozenset({"health_bench", "health_bench_professional"})
"""The names of annotators whose judges give shares of a rubric's points (medhelm's HealthBench)."""

JURY_METRIC_CLASS_SUFFIX = ".LLMJuryMetric"


def deployment_name(slug: str) -> str:
    """Return HELM's name of the deployment of an endpoint."""
    return f"{_ORGANIZATION}/{slug}"


def model_entry(name: str, display_name: str, description: str) -> dict[str, Any]:
    """Return the entry of a model in HELM's model_metadata.yaml."""
    return {
        "name": name,
        "display_name": display_name,
        "description": description,
        "creator_organization_name": _ORGANIZATION,
        "access": "limited",
        "release_date": None,
        "tags": [
            "TEXT_MODEL_TAG",
            "FULL_FUNCTIONALITY_TEXT_MODEL_TAG",
            "INSTRUCTION_FOLLOWING_MODEL_TAG",
        ],
    }


def asked_run_specs(argv: list[str]) -> set[str]:
    """Return the names of the run specs on helm-run's command line and in its conf files.

    Return an empty set if a conf file cannot be read: the names are then unknown.
    """
    run_specs: set[str] = set()
    option = ""  # the option to which the arguments after it belong
    for argument in argv:
        if argument.startswith("-"):
            option = argument
        elif option in ("--run-entries", "-r"):
            run_specs.add(argument.partition(":")[0])
        elif option in ("--conf-paths", "-c"):
            try:
                entries = conf_entries(Path(argument).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return set()
            run_specs |= {entry["description"].partition(":")[0] for entry in entries}
    return run_specs


def conf_entries(text: str) -> list[dict[str, Any]]:
    """Return the entries of a conf file, unchanged.

    Raises:
        ValueError: the text is neither JSON nor HOCON, or has no list `entries` in which each entry
            has a description.
    """
    try:
        tree: Any = json.loads(text)
    except ValueError:
        # Import here: the import takes 130 ms, and conf files of eval-factory itself are JSON.
        from pyhocon import ConfigFactory

        try:
            tree = ConfigFactory.parse_string(text)
            if hasattr(tree, "as_plain_ordered_dict"):  # a list has no such method
                tree = tree.as_plain_ordered_dict()
        except Exception as error:  # pyhocon and its parser raise errors of many kinds
            line = getattr(error, "lineno", None)
            position = f" (line {line})" if line else ""
            raise ValueError(f"it is not HOCON{position}") from None
    entries = tree.get("entries") if isinstance(tree, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it has no list `entries`")
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or not isinstance(entry.get("description"), str):
            raise ValueError(f"entry {number} has no description")
    return entries


def scenario_name(folder: Path) -> str | None:
    """Return the name of the scenario of a run folder; None if HELM did not write the name.

    The folder of the scenario's data (below `SCENARIOS_FOLDER`) has the same name.
    """
    try:
        name = json.loads((folder / SCENARIO_FILE).read_bytes()).get("name")
    except (OSError, ValueError, AttributeError):  # AttributeError: the JSON is not an object
        return None
    return name if isinstance(name, str) else None
