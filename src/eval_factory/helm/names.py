"""HELM's and our engine's names, as they stand in generated files and on helm-run's command line."""

from __future__ import annotations

MEASURED_HELM = "0.5.16"
"""The version whose functions are known well enough to be replaced by quicker ones."""

CLIENT_CLASS = "eval_factory.engine.client.EndpointClient"
RUNNER_CLASS = "eval_factory.engine.runner.EvalRunner"
PLUGIN_MODULE = "eval_factory.engine.plugin"
LOG_FILTER_CLASS = "eval_factory.engine.log_filter.WithholdText"

MODEL_DEPLOYMENTS = "model_deployments.yaml"
MODEL_METADATA = "model_metadata.yaml"
JUDGES = "judges.yaml"
LOGGING = "logging.yaml"

ORGANIZATION = "endpoint"
"""HELM needs exactly <organization>/<name>."""

TAGS = ("TEXT_MODEL_TAG", "FULL_FUNCTIONALITY_TEXT_MODEL_TAG", "INSTRUCTION_FOLLOWING_MODEL_TAG")

LENGTH_TOKENIZER = "openai/cl100k_base"
"""Counts tokens where `max_length` sets a limit. Never used otherwise: HELM then cuts no prompt."""

NO_LIMIT = 2_147_483_647
"""`--max-eval-instances` for 'all': HELM requires the flag."""

DEFAULT_JURY = {
    "gpt": "stanfordhealthcare/gpt-4o-2024-05-13",
    "llama": "stanfordhealthcare/llama-3.3-70b-instruct",
    "claude": "stanfordhealthcare/claude-3-7-sonnet-20250219",
}
"""Deployments of the judges that HELM takes where no jury is named."""

JURY_RUN_SPECS = frozenset(
    {
        "aci_bench", "chw_care_plan", "dischargeme", "med_dialog", "medalign", "medhelm_configurable_benchmark",
        "medi_qa", "medication_qa", "mental_health", "mimic_bhc", "mimic_rrs", "mtsamples_procedures",
        "mtsamples_replicate", "starr_patient_instructions",
    }
)  # fmt: skip
"""Those that are, or may be, scored by a jury."""

RUNS_FOLDER = "runs"
SCENARIOS_FOLDER = "scenarios"

RUN_SPEC_FILE = "run_spec.json"
SCENARIO_STATE_FILE = "scenario_state.json"
SCENARIO_FILE = "scenario.json"
STATS_FILE = "stats.json"
PER_INSTANCE_STATS_FILE = "per_instance_stats.json"

JURY_METRIC_CLASS_SUFFIX = ".LLMJuryMetric"


def deployment_name(slug: str) -> str:
    return f"{ORGANIZATION}/{slug}"


def asked_run_specs(argv: list[str]) -> set[str]:
    """Names of the run specs on helm-run's command line."""
    entries: set[str] = set()
    taking = False
    for argument in argv:
        if argument.startswith("-"):
            taking = argument in ("--run-entries", "-r")
        elif taking:
            entries.add(argument.partition(":")[0])
    return entries
