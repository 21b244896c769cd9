"""Which of a run's metrics is its main one."""

from __future__ import annotations

from collections.abc import Sequence

from eval_factory.tasks.framework import HelmEntry

USUAL_MAIN_METRICS = (
    "exact_match", "quasi_exact_match", "prefix_exact_match", "quasi_prefix_exact_match", "exact_match_indicator",
    "final_number_exact_match", "f1_score", "classification_macro_f1", "math_equiv", "rouge_l", "rouge_2", "rouge_1",
    "bleu_4", "bleu", "chr_f_plus_plus", "wer_score",
)  # fmt: skip
"""Taken in this order where HELM names none of a run entry's metrics as its main one. docs/any-helm-benchmark.md."""

NONE = "none"


def chosen_main_metric(entry: HelmEntry, labels: Sequence[str]) -> tuple[str, list[str]]:
    """(the main metric, what a reader has to know about the choice).

    A task of framework.yml has the one it declares, computed or not. A run entry has HELM's where the run holds it,
    else the one named after the run spec (live_qa_score), else the first usual one, else the first of the main split.

    Args:
        labels: of the scores that the run holds, in HELM's order.
    """
    if not entry.any_run_spec and entry.main_metric is not None:
        return entry.main_metric, []
    declared = next((name for name in entry.main_metrics if name in labels), None)
    if declared is not None:
        return declared, []
    of_main_split = [label for label in labels if _is_plain(label)]
    usual = (f"{entry.run_spec}_score", *USUAL_MAIN_METRICS)
    main = next((name for name in usual if name in labels), next(iter(of_main_split), None))
    if main is None:
        return NONE, ["HELM computed no score for this run: nothing is reportable"]
    said = f"{' or '.join(entry.main_metrics)}, which this run does not hold" if entry.main_metrics else "none"
    return main, [f"main metric: HELM names {said}; {main} was taken, the first that the run holds of a fixed list"]


def _is_plain(label: str) -> bool:
    """Whether a score is of the main split: after an `@` in HELM's own name of a metric (NDCG@10) stands a number."""
    _, _, last = label.rpartition("@")
    return "@" not in label or last.isdigit()
