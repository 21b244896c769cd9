"""Every patch of HELM: what it replaces, on which versions, for which run specs, and what happens where it cannot.

Nothing of HELM's behaviour is replaced but through this list, in this order, and always in memory: no file of HELM's is
edited. Functions are named, not imported: a run imports the patches that it needs and no other.

A patch is applied to a version of HELM that it was checked against, where its targets are there and the files that
define them are those of that version (`checked_files.json`, made by `scripts/checked_helm_files.py`): a copy of HELM
that somebody edited, or installed from its repository, has the same version and may be something else.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, reduce
from importlib import resources, util
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.safe_files import write_atomic
from eval_factory.helm import names
from eval_factory.helm.packages import SUPPORTED_HELM, installed_helm

ROOM = "eval_factory.helm_plugin"

_When = Callable[[Sequence[str], Mapping[str, str]], bool]
"""Of helm-run's command line and environment."""


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
    when: _When = lambda _argv, _env: True
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


def _has_pins(_argv: Sequence[str], env: Mapping[str, str]) -> bool:
    return HelmRunSettings.from_environment(env).pins is not None


def _loads_no_data_set_of_math(argv: Sequence[str], _env: Mapping[str, str]) -> bool:
    asked = names.asked_run_specs(list(argv))
    return bool(asked) and "math" not in asked


def _has_imported(module: str) -> _When:
    """Of the stage IMPORTED: whether the run uses a module, which it is not to import for a patch."""
    return lambda _argv, _env: module in sys.modules


def _can(function: str, *targets: str, **others: Any) -> Patch:
    return Patch(function, targets, **others)


def _must(function: str, *targets: str, **others: Any) -> Patch:
    return Patch(function, targets, Otherwise.FAIL, **others)


def _speed(function: str, *targets: str, **others: Any) -> Patch:
    return Patch(f"patches.{function}", targets, only_speed=True, **others)


_SCENARIOS = "helm.benchmark.scenarios"
_METRICS = "helm.benchmark.metrics"
_REFERENCES = f"{_METRICS}.evaluate_reference_metrics"
_SUMMARIES = f"{_METRICS}.summarization_metrics"
_ADAPTERS = "helm.benchmark.adaptation.adapters"
_ANNOTATION = "helm.benchmark.annotation"
_MEDALIGN = f"{_SCENARIOS}.medalign_scenario_helper"
_DOWNLOAD = "helm.common.general:ensure_file_downloaded"
_TABLE = f"{_SCENARIOS}.medhelm_configurable_scenario"
_SCORING, _IMPORTED = Stage.SCORING, Stage.IMPORTED

BIRD_SQL, CZECH_BANK = frozenset({"bird_sql", "spider"}), frozenset({"czech_bank_qa"})
PYTHON = frozenset({"cleva", "code"})
CODEINSIGHTS = frozenset(
    {
        "codeinsights_code_efficiency", "codeinsights_correct_code", "codeinsights_student_coding",
        "codeinsights_student_mistake",
    }
)  # fmt: skip
CONFINED = BIRD_SQL | CZECH_BANK | PYTHON | CODEINSIGHTS
"""Run specs whose answers are executed in processes of our own."""
_EHR_SQL, _EHRSHOT, _MEDALIGN_RUN = frozenset({"ehr_sql"}), frozenset({"ehrshot"}), frozenset({"medalign"})
_FREETEXT, _CUSTOM = frozenset({"medbullets_freetext"}), frozenset({names.CONFIGURABLE_RUN_SPEC})

# At which revision data are downloaded, and what is said where that fails.
_DOWNLOADS = (
    _can(
        "patches.pinned_downloads:record_hub_revisions", "datasets.load:load_dataset_builder",
        stage=_IMPORTED, when=_has_imported("datasets"), versions=None,
    ),
    _can("patches.pinned_downloads:name_failed_downloads", _DOWNLOAD),
    _must("patches.pinned_downloads:read_pinned_revisions", _DOWNLOAD, when=_has_pins),
)  # fmt: skip

