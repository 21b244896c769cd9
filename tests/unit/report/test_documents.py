from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from eval_factory.core.results import Judgements, SpentByRole, TaskResult, Usage
from eval_factory.report import documents
from unit.builders import plan
from unit.report.test_screen import spent
from unit.scoring.test_collect import FOUR, result_of, state


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


@pytest.mark.parametrize(("patches", "shown"), [(None, None), ((), []), (("a", "b"), ["a", "b"])])
def test_patches_are_a_list_or_unknown(result: TaskResult, patches: Any, shown: Any) -> None:
    given = replace(result, provenance=replace(result.provenance, patches=patches))
    document = documents.evaluation_config(given, plan().evaluation.as_dict(), "helm-run x")
    documents.check(document, documents.EVALUATION_CONFIG_SCHEMA)
    assert document["provenance"]["patches"] == shown


def test_the_schema_refuses_what_it_does_not_know(result: TaskResult) -> None:
    document = documents.evaluation_config(result, plan().evaluation.as_dict(), "helm-run x")
    with pytest.raises(jsonschema.ValidationError):
        documents.check({**document, "surprise": 1}, documents.EVALUATION_CONFIG_SCHEMA)


def test_coverage_goes_over_judgements_where_there_are_such(result: TaskResult) -> None:
    validity = replace(result.validity, judgements=Judgements(due=8, given=6))
    document = documents.evaluation_config(replace(result, validity=validity), plan().evaluation.as_dict(), "x")
    documents.check(document, documents.EVALUATION_CONFIG_SCHEMA)
    assert (document["validity"]["coverage"], document["validity"]["judgements"]) == (0.75, {"due": 8, "given": 6})
    whole = documents.evaluation_config(result, plan().evaluation.as_dict(), "x")["validity"]
    assert (whole["coverage"], whole["judgements"], whole["not_reportable"]) == (1.0, None, [])


def test_lines(result: TaskResult) -> None:
    instance = documents.instance_line(next(iter(result.instances)))
    assert instance["id"] == "id0"
    assert instance["extra.category"] == "even"
    assert "extra.long" not in instance
    line = documents.result_line(next(iter(result.instances)))
    assert (line["completion"], line["metrics"]) == ("<b>yes</b>", {"exact_match": 1.0})


def test_the_source_of_an_instance_is_in_its_line(result: TaskResult) -> None:
    first = next(iter(result.instances))
    assert documents.result_line(replace(first, cluster="a note"))["cluster"] == "a note"
    assert "cluster" not in documents.result_line(first)


def test_signs_of_an_answer_are_in_its_line(result: TaskResult) -> None:
    line = documents.result_line(replace(next(iter(result.instances)), signs=("refused",)))
    assert line["signs"] == ["refused"]
    assert "signs" not in documents.result_line(next(iter(result.instances)))


def test_usage_is_of_this_run_at_the_top_and_then_of_all_runs() -> None:
    both = {"gpt": spent(4, 40), "model": spent(3, None)}
    usage = Usage(SpentByRole(spent(7, 40), both), SpentByRole(spent(9, 90), both), 3, 1.0)
    document = documents.usage(usage)
    assert (document["requests"], document["wall_s"], document["all_runs"]["runs"]) == (7, 1.0, 3)
    assert document["this_run"]["roles"]["gpt"]["prompt_tokens"] == 40
    assert document["all_runs"]["requests"] == 9
