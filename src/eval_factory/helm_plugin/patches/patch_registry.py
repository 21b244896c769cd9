"""Every patch of HELM: what it replaces, on which versions, for which run specs, and what happens where it cannot.

Nothing of HELM's behaviour is replaced but through this list (`apply.py` goes through it, in this order), and always in
memory: no file of HELM's is edited. Functions are named, not imported: a run imports the patches that it needs and no
other.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.helm import names
from eval_factory.helm.packages import SUPPORTED_HELM

ROOM = "eval_factory.helm_plugin"


class Otherwise(Enum):
    """What happens where a patch cannot be applied: to another version of HELM, or to an edited one."""

    SKIP = "skip"
    """The run goes on without it, with a warning: slower, or as HELM itself does it."""
    FAIL = "fail"
    """The run stops before anything is asked: its scores would be wrong, or something unsafe would be done."""


class Stage(Enum):
    """When a patch is applied."""

    LOGGING = "logging"
    """While helm-run sets up its log, before it reads its own configuration."""
    START = "start"
    """When the plug-in is loaded, before run specs are made."""
    IMPORTED = "imported"
    """When a run's scenario, metrics and annotators are imported, and nothing of them has been used."""
    SCORING = "scoring"
    """When the answers are there: what it replaces is imported by then."""