# What makes helm-run quicker or smaller, and changes nothing of its output.
_QUICKER = (
    _speed("speed:read_yaml_with_the_c_parser", "yaml:SafeLoader", stage=Stage.LOGGING),
    _speed("speed:look_for_garbage_less_often"),
    # The whole module: to look into it imports nltk.
    _speed("speed:download_nltk_data_only_when_needed", f"{_METRICS}.nltk_helper", "nltk.tokenize:word_tokenize"),
    _speed(
        "speed:import_only_the_run_specs_that_are_asked", "helm.benchmark.run_spec:discover_run_spec_functions",
    ),
    _speed(
        "speed:import_metrics_without_what_few_runs_use",
        f"{_METRICS}.basic_metrics", _REFERENCES, f"{_SCENARIOS}.math_scenario",
        when=_loads_no_data_set_of_math,
    ),
    _speed("speed:asked_in_one_thread", "helm.benchmark.executor:parallel_map"),
    _speed(
        "speed:one_window_service",
        "helm.benchmark.window_services.window_service_factory:WindowServiceFactory.get_window_service",
        stage=_SCORING,
    ),
    _speed(
        "slim_scoring:pack_statistics",
        f"{_METRICS}.metric:Processor.process", f"{_METRICS}.metric:Metric.evaluate",
        f"{_METRICS}.metric:compute_worst_case_metrics", f"{_METRICS}.metric_name:MetricName",
        f"{_METRICS}.statistic:Stat", "helm.benchmark.runner:remove_per_instance_stats_nans",
        "helm.benchmark.runner:json", "helm.benchmark.runner:asdict_without_nones", "helm.benchmark.runner:write",
        stage=_SCORING,
    ),
)  # fmt: skip

TORCH = _can(
    "patches.optional_deps:replace_missing_torch",
    "helm.common.gpu_utils", f"{_METRICS}.summac.model_summac", "bert_score",
)  # fmt: skip

# One entry, or one answer, that HELM cannot handle costs itself only.
_ROBUSTNESS = (
    _can(
        "unscorable_answers:isolate_unscorable_annotations",
        "helm.benchmark.annotation_executor:AnnotationExecutor.process",
    ),
    _can(
        "unscorable_answers:isolate_unscorable_answers",
        f"{_METRICS}.metric:Processor.process",
        f"{_METRICS}.evaluate_instances_metric:EvaluateInstancesMetric.evaluate",
        f"{_METRICS}.output_processing_metric:OutputProcessingMetric._process_request_state",
        f"{_METRICS}.basic_metrics:compute_perplexity_metrics",
        stage=_SCORING,
    ),
)  # fmt: skip

# What is read: from where, as what.
_DATA = (
    _must(
        "patches.scenarios:list_procedures_without_github",
        f"{_SCENARIOS}.mtsamples_procedures_scenario:MTSamplesProceduresScenario.get_instances",
        run_specs=frozenset({"mtsamples_procedures"}),
    ),
    _must(
        "patches.scenarios:list_replicates_without_github",
        f"{_SCENARIOS}.mtsamples_replicate_scenario:MTSamplesReplicateScenario.get_instances",
        run_specs=frozenset({"mtsamples_replicate"}),
    ),
    # The whole module: to look into it imports pandas.
    _must("patches.scenarios:read_cells_as_text", _TABLE, run_specs=_CUSTOM),
    _must(
        "patches.scenarios:keep_other_columns", f"{_TABLE}:MedHELMConfigurableScenario.get_instances",
        run_specs=_CUSTOM,
    ),
)  # fmt: skip

# Juries, and the optional packages that their metrics name.
_JURIES = (
    _must(
        "rubric.criterion_judge:ask_judges_in_parallel", f"{_ANNOTATION}.model_as_judge:LLMAsJuryAnnotator.annotate",
        run_specs=names.JURY_RUN_SPECS, erratum="judge-injection",
    ),
    _can(
        "patches.optional_deps:replace_missing_spacy_model", "spacy:load", "spacy.util:is_package",
        stage=_IMPORTED, when=_has_imported(_SUMMARIES), versions=None,
    ),
    _can(
        "patches.optional_deps:replace_missing_summ_eval", "summ_eval.data_stats_metric",
        run_specs=names.JURY_RUN_SPECS, versions=None,
    ),
    _can(
        "patches.optional_deps:leave_out_qafacteval", f"{_SUMMARIES}:SummarizationMetric._load_qafacteval",
        stage=_IMPORTED, run_specs=names.JURY_RUN_SPECS, when=_has_imported(_SUMMARIES),
    ),
    _can(
        "patches.optional_deps:leave_out_missing_weights", f"{_SUMMARIES}:SummarizationMetric.__init__",
        stage=_IMPORTED, run_specs=names.JURY_RUN_SPECS, when=_has_imported(_SUMMARIES),
    ),
)  # fmt: skip

