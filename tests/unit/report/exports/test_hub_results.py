"""A stored result -> an entry of `.eval_results/` as the Hugging Face Hub reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from huggingface_hub import EvalResultEntry
from huggingface_hub._eval_results import parse_eval_result_entries

from eval_factory.core.errors import ConfigError, NotReportableError
from eval_factory.report.exports.hub_results import hub_entry
from eval_factory.report.reader import StoredResult
from facts import naming, says
from unit.report.exports.test_stored_facts import (
    imported_of,
    not_reportable,
    stored_of,
    with_scores,
)


def parsed(stored: StoredResult, *, allow: bool = False) -> EvalResultEntry:
    """By the Hub's own library."""
    text = hub_entry(stored, task_id="a_task", allow_not_reportable=allow)
    (found,) = parse_eval_result_entries(yaml.safe_load(text))
    return found


def read_at(stored: StoredResult, **revisions: str) -> StoredResult:
    read = {f"hub:{name}": revision for name, revision in revisions.items()}
    record = replace(stored.result.provenance, dataset_revisions=read)
    return replace(stored, result=replace(stored.result, provenance=record))


def test_the_hubs_library_reads_the_entry() -> None:
    found = parsed(
        read_at(
            stored_of("head_qa"), **{"dvilares/head_qa": "6be594abd481701ec132165d8f74e1a4cc4d06b8"}
        )
    )
    assert (found.dataset_id, found.task_id, found.value) == ("dvilares/head_qa", "a_task", 0.5)
    assert found.dataset_revision == "6be594abd481701ec132165d8f74e1a4cc4d06b8"
    assert found.notes is not None
    says(found.notes, "exact_match", "HELM 0.5.16", "eval-factory")
    says(found.notes, "95 % interval", "0.15 to 0.85", "4 instances scored", "2675")
    assert "NOT REPORTABLE" not in found.notes


def test_an_imported_result_names_its_program() -> None:
    notes = str(parsed(imported_of("head_qa")).notes)
    says(notes, "exact_match", "inspect_ai 0.3.2", "imported by eval-factory")
    assert "HELM" not in notes


def test_what_was_chosen_of_the_data_is_noted_and_no_interval_that_is_not_there() -> None:
    found = parsed(stored_of("head_qa", extra={"language": "es", "category": "nursery"}))
    assert found.notes is not None
    says(found.notes, "language: es", "category: nursery")
    edition = read_at(
        stored_of("medcalc_bench", extra={"version": "v1.0"}),
        **{"ncbi/MedCalc-Bench-v1.0": "a" * 40},
    )
    assert parsed(edition).dataset_revision is None, "of another data set"
    stored = stored_of("head_qa")
    score = stored.result.scores["exact_match"]
    bare = with_scores(stored, exact_match=replace(score, stats=replace(score.stats, ci_high=None)))
    assert "interval" not in (parsed(bare).notes or "")


def test_the_revision_is_the_one_that_was_read_and_no_other_is_claimed() -> None:
    """The pinned one says what a run was told to read; offline it may have read what was there."""
    unknown = parsed(stored_of("head_qa"))
    assert unknown.dataset_revision is None
    says(str(unknown.notes), "unknown revision")
    other = parsed(read_at(stored_of("head_qa"), **{"dvilares/head_qa": "b" * 40}))
    assert (other.dataset_revision, "revision" in str(other.notes)) == ("b" * 40, False)


@pytest.mark.parametrize(
    ("task", "extra", "message"),
    [
        ("ehrshot", {}, "the data of ehrshot are gated"),
        ("shc_bmt_med", {}, "the data of shc_bmt_med are private"),
        ("custom.mine", {}, "the data of custom.mine are unknown"),
        ("head_qa", {"data_path": "/mine"}, "the data of head_qa are private"),
        ("pubmed_qa", {}, r"not a data set of the Hugging Face Hub \(GitHub pubmedqa/pubmedqa\)"),
        ("sample_medical_qa", {}, "not a data set of the Hugging Face Hub"),
    ],
)
def test_other_than_public_data_sets_of_the_hub_are_refused(
    task: str, extra: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        hub_entry(stored_of(task, extra=extra), task_id="x", allow_not_reportable=True)
    assert "export eee" in str(refused.value)


def test_a_score_that_may_not_be_reported_needs_leave_and_says_so() -> None:
    stored = not_reportable(stored_of("head_qa"), "too few answers")
    with pytest.raises(
        NotReportableError, match=naming("too few answers", "4 of 4", "--allow_not_reportable")
    ):
        hub_entry(stored, task_id="x", allow_not_reportable=False)
    notes = parsed(stored, allow=True).notes
    assert notes is not None
    says(notes, "NOT REPORTABLE: ", "too few answers", "4 of 4 instances")


def test_without_a_main_score_or_a_model_there_is_no_entry() -> None:
    stored = stored_of("head_qa")
    score = stored.result.scores["exact_match"]
    for scores in ({"other": score}, {"exact_match": replace(score, value=float("nan"))}):
        with pytest.raises(ConfigError, match="no score exact_match"):
            hub_entry(
                replace(stored, result=replace(stored.result, scores=scores)),
                task_id="x",
                allow_not_reportable=True,
            )
    with pytest.raises(NotReportableError, match="demo"):
        hub_entry(
            stored_of("head_qa", target="demo baseline"), task_id="x", allow_not_reportable=True
        )
