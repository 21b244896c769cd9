"""States the direction, scale and unit of HELM's metrics, and chooses a run's main metric.

The facts come from the code of HELM's metrics (crfm-helm 0.5.16). A metric that is not in the table
is unknown, unless its values have the scale of HELM's juries (`metric_facts_of`). `tests/helm`
compares the directions with HELM's own `static/schema_*.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from eval_factory.tasks import rubric_case
from eval_factory.tasks.concordance import CONCORDANCE_METRICS
from eval_factory.tasks.framework import HelmEntry
from eval_factory.tasks.jury_form import HELMS_JURY_FORM


@dataclass(frozen=True)
class MetricFacts:
    """The facts about a metric; a fact is None if it is unknown or not defined.

    For instance, the length of a summary has no direction: a longer summary may be better or worse.
    """

    higher_is_better: bool | None = None
    scale: tuple[float, float] | None = None
    """The lowest and the highest possible value; None if a limit is missing or unknown."""
    unit: str | None = None


_ZERO_TO_ONE = (0.0, 1.0)

_SHARE = MetricFacts(higher_is_better=True, scale=_ZERO_TO_ONE, unit="share")
"""The facts about shares: accuracy, precision and recall."""
OVERLAP = MetricFacts(higher_is_better=True, scale=_ZERO_TO_ONE, unit="overlap")
"""The facts about the overlap of words of answer and reference: ROUGE, BLEU, F1 of words."""
_RATING = MetricFacts(higher_is_better=True, scale=HELMS_JURY_FORM.scale, unit="rating")
"""The facts about the mean of a jury's ratings."""
F1 = MetricFacts(higher_is_better=True, scale=_ZERO_TO_ONE, unit="F1")
SIMILARITY = MetricFacts(higher_is_better=True, unit="similarity")
"""The facts about BERTScore, which is rescaled: an answer worse than a random text is below 0."""
ERROR_RATE = MetricFacts(higher_is_better=False, unit="errors per word")
"""The facts about word error rates.

A rate may exceed 1, because an answer may hold more wrong words than the reference has words.
"""

POINTS = MetricFacts(higher_is_better=True, scale=_ZERO_TO_ONE, unit="share of points")
"""The facts about a rubric's score, which is clipped to 0..1 as published."""
UNCLIPPED_POINTS = MetricFacts(higher_is_better=True, unit="share of points")
"""The facts about a rubric's unclipped score.

The score has no lowest value, because a case may lose more points than it can win.
"""

JURY_METRICS = (
    "aci_bench_accuracy",
    "chw_care_plan_accuracy",
    "dischargeme_accuracy",
    "med_dialog_accuracy",
    "medalign_accuracy",
    "medi_qa_accuracy",
    "medication_qa_accuracy",
    "mental_health_accuracy",
    "mimic_bhc_accuracy",
    "mimic_rrs_accuracy",
    "mtsamples_procedures_accuracy",
    "mtsamples_replicate_accuracy",
    "starr_patient_instructions_accuracy",
    "jury_score",
)
"""The metrics of HELM's juries. HELM calls most of them accuracies, but they are means of ratings.
"""

_MATCHES = ("exact_match", "quasi_exact_match", "prefix_exact_match", "quasi_prefix_exact_match")
_MATCH_METRICS = (*_MATCHES, *(f"{name}@5" for name in _MATCHES))
_RUBRIC_METRICS = (
    rubric_case.RUBRIC_METRIC,
    rubric_case.HEALTHBENCH_METRIC,
    rubric_case.PROFESSIONAL_METRIC,
    rubric_case.DIAGNOSIS_METRIC,
)
_UNCLIPPED_SUFFIXES = (rubric_case.UNCLIPPED_SUFFIX, rubric_case.JUDGE_CORRECTED_SUFFIX)
_UNCLIPPED_METRICS = tuple(
    metric + suffix for metric, suffix in product(_RUBRIC_METRICS, _UNCLIPPED_SUFFIXES)
)

_FACTS = {
    **dict.fromkeys(_MATCH_METRICS, _SHARE),
    **dict.fromkeys(JURY_METRICS, _RATING),
    **dict.fromkeys(
        ("rouge_1", "rouge_2", "rouge_l", "bleu", "bleu_1", "bleu_4", "f1_score"), OVERLAP
    ),
    **dict.fromkeys(("BERTScore-P", "BERTScore-R", "BERTScore-F"), SIMILARITY),
    **dict.fromkeys(
        ("classification_macro_f1", "classification_micro_f1", "mimiciv_billing_code_f1"), F1
    ),
    **dict.fromkeys(("wer_score", "mer_score"), ERROR_RATE),
    **dict.fromkeys(
        (
            "medcalc_bench_accuracy",
            "medec_error_flag_accuracy",
            "medec_error_sentence_accuracy",
            "mimiciv_billing_code_precision",
            "mimiciv_billing_code_recall",
            "ehr_sql_execution_accuracy",
            "ehr_sql_query_validity",
            "ehr_sql_precision_answerable",
            "ehr_sql_recall_answerable",
            "math_equiv",
            "exact_match_indicator",
            "final_number_exact_match",
            "chain_of_thought_correctness",
        ),
        _SHARE,
    ),
    # medhelm's metrics begin with `health_bench`, and eval-factory's with `healthbench`
    **dict.fromkeys(
        (*_RUBRIC_METRICS, "health_bench_score", "health_bench_professional_score"), POINTS
    ),
    **dict.fromkeys(_UNCLIPPED_METRICS, UNCLIPPED_POINTS),
    rubric_case.PROFESSIONAL_METRIC + rubric_case.LENGTH_ADJUSTED_SUFFIX: UNCLIPPED_POINTS,
    **dict.fromkeys(("sct_score", "sct_expert_set_membership", *CONCORDANCE_METRICS), _SHARE),
    # The first is the share of the questions that the model took for answerable. The second is the
    # share of the questions that are answerable. Neither a higher nor a lower share is better.
    "ehr_sql_total_predicted_answerable": MetricFacts(scale=_ZERO_TO_ONE, unit="share"),
    "ehr_sql_total_ground_truth_answerable": MetricFacts(scale=_ZERO_TO_ONE, unit="share"),
    # Grusky et al., NAACL 2018. Coverage: the share of the answer's words that are copied from the
    # source. Density: the sum of the squared lengths of the copied fragments, divided by the length
    # of the answer. Compression: the words of the source per word of the answer.
    "summarization_coverage": MetricFacts(scale=_ZERO_TO_ONE, unit="share"),
    "summarization_density": MetricFacts(unit="words"),
    "summarization_compression": MetricFacts(unit="ratio"),
}