# What executes a model's answer.
_EXECUTION = (
    _must(
        "patches.sql_execution:execute_ehr_sql_read_only", f"{_ANNOTATION}.ehr_sql_annotator:EhrSqlAnnotator.annotate",
        run_specs=_EHR_SQL, erratum="ehr-sql-execution",
    ),
    _must(
        "patches.executed_answers:confine_bird_sql", f"{_ANNOTATION}.bird_sql_annotator:BirdSQLAnnotator.annotate",
        run_specs=BIRD_SQL, where_unknown=True,
    ),
    _must(
        "patches.executed_answers:confine_czech_bank_sql",
        f"{_ANNOTATION}.czech_bank_qa_annotator:CzechBankQAAnnotator.__init__",
        f"{_ANNOTATION}.czech_bank_qa_annotator:CzechBankQAAnnotator.annotate",
        run_specs=CZECH_BANK, where_unknown=True,
    ),
    _must(
        "patches.executed_answers:confine_python",
        f"{_METRICS}.code_metrics_helper:check_correctness", f"{_METRICS}.code_metrics:multiprocessing",
        run_specs=PYTHON, where_unknown=True,
    ),
    _must(
        "patches.executed_answers:confine_cpp",
        f"{_METRICS}.codeinsights_correct_code_metrics:subprocess",
        f"{_METRICS}.codeinsights_code_evaluation_metrics:subprocess",
        run_specs=CODEINSIGHTS, where_unknown=True,
    ),
)  # fmt: skip

# Defects of single scenarios and run specs.
_DEFECTS = (
    _can("patches.optional_deps:replace_missing_transformers", _MEDALIGN, run_specs=_MEDALIGN_RUN),
    _can(
        "patches.scenarios:accept_medcalc_version",
        f"{_SCENARIOS}.medcalc_bench_scenario:MedCalcBenchScenario.__init__",
        f"{_SCENARIOS}.medcalc_bench_scenario:MedCalcBenchScenario.get_instances",
        run_specs=frozenset({"medcalc_bench"}), erratum="medcalc-version",
    ),
    _must(
        "patches.scenarios:count_cut_medalign_records",
        f"{_MEDALIGN}:pack_and_trim_prompts", f"{_SCENARIOS}.medalign_scenario:MedalignScenario.get_instances",
        run_specs=_MEDALIGN_RUN,
    ),
    _must(
        "patches.scenarios:rebuild_ehrshot_prompts", f"{_SCENARIOS}.ehrshot_scenario:EHRSHOTScenario.get_instances",
        run_specs=_EHRSHOT, erratum="ehrshot-prompts-of-other-data",
    ),
    _can(
        "patches.scenarios:supply_medbullets_freetext_scenario", f"{_SCENARIOS}.medbullets_scenario",
        run_specs=_FREETEXT, erratum="medbullets-freetext-class",
    ),
    _must(
        "patches.scenarios:lengthen_medbullets_freetext_answers",
        "helm.benchmark.run_spec:_REGISTERED_RUN_SPEC_FUNCTIONS",
        run_specs=_FREETEXT, erratum="medbullets-freetext-length",
    ),
)  # fmt: skip

PATCHES = (*_DOWNLOADS, *_QUICKER, TORCH, *_ROBUSTNESS, *_DATA, *_JURIES, *_EXECUTION, *_DEFECTS)
"""All of them, in the order in which they are applied."""

_applied: list[Patch] = []
_left_out: dict[str, str] = {}
"""Name -> why it could not be applied."""


