from __future__ import annotations

from typing import Any

import pytest

from eval_factory.helm import page_schema as module
from eval_factory.helm.page_schema import (
    _MAIN,
    _OTHER_EVALUATIONS,
    ALL_METRICS_OF,
    PageRun,
    page_schema,
    safe_name,
)

HELMS: dict[str, Any] = {
    "metrics": [
        {
            "name": "exact_match",
            "display_name": "Exact match",
            "short_display_name": "EM",
            "lower_is_better": False,
        },
        {
            "name": "quasi_exact_match",
            "display_name": "Quasi-exact match",
            "short_display_name": "EM",
        },
        {"name": "f1_score", "display_name": "F1", "short_display_name": "F1"},
        {"name": "never_run", "display_name": "Never", "short_display_name": "EM"},
    ],
    "perturbations": [],
    "metric_groups": [
        {"name": "accuracy", "metrics": [{"name": "${main_name}", "split": "${main_split}"}]}
    ],
    "run_groups": [
        {"name": "all", "category": "All scenarios", "subgroups": ["research", "care"]},
        {"name": "research", "subgroups": ["pubmed_qa", "race_based_med"]},
        {"name": "care", "subgroups": ["medec"]},
        {
            "name": "pubmed_qa",
            "metric_groups": ["accuracy"],
            "environment": {"main_name": "exact_match"},
        },
        {"name": "race_based_med", "metric_groups": ["accuracy"]},
        {"name": "medec", "metric_groups": ["accuracy"]},
    ],
}
PUBMED = PageRun("pubmed_qa", ("biomedical", "pubmed_qa"), ("exact_match",), "exact_match", "test")
OWN = PageRun(
    "custom.mine",
    ("general", "mine"),
    ("wer_score", "odd_metric", "exact_match"),
    "wer_score",
    "valid",
)


def groups_of(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {group["name"]: group for group in schema["run_groups"]}


def test_of_medhelm_there_is_what_was_run_in_helms_words() -> None:
    schema = page_schema([PUBMED], HELMS)
    assert schema["run_groups"] == [
        {"name": "all", "category": "All scenarios", "subgroups": ["research"]},
        {"name": "research", "subgroups": ["pubmed_qa"]},
        HELMS["run_groups"][3],
    ]
    assert schema["metric_groups"] == HELMS["metric_groups"]
    assert schema["metrics"] == HELMS["metrics"]
    assert schema["perturbations"] == []
    turned = {**HELMS, "run_groups": HELMS["run_groups"][::-1]}
    assert list(groups_of(page_schema([PUBMED], turned))) == ["pubmed_qa", "research", "all"], (
        "behind their members"
    )


def test_what_helm_does_not_know_is_described_by_the_result() -> None:
    schema = page_schema([OWN], HELMS)
    assert list(groups_of(schema)) == [_OTHER_EVALUATIONS, "mine"], "its most particular group"
    own = groups_of(schema)["mine"]
    assert own["display_name"] == "custom.mine"
    assert own["environment"] == {"main_name": "wer_score", "main_split": "valid"}
    assert own["metric_groups"] == [_MAIN, f"{ALL_METRICS_OF}mine"]
    assert groups_of(schema)[_OTHER_EVALUATIONS]["subgroups"] == ["mine"]
    tables = {group["name"]: group for group in schema["metric_groups"]}
    assert list(tables) == ["accuracy", _MAIN, f"{ALL_METRICS_OF}mine"]
    every = tables[f"{ALL_METRICS_OF}mine"]
    assert tables[_MAIN]["metrics"] == [{"name": "${main_name}", "split": "${main_split}"}]
    assert every["metrics"] == [{"name": name, "split": "${main_split}"} for name in OWN.metrics]
    assert tables[_MAIN]["aggregation_strategies"] == every["aggregation_strategies"] == []


def test_a_metric_that_helm_does_not_describe_gets_a_direction_only_where_it_is_known() -> None:
    metrics = {metric["name"]: metric for metric in page_schema([OWN], HELMS)["metrics"]}
    assert metrics["wer_score"] == {
        "name": "wer_score",
        "display_name": "Wer score",
        "lower_is_better": True,
    }
    assert metrics["odd_metric"] == {"name": "odd_metric", "display_name": "Odd metric"}
    assert metrics["exact_match"]["lower_is_better"] is False
    bare = {metric["name"]: metric for metric in page_schema([PUBMED], {})["metrics"]}
    assert bare == {
        "exact_match": {
            "name": "exact_match",
            "display_name": "Exact match",
            "lower_is_better": False,
        }
    }


def test_columns_of_one_table_have_names_of_their_own() -> None:
    both = PageRun(
        "mine", ("mine",), ("exact_match", "quasi_exact_match", "f1_score"), "exact_match", "test"
    )
    metrics = {metric["name"]: metric for metric in page_schema([both], HELMS)["metrics"]}
    short = {name: metric.get("short_display_name") for name, metric in metrics.items()}
    assert short == {
        "exact_match": None,
        "quasi_exact_match": None,
        "f1_score": "F1",
        "never_run": None,
    }
    alone = PageRun("mine", ("mine",), ("exact_match", "f1_score"), "exact_match", "test")
    metrics = {metric["name"]: metric for metric in page_schema([alone], HELMS)["metrics"]}
    assert metrics["exact_match"]["short_display_name"] == "EM"


def test_runs_of_both_kinds_stand_side_by_side() -> None:
    again = PageRun("custom.mine", ("mine",), ("exact_match", "rouge_l"), "rouge_l", "test")
    schema = page_schema([PUBMED, OWN, again], HELMS)
    assert list(groups_of(schema)) == ["all", "research", "pubmed_qa", _OTHER_EVALUATIONS, "mine"]
    (table,) = [
        group for group in schema["metric_groups"] if group["name"] == f"{ALL_METRICS_OF}mine"
    ]
    names = [metric["name"] for metric in table["metrics"]]
    assert names == ["wer_score", "odd_metric", "exact_match", "rouge_l"], (
        "of all runs of the group"
    )


def test_a_run_without_a_group_has_no_table() -> None:
    schema = page_schema([PageRun("x", (), ("exact_match",), "exact_match", "test")], HELMS)
    assert schema["run_groups"] == []
    assert schema["metric_groups"] == HELMS["metric_groups"]


def test_names_of_metrics_that_a_template_would_execute_are_not_plain() -> None:
    rendered = ["exact_match@5", "BERTScore-F", "a b (c)", "x:y", "k=v, w"]
    others = ["${7*7}", "<%x%>", "% for x in y:", "a\nb", "", "ä", "#x"]
    assert list(filter(module.is_safe_metric_name, [*others, *rendered])) == rendered


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("mmlu_subject=law", "mmlu_subject=law"),
        ("../../x", "_.._x"),
        ("a/b:c d", "a_b_c_d"),
        ("${x}", "__x_"),
        ("..", "_"),
        ("", "_"),
        ("x" * 200, "x" * 80),
    ],
)
def test_plain_names_are_names_of_files(name: str, plain: str) -> None:
    assert safe_name(name) == plain


def test_models_are_called_as_the_user_calls_them() -> None:
    (one, two) = module.page_models({"endpoint/a": "org/A (1: x)", "endpoint/b": "B"})["models"]
    assert (one["name"], one["display_name"]) == ("endpoint/a", "org/A (1: x)")
    assert (two["name"], two["description"]) == ("endpoint/b", "B")
    assert one["tags"]
    assert one["release_date"] is None
