"""What the plug-in wrote down for the collection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.core.errors import HelmError
from eval_factory.helm.names import JUDGE_PROMPTS_FILE, PATCHES_FILE
from eval_factory.helm.output import JuryNames, applied_patches, stored_judge_prompts


def test_patches_of_a_helm_run_of_several_run_specs(tmp_path: Path) -> None:
    assert applied_patches(tmp_path) is None
    applied = [
        {"name": "always", "run_specs": None, "erratum": None},
        {"name": "of_two", "run_specs": ["ehr_sql", "medec"], "erratum": "e"},
        {"name": "of_another", "run_specs": ["pubmed_qa"]},
    ]
    (tmp_path / PATCHES_FILE).write_text(json.dumps({"applied": applied, "left_out": {"x": "y"}}))
    found = applied_patches(tmp_path)
    assert found is not None
    assert found.of("medec") == ["always", "of_two"]
    assert found.of("medcalc_bench") == ["always"]
    (tmp_path / PATCHES_FILE).write_text("{}")
    with pytest.raises(HelmError):
        applied_patches(tmp_path)


def test_the_prompts_of_judges_are_known_where_they_were_written_down(tmp_path: Path) -> None:
    jury = JuryNames("a_accuracy", "a", {})
    assert stored_judge_prompts(tmp_path, jury.annotation) is None
    file = tmp_path / JUDGE_PROMPTS_FILE
    file.write_text(json.dumps({"a": ["1", "2"], "b": ["3"]}))
    assert stored_judge_prompts(tmp_path, jury.annotation) == ("1", "2")
    assert stored_judge_prompts(tmp_path, "c") is None
    file.write_text("[1]")
    with pytest.raises(HelmError):
        stored_judge_prompts(tmp_path, jury.annotation)