@dataclass(frozen=True)
class Patch:
    """One function that replaces something of HELM.

    The function takes nothing. It returns False where there was nothing to replace (a package is installed after all).
    """

    function: str
    """`module:name`, the module under `eval_factory.helm_plugin`."""
    targets: tuple[str, ...] = ()
    """What is replaced: `module:attribute`, or a whole `module`. Targets outside HELM are named and not checked."""
    otherwise: Otherwise = Otherwise.SKIP
    stage: Stage = Stage.START
    run_specs: frozenset[str] | None = None
    """Only where one of these run specs is asked for; None: in every run."""
    where_unknown: bool = False
    """Also where nobody knows which run specs are asked for."""
    when: Callable[[Sequence[str], Mapping[str, str]], bool] = lambda _argv, _env: True
    """Only where helm-run's command line and environment ask for it."""
    erratum: str | None = None
    """The entry of tasks/errata.yml that it belongs to."""
    versions: tuple[str, ...] | None = SUPPORTED_HELM
    """Of HELM, that it was checked against. None: it touches nothing of HELM's own."""
    only_speed: bool = False
    """The output is the same without it, byte for byte: `EVAL_FACTORY_WITHOUT` may leave it out."""

    @property
    def name(self) -> str:
        """As `EVAL_FACTORY_WITHOUT` and a result's provenance name it."""
        return self.function.partition(":")[2]

    @property
    def helm_targets(self) -> tuple[str, ...]:
        return tuple(target for target in self.targets if target.startswith("helm."))

    def is_asked_for(self, run_specs: set[str], argv: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether a helm-run of these run specs wants it; none are given where nobody knows which."""
        known = self.run_specs is None or bool(self.run_specs & run_specs) or (self.where_unknown and not run_specs)
        return known and self.when(argv, env)

    def load(self) -> Callable[[], Any]:
        """The function that applies it."""
        module, _, name = self.function.partition(":")
        function: Callable[[], Any] = getattr(importlib.import_module(f"{ROOM}.{module}"), name)
        return function


def has_pins(_argv: Sequence[str], env: Mapping[str, str]) -> bool:
    return HelmRunSettings.from_environment(env).pins is not None


def loads_no_data_set_of_math(argv: Sequence[str], _env: Mapping[str, str]) -> bool:
    asked = names.asked_run_specs(list(argv))
    return bool(asked) and "math" not in asked


def has_imported(module: str) -> Callable[[Sequence[str], Mapping[str, str]], bool]:
    """Of the stage IMPORTED: whether the run uses a module, which it is not to import for a patch."""
    return lambda _argv, _env: module in sys.modules


def _only(*run_specs: str) -> frozenset[str]:
    return frozenset(run_specs)


BIRD_SQL, CZECH_BANK, PYTHON = _only("bird_sql", "spider"), _only("czech_bank_qa"), _only("cleva", "code")
CODEINSIGHTS = _only(
    "codeinsights_code_efficiency", "codeinsights_correct_code", "codeinsights_student_coding",
    "codeinsights_student_mistake",
)  # fmt: skip
CONFINED = BIRD_SQL | CZECH_BANK | PYTHON | CODEINSIGHTS
"""Run specs whose answers are executed in processes of our own."""

_SCENARIOS = "helm.benchmark.scenarios"
_METRICS = "helm.benchmark.metrics"
_ADAPTERS = "helm.benchmark.adaptation.adapters"
_CONFIGURABLE = f"{_SCENARIOS}.medhelm_configurable_scenario"

SPEED = (
    Patch(
        "patches.fast_startup:read_yaml_with_the_c_parser", ("yaml:SafeLoader",), stage=Stage.LOGGING, only_speed=True
    ),
    Patch("patches.fast_startup:look_for_garbage_less_often", only_speed=True),
    Patch(
        "patches.fast_startup:download_nltk_data_only_when_needed",
        (f"{_METRICS}.nltk_helper", "nltk.tokenize:word_tokenize"),  # the whole module: to look into it imports nltk
        only_speed=True,
    ),
    Patch(
        "patches.fast_startup:import_only_the_run_specs_that_are_asked",
        ("helm.benchmark.run_spec:discover_run_spec_functions",),
        only_speed=True,
    ),
    Patch(
        "patches.fast_startup:credentials_parsed_where_there_are_any",
        ("helm.common.local_context:get_credentials", "helm.benchmark.annotation_executor:get_credentials"),
        only_speed=True,
    ),
    Patch(
        "patches.fast_startup:files_that_are_there_need_no_lock",
        ("helm.common.general:ensure_file_downloaded",),
        only_speed=True,
    ),
    Patch(
        "patches.fast_startup:requests_made_in_one_thread",
        (f"{_ADAPTERS}.in_context_learning_adapter:InContextLearningAdapter._adapt_trial_index",),
        only_speed=True,
    ),
    Patch(
        "patches.fast_startup:import_metrics_without_what_few_runs_use",
        (f"{_METRICS}.basic_metrics", f"{_METRICS}.evaluate_reference_metrics", f"{_SCENARIOS}.math_scenario"),
        when=loads_no_data_set_of_math,
        only_speed=True,
    ),
    Patch("patches.fast_asking:asked_in_one_thread", ("helm.benchmark.executor:parallel_map",), only_speed=True),
    Patch(
        "patches.fast_scoring:one_window_service",
        ("helm.benchmark.window_services.window_service_factory:WindowServiceFactory.get_window_service",),
        stage=Stage.SCORING,
        only_speed=True,
    ),
    Patch(
        "patches.fast_scoring:rouge_scorers_when_used",
        (
            f"{_METRICS}.evaluate_reference_metrics:get_rouge_function",
            f"{_METRICS}.evaluate_reference_metrics:get_chinese_rouge_function",
        ),
        stage=Stage.SCORING,
        only_speed=True,
    ),
    Patch(
        "patches.fast_scoring:normal_texts_kept",
        (f"{_METRICS}.evaluate_reference_metrics:normalize_text",),
        stage=Stage.SCORING,
        only_speed=True,
    ),
    Patch(
        "patches.fast_scoring:worst_case_without_perturbations",
        (f"{_METRICS}.metric:compute_worst_case_metrics",),
        stage=Stage.SCORING,
        only_speed=True,
    ),
    Patch(
        "patches.slim_scoring:pack_statistics",
        (
            f"{_METRICS}.metric:Processor.process",
            f"{_METRICS}.metric:Metric.evaluate",
            f"{_METRICS}.metric_name:MetricName",
            f"{_METRICS}.reference_metric:parallel_map",
            f"{_METRICS}.basic_metrics:_has_non_zero_valued_logprobs",
            "helm.benchmark.runner:remove_per_instance_stats_nans",
            "helm.benchmark.runner:asdict_without_nones",
        ),
        stage=Stage.SCORING,
        only_speed=True,
    ),
    Patch(
        "patches.fast_scoring:output_files_in_one_pass",
        ("helm.benchmark.runner:json", "helm.benchmark.runner:asdict_without_nones", "helm.benchmark.runner:write"),
        stage=Stage.SCORING,
        only_speed=True,
    ),
)
"""What makes helm-run quicker or smaller, and changes nothing of its output."""

DOWNLOADS = (
    Patch(
        "patches.hub_revisions:record_hub_revisions",
        ("datasets.load:load_dataset_builder",),
        stage=Stage.IMPORTED,
        when=has_imported("datasets"),
        versions=None,
    ),
    Patch("patches.pinned_downloads:name_failed_downloads", ("helm.common.general:ensure_file_downloaded",)),
    Patch(
        "patches.pinned_downloads:read_pinned_revisions",
        ("helm.common.general:ensure_file_downloaded",),
        Otherwise.FAIL,
        when=has_pins,
    ),
)
"""At which revision, and what is said where it fails."""

DATA = (
    Patch(
        "mtsamples_listing:list_procedures_without_github",
        (f"{_SCENARIOS}.mtsamples_procedures_scenario:MTSamplesProceduresScenario.get_instances",),
        Otherwise.FAIL,
        run_specs=_only("mtsamples_procedures"),
    ),
    Patch(
        "mtsamples_listing:list_replicates_without_github",
        (f"{_SCENARIOS}.mtsamples_replicate_scenario:MTSamplesReplicateScenario.get_instances",),
        Otherwise.FAIL,
        run_specs=_only("mtsamples_replicate"),
    ),
    Patch(
        "patches.custom_tables:read_cells_as_text",
        (_CONFIGURABLE,),  # the whole module: to look into it imports pandas
        Otherwise.FAIL,
        run_specs=_only(names.CONFIGURABLE_RUN_SPEC),
    ),
    Patch(
        "patches.custom_tables:keep_other_columns",
        (f"{_CONFIGURABLE}:MedHELMConfigurableScenario.get_instances",),
        Otherwise.FAIL,
        run_specs=_only(names.CONFIGURABLE_RUN_SPEC),
    ),
)
"""What is read: from where, as what."""

ROBUSTNESS = (
    Patch(
        "unscorable_answers:isolate_unscorable_annotations",
        ("helm.benchmark.annotation_executor:AnnotationExecutor.process",),
    ),
    Patch(
        "unscorable_answers:isolate_unscorable_answers",
        (
            f"{_METRICS}.metric:Processor.process",
            f"{_METRICS}.evaluate_instances_metric:EvaluateInstancesMetric.evaluate",
            f"{_METRICS}.output_processing_metric:OutputProcessingMetric._process_request_state",
            f"{_METRICS}.basic_metrics:compute_perplexity_metrics",
        ),
        stage=Stage.SCORING,
    ),
)
"""One entry, or one answer, that HELM cannot handle costs itself only."""

JURIES = (
    Patch(
        "jury_annotator:ask_judges_in_parallel",
        ("helm.benchmark.annotation.model_as_judge:LLMAsJuryAnnotator.annotate",),
        Otherwise.FAIL,
        run_specs=names.JURY_RUN_SPECS,
        erratum="judge-injection",
    ),
    Patch(
        "patches.optional_deps:replace_missing_spacy_model",
        ("spacy:load", "spacy.util:is_package"),
        stage=Stage.IMPORTED,
        when=has_imported(f"{_METRICS}.summarization_metrics"),
        versions=None,
    ),
    Patch(
        "patches.optional_deps:replace_missing_summ_eval",
        ("summ_eval.data_stats_metric",),
        run_specs=names.JURY_RUN_SPECS,
        versions=None,
    ),
    Patch(
        "patches.optional_deps:leave_out_qafacteval",
        (f"{_METRICS}.summarization_metrics:SummarizationMetric._load_qafacteval",),
        stage=Stage.IMPORTED,
        run_specs=names.JURY_RUN_SPECS,
        when=has_imported(f"{_METRICS}.summarization_metrics"),
    ),
    Patch(
        "patches.optional_deps:leave_out_missing_weights",
        (f"{_METRICS}.summarization_metrics:SummarizationMetric.__init__",),
        stage=Stage.IMPORTED,
        run_specs=names.JURY_RUN_SPECS,
        when=has_imported(f"{_METRICS}.summarization_metrics"),
    ),
)
"""Juries, and the optional packages that their metrics name."""

EXECUTION = (
    Patch(
        "patches.sql_execution:execute_ehr_sql_read_only",
        ("helm.benchmark.annotation.ehr_sql_annotator:EhrSqlAnnotator.annotate",),
        Otherwise.FAIL,
        run_specs=_only("ehr_sql"),
        erratum="ehr-sql-execution",
    ),
    Patch(
        "patches.executed_answers:confine_bird_sql",
        ("helm.benchmark.annotation.bird_sql_annotator:BirdSQLAnnotator.annotate",),
        Otherwise.FAIL,
        run_specs=BIRD_SQL,
        where_unknown=True,
    ),
    Patch(
        "patches.executed_answers:confine_czech_bank_sql",
        (
            "helm.benchmark.annotation.czech_bank_qa_annotator:CzechBankQAAnnotator.__init__",
            "helm.benchmark.annotation.czech_bank_qa_annotator:CzechBankQAAnnotator.annotate",
        ),
        Otherwise.FAIL,
        run_specs=CZECH_BANK,
        where_unknown=True,
    ),
    Patch(
        "patches.executed_answers:confine_python",
        (f"{_METRICS}.code_metrics_helper:check_correctness", f"{_METRICS}.code_metrics:multiprocessing"),
        Otherwise.FAIL,
        run_specs=PYTHON,
        where_unknown=True,
    ),
    Patch(
        "patches.executed_answers:confine_cpp",
        (
            f"{_METRICS}.codeinsights_correct_code_metrics:subprocess",
            f"{_METRICS}.codeinsights_code_evaluation_metrics:subprocess",
        ),
        Otherwise.FAIL,
        run_specs=CODEINSIGHTS,
        where_unknown=True,
    ),
)
"""What executes a model's answer."""

SCENARIOS = (
    Patch(
        "patches.optional_deps:replace_missing_transformers",
        (f"{_SCENARIOS}.medalign_scenario_helper",),
        run_specs=_only("medalign"),
    ),
    Patch(
        "patches.scenarios:accept_medcalc_version",
        (
            f"{_SCENARIOS}.medcalc_bench_scenario:MedCalcBenchScenario.__init__",
            f"{_SCENARIOS}.medcalc_bench_scenario:MedCalcBenchScenario.get_instances",
        ),
        run_specs=_only("medcalc_bench"),
        erratum="medcalc-version",
    ),
    Patch(
        "patches.scenarios:count_cut_medalign_records",
        (
            f"{_SCENARIOS}.medalign_scenario_helper:pack_and_trim_prompts",
            f"{_SCENARIOS}.medalign_scenario:MedalignScenario.get_instances",
        ),
        Otherwise.FAIL,
        run_specs=_only("medalign"),
    ),
    Patch(
        "patches.scenarios:rebuild_ehrshot_prompts",
        (f"{_SCENARIOS}.ehrshot_scenario:EHRSHOTScenario.get_instances",),
        Otherwise.FAIL,
        run_specs=_only("ehrshot"),
        erratum="ehrshot-prompts-of-other-data",
    ),
    Patch(
        "patches.scenarios:supply_medbullets_freetext_scenario",
        (f"{_SCENARIOS}.medbullets_scenario",),
        run_specs=_only("medbullets_freetext"),
        erratum="medbullets-freetext-class",
    ),
    Patch(
        "patches.scenarios:lengthen_medbullets_freetext_answers",
        ("helm.benchmark.run_spec:_REGISTERED_RUN_SPEC_FUNCTIONS",),
        Otherwise.FAIL,
        run_specs=_only("medbullets_freetext"),
        erratum="medbullets-freetext-length",
    ),
)
"""Defects of single scenarios and run specs."""

TORCH = Patch(
    "patches.optional_deps:replace_missing_torch",
    ("helm.common.gpu_utils", f"{_METRICS}.summac.model_summac", "bert_score"),
)

PATCHES = (*DOWNLOADS, *SPEED, TORCH, *ROBUSTNESS, *DATA, *JURIES, *EXECUTION, *SCENARIOS)
"""All of them, in the order in which they are applied."""