def apply_patches(stage: Stage, patches: tuple[Patch, ...] = PATCHES) -> None:
    """All of a stage that this helm-run asks for; a second time only those that were not applied yet.

    Raises:
        PrerequisiteError: one cannot be applied that the run may not go on without.
    """
    helm = installed_helm()
    asked = names.asked_run_specs(sys.argv)
    without = HelmRunSettings.from_environment(os.environ).without
    for patch in patches:
        if patch.stage is not stage or patch in _applied or patch.name in _left_out:
            continue
        chosen = not (patch.only_speed and without & {"all", patch.name})
        if chosen and patch.is_asked_for(asked, sys.argv, os.environ):
            _apply(patch, helm)


def _apply(patch: Patch, helm: str) -> None:
    reason = objection(patch, helm)
    if reason is not None and patch.otherwise is Otherwise.FAIL:
        raise PrerequisiteError(
            f"HELM cannot be patched for this run ({patch.name}): {reason}; supported: HELM"
            f" {' or '.join(SUPPORTED_HELM)} as it was published. Nothing was asked"
        )
    if reason is None:
        try:
            if patch.load()() is not False:
                _applied.append(patch)
        except Exception as error:  # whatever this Python, or another package, does here
            if patch.otherwise is Otherwise.FAIL:
                raise
            reason = f"{type(error).__name__}: {one_line(str(error))}"
    if reason is not None:
        _left_out[patch.name] = reason
        print(f"warning: going on without {patch.name}: {reason}", file=sys.stderr)


def objection(patch: Patch, helm: str) -> str | None:
    """Why a patch may not be applied to the HELM that is installed; None where it may."""
    if patch.versions is None:
        return None
    if helm not in patch.versions:
        return f"HELM {helm} is installed"
    problems = (_problem_of(target, helm) for target in patch.helm_targets)
    return next((problem for problem in problems if problem is not None), None)


def _problem_of(target: str, helm: str) -> str | None:
    """Why a target is not the one that is known."""
    module, _, attribute = target.partition(":")
    try:
        spec = util.find_spec(module)
        owner = importlib.import_module(module) if attribute and spec is not None else None
    except ModuleNotFoundError as error:
        # One of another package is no matter of HELM's version: the patch, or HELM, says what is missing.
        is_helms = (error.name or "").partition(".")[0] == "helm"
        return f"HELM has no module {error.name}" if is_helms else None
    except Exception:  # neither is what else such a package raises while HELM imports it
        return None
    if spec is None:
        return f"HELM has no module {module}"
    if _is_changed(module, Path(spec.origin or ""), helm):
        return f"{module} is not as in HELM {helm}"
    try:
        reduce(getattr, attribute.split(".") if attribute else (), owner)
    except AttributeError:
        return f"HELM has no {attribute} in {module}"
    return None


def _is_changed(module: str, file: Path, helm: str) -> bool:
    known = _checked_files().get(helm, {}).get(module)
    try:
        return known is not None and hashlib.sha256(file.read_bytes()).hexdigest() != known
    except OSError:  # HELM in an archive
        return False


@cache
def _checked_files() -> dict[str, dict[str, str]]:
    """Version of HELM -> module with targets -> SHA-256 of its file."""
    text = (resources.files("eval_factory.helm_plugin.patches") / "checked_files.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, str]] = json.loads(text)
    return loaded


def warning() -> str | None:
    """What a user should know of patches that could not be applied."""
    helm = installed_helm()
    if helm not in SUPPORTED_HELM:
        supported = " and ".join(SUPPORTED_HELM)
        return f"HELM {helm} is installed; {supported} is supported: it is run without patches"
    if _left_out:
        return "HELM is run without " + "; ".join(f"{name} ({reason})" for name, reason in _left_out.items())
    return None


def record_patches(file: Path) -> None:
    """Which were applied so far, and for which run specs, for the result's provenance."""
    applied: list[dict[str, Any]] = [
        {
            "name": patch.name,
            "run_specs": None if patch.run_specs is None else sorted(patch.run_specs),
            "erratum": patch.erratum,
        }
        for patch in _applied
    ]
    write_atomic(file, json.dumps({"applied": applied, "left_out": _left_out}, indent=2) + "\n")