# the end of "exact_match.lenient", "sct_score.corrected.repeats_mean"
_ADDED_SUFFIXES = (
    r"(?:\.(?:corrected|lenient|reasoned|with_asked|helm|all_judges|all_orders|repeats_mean))+$"
)
"""The suffixes of scores that eval-factory adds to a metric of HELM.

Such a score has the metric's direction, scale and unit.
"""


def metric_facts_of(name: str, scale: tuple[float, float] | None = None) -> MetricFacts:
    """Return the facts about a metric.

    Args:
        name: the metric's name without split and perturbation. The name may end with a suffix that
            eval-factory adds.
        scale: the scale of this run's values; None if it is not known. An unknown metric with the
            scale of HELM's juries counts as a jury's rating.
    """
    facts = _FACTS.get(re.sub(_ADDED_SUFFIXES, "", name))
    if facts is None and scale == HELMS_JURY_FORM.scale:
        return _RATING
    return facts or MetricFacts()


# Statistics with these names or prefixes are about the run, not about the answers: no scores.
BOOKKEEPING_PREFIXES = (
    "num_",
    "finish_reason_",
    "training_",
    "inference_",
    "batch_size",
    "max_prob",
    "logprob",
)
BOOKKEEPING = frozenset(
    {"predicted_index", "prompt_length", "prompt_truncated", "perplexity", "bits_per_byte"}
)


def is_score(name: str) -> bool:
    """Return True if a statistic of HELM measures the quality of the answers."""
    return name not in BOOKKEEPING and not name.startswith(BOOKKEEPING_PREFIXES)


USUAL_MAIN_METRICS = (
    "exact_match",
    "quasi_exact_match",
    "prefix_exact_match",
    "quasi_prefix_exact_match",
    "exact_match_indicator",
    "final_number_exact_match",
    "f1_score",
    "classification_macro_f1",
    "math_equiv",
    "rouge_l",
    "rouge_2",
    "rouge_1",
    "bleu_4",
    "bleu",
    "chr_f_plus_plus",
    "wer_score",
    "expected_clip_score",
)
"""The metrics among which the main metric is chosen, in this order, if HELM declares none.

See docs/any-helm-benchmark.md.
"""

NONE = "none"  # the main metric of a run without any score


def chosen_main_metric(entry: HelmEntry, labels: Sequence[str]) -> tuple[str, list[str]]:
    """Return (the main metric, notes for the reader about the choice).

    If a task of framework.yml declares a main metric, the declared metric is returned, even if the
    run does not compute it. In all other cases, the main metric is the first of these metrics for
    which the run has a score:

    - the metric that HELM declares,
    - the metric that is named after the run spec, such as live_qa_score,
    - the first of `USUAL_MAIN_METRICS`,
    - the first score of the main split.

    Args:
        entry: the facts about the task.
        labels: the labels of the scores that the run holds, in HELM's order.
    """
    # A run entry is a task that the user wrote (`helm:NAME`), not a task of framework.yml.
    if not entry.is_run_entry and entry.main_metric is not None:
        return entry.main_metric, []
    for name in entry.main_metrics:  # the metrics that HELM declares
        if name in labels:
            return name, []
    main = _undeclared_main_metric(entry.run_spec, labels)
    if main is None:
        return NONE, ["HELM computed no score for this run: nothing is reportable"]
    declared = "none"
    if entry.main_metrics:
        declared = f"{' or '.join(entry.main_metrics)}, which this run does not hold"
    note = (
        f"main metric: HELM names {declared}; eval-factory chose {main}, the first of a fixed "
        "list that the run holds"
    )
    return main, [note]


def _undeclared_main_metric(run_spec: str, labels: Sequence[str]) -> str | None:
    """Return the main metric if HELM declares none; None if the main split has no score."""
    for name in (f"{run_spec}_score", *USUAL_MAIN_METRICS):
        if name in labels:
            return name
    for label in labels:
        # A label of the main split has no `@`, except in a metric's name, where a number follows
        # (NDCG@10). The label of another split is `metric@split`.
        _, at_sign, end = label.rpartition("@")
        if not at_sign or end.isdigit():
            return label
    return None
