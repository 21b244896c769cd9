from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import yaml

from builders import plan
from eval_factory.core import results
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.results import (
    Floor,
    Judgements,
    JuryReport,
    Score,
    SpentByRole,
    Stats,
    TaskResult,
    Usage,
)
from eval_factory.report import documents
from eval_factory.report.reader import result_of_document
from stored_results import instance
from unit.report.test_result_sentences import FOUND
from unit.report.test_summary import spent


def document_of(result: TaskResult, **changes: Any) -> dict[str, Any]:
    document = documents.evaluation_config_document(
        replace(result, **changes), plan().evaluation.as_given(), "x"
    )
    documents.check_document(document, documents.EVALUATION_CONFIG_SCHEMA)
    return document


def test_documents_are_of_their_schemas_which_refuse_what_they_do_not_know(
    result: TaskResult,
) -> None:
    document = document_of(result)
    other = documents.results_yml_document(result, plan().evaluation.as_dict(), "helm-run x")
    documents.check_document(other, documents.RESULTS_SCHEMA)
    assert list(other) == ["git_hash", "command", "config", "target", "results"]
    assert yaml.safe_load(to_yaml(document)) == document
    assert list(document) == [
        "schema_version",
        "status",
        "main_metric",
        "results",
        "validity",
        "comparability",
        "usage",
        "provenance",
        "config",
        "target",
        "command",
    ]
    assert document["schema_version"] == 2
    with pytest.raises(jsonschema.ValidationError):
        documents.check_document(
            {**document_of(result), "surprise": 1}, documents.EVALUATION_CONFIG_SCHEMA
        )


def test_what_people_say_stands_after_validity_and_is_read_again(result: TaskResult) -> None:
    document = document_of(result, clinicians=FOUND)
    names = list(document)
    assert names[names.index("clinicians") - 1] == "validity"
    assert document["clinicians"] == {
        "rated": 40,
        "answers": 200,
        "raters": 2,
        "ratings": 80,
        "corrected": {
            "metric": "jury",
            "value": 3.51234,
            "ci_low": 3.2,
            "ci_high": 3.8,
            "ci_method": "ppi++-stratified",
            "power": 0.8,
            "judge_value": 4.5,
        },
        "agreement": {"n": 38, "alpha": 0.5, "icc": 0.625, "ac1": 0.7},
        "judges": {
            "kind": {
                "n": 40,
                "icc": 0.4,
                "weighted_kappa": 0.3,
                "bias": 1.0,
                "bias_low": 0.8,
                "bias_high": 1.2,
            }
        },
        "notes": ["a note"],
    }
    assert result_of_document(yaml.safe_load(to_yaml(document)), ()).clinicians == FOUND
    few = replace(
        FOUND,
        corrected=None,
        too_few=results.TooFewRated(3, 30),
        agreement=None,
        judges={},
        notes=(),
    )
    document = document_of(result, clinicians=few)
    assert document["clinicians"] == {
        "rated": 40,
        "answers": 200,
        "raters": 2,
        "ratings": 80,
        "too_few": {"rated": 3, "needed": 30},
    }
    assert result_of_document(document, ()).clinicians == few


@pytest.mark.parametrize(("patches", "shown"), [(None, "none"), ((), []), (("a", "b"), ["a", "b"])])
def test_patches_are_a_list_or_unknown(result: TaskResult, patches: Any, shown: Any) -> None:
    document = document_of(result, provenance=replace(result.provenance, patches=patches))
    assert document["provenance"].get("patches", "none") == shown


def test_lines(result: TaskResult) -> None:
    instance = documents.instance_fields(next(iter(result.instances)))
    assert instance["id"] == "id0"
    assert instance["extra.category"] == "even"
    assert "extra.long" not in instance
    line = documents.result_fields(next(iter(result.instances)))
    assert (line["completion"], line["metrics"]) == ("<b>yes</b>", {"exact_match": 1.0})


def test_usage_is_of_this_run_at_the_top_and_then_of_all_runs() -> None:
    both = {"gpt": spent(4, 40), "model": spent(3, None)}
    usage = Usage(SpentByRole(spent(7, 40), both), SpentByRole(spent(9, 90), both), 3, 1.0)
    document = documents.usage_section(usage)
    all_runs = document["all_runs"]
    assert (document["requests"], document["wall_s"], list(document["this_run"])) == (
        7,
        1.0,
        ["roles"],
    )
    assert document["this_run"]["roles"]["gpt"]["prompt_tokens"] == 40
    assert (all_runs["runs"], all_runs["requests"], all_runs["roles"]["gpt"]["requests"]) == (
        3,
        9,
        4,
    )


