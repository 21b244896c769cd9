"""Of which task and model a stored result is, and what of it may be given away."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from builders import plan
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import NotReportableError
from eval_factory.core.results import (
    AskedEndpoint,
    FailureCause,
    ImportedFrom,
    Score,
    TaskResult,
)
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.report.exports import stored_facts
from eval_factory.report.reader import StoredResult
from eval_factory.report.write import write_reports
from eval_factory.tasks.framework import load_framework
from facts import says
from unit.scoring.test_collect import FOUR, result_of, state

PROMPT = "the patient Ms Doe"
ANSWER = "she has asthma"
REFERENCE = "it is asthma"
CATEGORY = "ward seven"
OF_EACH: dict[str, Any] = {
    "prompt": PROMPT,
    "categories": {"ward": CATEGORY},
    "latency_s": 0.25,
    "prompt_tokens": 9,
    "completion_tokens": 2,
    "finish_reason": "stop",
    "references": ({"text": REFERENCE, "tags": ["correct"]}, {"text": "it is gout", "tags": []}),
}
ASKED = AskedEndpoint(
    "org/model", "host.example", ({"temperature": 0.5, "max_tokens": 9},), 4, {}, 0, None
)


@cache
def four_answers() -> TaskResult:
    """Collected once: of a patient, two of them right."""
    with TemporaryDirectory() as folder:
        made = result_of(
            Path(folder), states=[state(i, ANSWER) for i in range(4)], values={"exact_match": FOUR}
        )
        records = [replace(one, **OF_EACH) for one in made.instances]
    return replace(made, instances=records, groups={"ward": {CATEGORY: made.scores}})


@cache
def a_config() -> dict[str, Any]:
    return plan().evaluation.as_dict()


def result_for(task: str, model: str = "org/model", target: str | None = None) -> TaskResult:
    made = four_answers()
    endpoints = {"model": replace(ASKED, model=model)}
    provenance = replace(
        made.provenance, target=target or model, endpoints=endpoints, helm="0.5.16"
    )
    return replace(made, task=task, provenance=provenance)


def stored_of(task: str, extra: dict[str, Any] | None = None, **names: str) -> StoredResult:
    """As it is read from an output folder."""
    config = deepcopy(a_config())
    config["config"]["params"]["extra"].update(extra or {})
    return StoredResult(
        result_for(task, **names), Path("/a/folder"), "helm-run", config["config"], config["target"]
    )


def folder_of(tmp_path: Path, task: str, **names: str) -> Path:
    """An output folder, written by what writes it in a run."""
    rundir = RunDir(tmp_path / f"{task} results")
    rundir.create()
    result = result_for(task, **names)
    write_reports(
        result, rundir, config=a_config(), command="helm-run", redactor=Redactor(), responses={}
    )
    return rundir.root


def with_scores(stored: StoredResult, **scores: Score) -> StoredResult:
    return replace(stored, result=replace(stored.result, scores={**stored.result.scores, **scores}))


IMPORTED = ImportedFrom("inspect_ai", "0.3.2", {}, (), added=("exact_match.lenient",))


def imported_of(task: str) -> StoredResult:
    """As it is read from the folder of an imported result."""
    stored = stored_of(task)
    provenance = replace(stored.result.provenance, helm=None, imported=IMPORTED)
    return replace(stored, result=replace(stored.result, provenance=provenance))


def not_reportable(
    stored: StoredResult, *reasons: str, causes: tuple[FailureCause, ...] = ()
) -> StoredResult:
    validity = replace(stored.result.validity, not_reportable=reasons, failures=causes)
    return replace(stored, result=replace(stored.result, reportable=False, validity=validity))


@pytest.mark.parametrize(
    ("task", "extra", "access"),
    [
        ("pubmed_qa", {}, "public"),
        ("helm.pubmed_qa", {}, "public"),
        ("ehrshot", {}, "gated"),
        ("shc_bmt_med", {}, "private"),
        ("custom.of_mine", {}, "unknown"),
        ("helm:mmlu", {}, "unknown"),
        ("medhelm_med_qa", {"data_path": "/mine"}, "private"),
        ("pubmed_qa", {"benchmark": "/mine.yml"}, "private"),
        ("ehrshot", {"data_path": "/mine"}, "gated"),
    ],
)
def test_texts_leave_only_where_everybody_can_read_the_data(
    task: str, extra: dict[str, Any], access: str
) -> None:
    stored = stored_of(task, extra=extra)
    assert stored_facts.access_of(stored) == access
    assert stored_facts.may_export_texts(stored) is (access == "public")


def test_no_gated_or_private_task_lets_texts_out_whatever_its_file_says() -> None:
    stored = stored_of("pubmed_qa")
    for task in load_framework().evaluations:
        named = replace(stored, result=replace(stored.result, task=task.name))
        assert stored_facts.may_export_texts(named) is (task.about.access == "public"), task.name
    stored = stored_of("pubmed_qa")
    assert stored_facts.access_of(replace(stored, config={})) == "public"
    assert stored_facts.access_of(replace(stored, config={"params": {"extra": None}})) == "public"


def test_a_metric_is_named_with_the_program_that_computed_it() -> None:
    assert stored_facts.scorer_of(stored_of("pubmed_qa"), "f1") == "helm.f1"
    stored = imported_of("pubmed_qa")
    assert stored_facts.scorer_of(stored, "accuracy") == "inspect_ai.accuracy"
    assert (
        stored_facts.scorer_of(stored, "exact_match.lenient") == "eval-factory.exact_match.lenient"
    )


def test_the_embedded_endpoint_is_no_model_whatever_it_was_called() -> None:
    demo = stored_of("pubmed_qa", target="demo baseline")
    assert not stored_facts.is_of_real_model(demo)
    assert stored_facts.model_id(demo) == "eval-factory/demo-baseline"
    with pytest.raises(NotReportableError, match="demo"):
        stored_facts.refuse_demo(demo)
    stored_facts.refuse_demo(stored_of("pubmed_qa"))
    real = stored_of("pubmed_qa")
    assert stored_facts.is_of_real_model(real)
    assert stored_facts.model_id(real) == "org/model"
    old = replace(real.result.provenance, endpoints={})
    assert (
        stored_facts.model_id(replace(real, result=replace(real.result, provenance=old)))
        == "org/model"
    )


def test_the_digest_tells_results_apart_and_not_folders() -> None:
    one = stored_of("pubmed_qa")
    two = replace(one, folder=Path("/another"))
    assert stored_facts.result_digest(one) == stored_facts.result_digest(two)
    score = replace(one.result.scores["exact_match"], value=0.75)
    provenance = one.result.provenance
    validity = one.result.validity
    changes: list[dict[str, Any]] = [
        {"task": "other"},
        {"status": RunStatus.PARTIAL},
        {"provenance": replace(provenance, run_identity="other")},
        {"provenance": replace(provenance, prompts_sha256="other")},
        {"validity": replace(validity, instances=replace(validity.instances, scored=99))},
        {"validity": replace(validity, instances=replace(validity.instances, failed=99))},
    ]
    others = [
        with_scores(one, exact_match=score),
        with_scores(one, other=score),
        with_scores(
            one, exact_match=replace(score, value=0.5, stats=replace(score.stats, count=5))
        ),
        *(replace(one, result=replace(one.result, **changed)) for changed in changes),
    ]
    assert len({stored_facts.result_digest(stored) for stored in (one, *others)}) == len(others) + 1


def test_why_a_result_may_not_be_reported() -> None:
    stored = stored_of("pubmed_qa")
    assert stored_facts.reasons_against_reporting(stored) == ""
    says(stored_facts.reasons_against_reporting(not_reportable(stored)), "4 of 4 instances")
    both = stored_facts.reasons_against_reporting(
        not_reportable(stored, "for a reason\n  do this", "another")
    )
    says(str(both), "for a reason", "another", "4 of 4 instances")


def test_data_sets_of_the_hub() -> None:
    found = {
        task.name: hub
        for task in load_framework().evaluations
        if (hub := stored_facts.hub_dataset(task))
    }
    assert found["head_qa"] == "dvilares/head_qa"
    assert found["medcalc_bench"] == "ncbi/MedCalc-Bench"
    assert "pubmed_qa" not in found
    assert "mtsamples_replicate" not in found
