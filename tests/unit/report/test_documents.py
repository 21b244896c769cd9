from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from eval_factory.report import documents
from eval_factory.report.screen import summary
from eval_factory.report.write import html
from eval_factory.results import TaskResult
from unit.builders import plan
from unit.test_collect import FOUR, result_of, state


@pytest.fixture
def result(tmp_path: Path) -> TaskResult:
    return result_of(tmp_path, states=[state(i, "<b>yes</b>") for i in range(4)], values={"exact_match": FOUR})


def test_documents_are_of_their_schemas(result: TaskResult) -> None:
    config = plan().evaluation.as_dict()
    document = documents.evaluation_config(result, config, "helm-run x")
    documents.check(document, documents.EVALUATION_CONFIG_SCHEMA)
    other = documents.results_yml(result, config, "helm-run x")
    documents.check(other, documents.RESULTS_SCHEMA)
    assert list(other) == ["git_hash", "command", "config", "target", "results"]
    assert yaml.safe_load(documents.to_yaml(document)) == document


def test_the_schema_refuses_what_it_does_not_know(result: TaskResult) -> None:
    document = documents.evaluation_config(result, plan().evaluation.as_dict(), "helm-run x")
    with pytest.raises(jsonschema.ValidationError):
        documents.check({**document, "surprise": 1}, documents.EVALUATION_CONFIG_SCHEMA)


def test_html_escapes_and_loads_nothing(result: TaskResult) -> None:
    page = html(result, "helm-run <x>")
    assert "<x>" not in page
    assert "&lt;x&gt;" in page
    assert "exact_match" in page
    assert "http" not in page
    assert "<script" not in page


def test_lines(result: TaskResult) -> None:
    instance = documents.instance_line(next(iter(result.instances)))
    assert instance["id"] == "id0"
    assert instance["extra.category"] == "even"
    assert "extra.long" not in instance
    line = documents.result_line(next(iter(result.instances)))
    assert (line["completion"], line["metrics"]) == ("<b>yes</b>", {"exact_match": 1.0})


def test_summary(result: TaskResult) -> None:
    text = summary(result, plan().rundir)
    assert text.startswith("pubmed_qa: exact_match = 0.5000  (95 % interval")
    assert text.endswith("/results/x/evaluation_config.yaml")


def test_json_lines_hold_no_number_that_is_none() -> None:
    odd = {"a": float("nan"), "b": [1.5, float("inf"), {"c": -float("inf")}], "d": (1, float("nan")), "e": "NaN"}
    lines = list(documents.json_lines([odd, {"a": 1.5}]))
    assert lines == ['{"a": null, "b": [1.5, null, {"c": null}], "d": [1, null], "e": "NaN"}\n', '{"a": 1.5}\n']