@pytest.mark.parametrize(
    ("roles", "all_requests", "runs", "beside"),
    [
        ({"model": spent(7, 40)}, 7, 1, set()),
        ({"model": spent(7, 40)}, 9, 1, {"all_runs"}),
        ({"model": spent(7, 40)}, 7, 2, {"all_runs"}),
        ({}, 7, 1, {"this_run"}),
        (
            {"model": spent(6, 40)},
            7,
            1,
            {"this_run"},
        ),  # the journal also tells of somebody else's requests
    ],
)
def test_figures_that_repeat_others_are_left_out(
    roles: Any, all_requests: int, runs: int, beside: set[str]
) -> None:
    this_run = SpentByRole(spent(7, 40), roles)
    usage = Usage(this_run, SpentByRole(spent(all_requests, 40), roles), runs, 1.0)
    assert {"this_run", "all_runs"} & documents.usage_section(usage).keys() == beside


def scores_of(document: Any) -> Any:
    return document["results"]["tasks"]["pubmed_qa"]["metrics"]["score"]["scores"]


LONG = 1 / 3


def long_score(**more: Any) -> Score:
    """With digits that say nothing."""
    return Score(
        LONG,
        Stats(3, LONG, stddev=LONG, stderr=LONG, ci_low=LONG, ci_high=2 / 3, ci_method="wilson"),
        **more,
    )


def test_a_score_says_only_what_its_name_does_not(result: TaskResult) -> None:
    facts = {"higher_is_better": True, "scale": (0.0, 1.0), "unit": "share"}
    scores = {
        "other": long_score(metric="other", split="test"),
        "exact_match": long_score(metric="exact_match", split="test", **facts),
        "exact_match@valid+typos": long_score(
            metric="exact_match", split="valid", perturbation="typos", **facts
        ),
    }
    written = scores_of(document_of(result, scores=scores))
    assert list(written) == ["exact_match", "other", "exact_match@valid+typos"]
    assert str(written["exact_match"]["scale"]) == "[0, 1]"
    for score in written.values():
        del score["value"], score["stats"]
    known = {"higher_is_better": True, "scale": [0, 1], "unit": "share"}
    assert list(written.values()) == [
        known,
        dict.fromkeys(known),
        {**known, "metric": "exact_match", "split": "valid", "perturbation": "typos"},
    ]


def test_values_are_whole_and_their_statistics_are_rounded(result: TaskResult) -> None:
    changes: dict[str, Any] = {
        "scores": {"exact_match": long_score(metric="exact_match", split="test")}
    }
    stats = {
        "count": 3,
        "mean": LONG,
        "stddev": 0.333333,
        "stderr": 0.333333,
        "ci_low": 0.333333,
        "ci_high": 0.666667,
        "ci_method": "wilson",
    }
    main = scores_of(document_of(result, **changes))["exact_match"]
    assert (main["value"], main["stats"]) == (LONG, stats)
    other = scores_of(
        documents.results_yml_document(replace(result, **changes), plan().evaluation.as_dict(), "x")
    )
    assert other == {"exact_match": {"value": LONG, "stats": stats}}
    validity = replace(
        result.validity,
        judgements=Judgements(3, 2),
        bounds={"exact_match": (LONG, 2 / 3)},
        jury=JuryReport({"a": 13 / 3}, LONG, {"a/b": None}, {"a": 14 / 3}),
    )
    written = document_of(result, validity=validity)["validity"]
    assert (written["coverage"], written["bounds"]) == (0.666667, {"exact_match": [LONG, 2 / 3]})
    assert written["jury"] == {
        "means": {"a": 4.33333},
        "krippendorff_alpha": 0.333333,
        "weighted_kappa": {"a/b": None},
        "leave_one_out": {"a": 4.66667},
    }
    assert validity.jury is not None
    own = replace(validity.jury, labels={"poor": 0, "good": 3}, criteria={"right": ""})
    again = document_of(result, validity=replace(validity, jury=own))["validity"]["jury"]
    assert again == {**written["jury"], "labels": {"poor": 0, "good": 3}, "criteria": {"right": ""}}
    of_length = {"a": results.RankCorrelation(1 / 3, 0.0, 2 / 3, 40), "b": None}
    follows = replace(validity.jury, length_correlation=of_length)
    again = document_of(result, validity=replace(validity, jury=follows))["validity"]["jury"]
    assert again["length_correlation"] == {
        "a": {"rho": 0.333333, "ci_low": 0.0, "ci_high": 0.666667, "count": 40},
        "b": None,
    }


