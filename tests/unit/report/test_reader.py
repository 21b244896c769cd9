"""A result that is written and read again is the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.redaction import Redactor
from eval_factory.core.results import (
    AskedEndpoint,
    FailureCause,
    Floor,
    JudgeCounts,
    Judgements,
    JuryReport,
    TaskResult,
)
from eval_factory.core.rundir import RunDir
from eval_factory.report.reader import load_result
from eval_factory.report.write import write_reports
from unit.builders import plan
from unit.scoring.test_collect import FOUR, result_of, state


@pytest.fixture
def result(tmp_path: Path) -> TaskResult:
    made = result_of(tmp_path, states=[state(i, "yes") for i in range(4)], values={"exact_match": FOUR})
    jury = JuryReport({"a": 4.5}, None, {"a/b": 0.5}, {"a": None})
    validity = replace(
        made.validity,
        judges={"a": JudgeCounts(4, 3, 1, same_family=True)},
        jury=jury,
        failures=(FailureCause("model", 1, "HTTP 500: no", None),),
        notes=("one", "two"),
        judgements=Judgements(4, 3),
        not_reportable=("for a reason",),
        floors={
            "exact_match": Floor("always A", 0.5, 4, {"empty": 0.0, "always A": 0.5}),
            "wer": Floor("empty", 0.5, 4, {"empty": 0.5}, lower_is_better=True),
        },
    )
    asked = AskedEndpoint("org/model", "host.example", ({"temperature": 0.0},), 4, {"other": 1}, 1, None)
    judge = replace(asked, sampling=(), stated_models={}, other_model=0, prompt_sha256=("0" * 64,))
    provenance = replace(made.provenance, endpoints={"model": asked, "a": judge})
    first, *others = made.instances
    instances = [replace(first, signs=("unparsed",)), *others]
    return replace(made, validity=validity, provenance=provenance, instances=instances)


@pytest.fixture
def folder(result: TaskResult, tmp_path: Path) -> Path:
    rundir = RunDir(tmp_path / "written")
    rundir.create()
    config = plan().evaluation.as_dict()
    write_reports(result, rundir, config=config, command="helm-run -c x", redactor=Redactor(), responses={})
    return rundir.root


def test_it_is_the_same(result: TaskResult, folder: Path) -> None:
    stored = load_result(folder)
    assert list(stored.result.instances) == result.instances
    assert replace(stored.result, instances=()) == replace(
        result, instances=(), something_to_ask=result.status == "partial"
    )
    assert (stored.folder, stored.command) == (folder, "helm-run -c x")
    assert stored.config["type"] == "pubmed_qa"
    assert stored.target["api_endpoint"]["model_id"] == "org/model"
    assert load_result(folder / "evaluation_config.yaml").result.scores == result.scores


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="there is no result; it is written when a run ends"):
        load_result(tmp_path)


def test_what_is_no_result_is_named(folder: Path) -> None:
    file = folder / "evaluation_config.yaml"
    document = yaml.safe_load(file.read_text())
    document["validity"]["coverage"] = "all"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(PrerequisiteError, match=r"is no result of this version: validity\.coverage: 'all' is not"):
        load_result(folder)
    file.write_text("{")
    with pytest.raises(PrerequisiteError, match="cannot be read"):
        load_result(folder)


def test_lines_of_different_instances_are_not_taken_for_one(folder: Path) -> None:
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join([*lines[1:], lines[0]]))
    instances = load_result(folder).result.instances
    with pytest.raises(PrerequisiteError, match=r"differ at instance"):
        list(instances)
    (folder / "results.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(PrerequisiteError, match=r"instances cannot be read"):
        list(instances)
    (folder / "results.jsonl").write_text(json.dumps({"id": "x"}) + "\n")
    with pytest.raises(PrerequisiteError, match=r"instances cannot be read"):
        list(instances)
    (folder / "results.jsonl").unlink()
    with pytest.raises(PrerequisiteError, match=r"instances cannot be read"):
        list(instances)