def test_a_floor_is_called_assumed_where_it_is(result: TaskResult) -> None:
    floors = {"exact_match": Floor("empty", 1.0, 4, {"empty": 1.0}, assumed=True)}
    floors["other"] = replace(floors["exact_match"], assumed=False)
    written = document_of(result, validity=replace(result.validity, floors=floors))["validity"][
        "floors"
    ]
    assert written["exact_match"]["assumed"] is True
    assert "assumed" not in written["other"]


def test_seconds_have_four_digits(result: TaskResult) -> None:
    line = documents.result_fields(
        replace(next(iter(result.instances)), latency_s=0.001623436000016909)
    )
    assert line["latency_s"] == 0.001623
    total = replace(spent(1, 1), latency_p50_s=1.23456, latency_p95_s=None)
    usage = documents.usage_section(
        Usage(SpentByRole(total, {"model": total}), SpentByRole(total, {}), 1, 5.211292468000465)
    )
    assert (usage["latency_p50_s"], usage["latency_p95_s"], usage["wall_s"]) == (1.235, None, 5.211)
    assert usage["all_runs"]["latency_p50_s"] == 1.235


def test_groups_hold_groups_alone(result: TaskResult) -> None:
    known = long_score(metric="exact_match", split="test", unit="share", scale=(0, 1))
    groups = {
        "category": {
            "a": {"exact_match": known},
            "b": {"exact_match": replace(known, scale=(1, 5))},
        }
    }
    written = document_of(result, scores={"exact_match": known}, groups=groups)["results"]["groups"]
    assert list(written["pubmed_qa"]) == ["groups"]
    by_category = written["pubmed_qa"]["groups"]["category"]["groups"]
    a, b = (by_category[value]["metrics"]["score"]["scores"]["exact_match"] for value in "ab")
    assert set(a) == {"value", "stats"}
    assert set(b) == {"value", "stats", "scale"}
    assert document_of(result, groups={})["results"]["groups"] == {}
    alone = document_of(result, scores={}, groups=groups)["results"]["groups"]["pubmed_qa"][
        "groups"
    ]["category"]
    assert alone["groups"]["a"]["metrics"]["score"]["scores"]["exact_match"]["unit"] == "share"


def test_the_main_score_is_a_value_a_line_and_the_others_are_in_short(result: TaskResult) -> None:
    score = long_score(metric="exact_match", split="test")
    scores = {"exact_match": score, "other": replace(score, metric="other")}
    text = to_yaml(document_of(result, scores=scores))
    assert (
        "            exact_match:\n              value: 0.3333333333333333\n              stats: {count: 3, "
        in text
    )
    assert "\n            other: {value: 0.3333333333333333, stats: {count: 3" in text
    assert "\n  instances: {requested: 4," in text
    assert "{" not in to_yaml(
        documents.results_yml_document(result, {"config": {}, "target": 1}, "x")
    ).replace("{}", "")


def test_what_is_not_known_is_left_out_and_coverage_goes_over_judgements(
    result: TaskResult,
) -> None:
    document = document_of(result, validity=replace(result.validity, main_split=None))
    assert {"jury", "judgements", "main_split"} & document["validity"].keys() == set()
    assert (document["validity"]["judges"], document["validity"]["failures"]) == ({}, [])
    assert {"git_hash", "data_bundle", "code_execution"} & document["provenance"].keys() == set()
    assert document["provenance"]["dataset_files"] == {}
    assert list(document["validity"])[:3] == ["reportable", "coverage", "not_reportable"]
    assert list(document["validity"])[-3:] == ["failures", "urgent_notes", "notes"]
    found = document_of(
        result, validity=replace(result.validity, judgements=Judgements(due=8, given=6))
    )["validity"]
    assert (found["coverage"], found["judgements"]) == (0.75, {"due": 8, "given": 6})
    whole = document_of(result)["validity"]
    assert (whole["coverage"], whole.get("judgements"), whole["not_reportable"]) == (1.0, None, [])


def test_an_empty_text_of_an_instance_is_written_and_an_absent_one_is_not() -> None:
    assert documents.result_fields(instance("a", 1.0, reasoning=""))["reasoning"] == ""
    assert "reasoning" not in documents.result_fields(instance("a", 1.0, reasoning=None))
