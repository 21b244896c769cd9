"""HELM's configurable benchmark reads a table as text, and keeps what stands beside prompt and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helm.benchmark.scenarios import medhelm_configurable_scenario as scenario

from patching import ApplyPatch

BENCHMARK = """
name: own
description: d
prompt_file: {folder}/prompt.txt
dataset_file: {folder}/data.csv
max_tokens: 5
main_metric: {{name: exact_match, main: true}}
metrics: [{{name: exact_match, main: true}}]
"""


def scenario_of(folder: Path, prompt: str, table: str) -> Any:
    (folder / "prompt.txt").write_text(prompt, encoding="utf-8")
    (folder / "data.csv").write_text(table, encoding="utf-8")
    (folder / "benchmark.yaml").write_text(BENCHMARK.format(folder=folder))
    return scenario.MedHELMConfigurableScenario("own", str(folder / "benchmark.yaml"))


def test_cells_are_text(tmp_path: Path, apply_patch: ApplyPatch) -> None:
    apply_patch("read_own_tables")
    made = scenario_of(
        tmp_path, "{code} {name}?", "code,name,correct_answer\n007,NA,TRUE\n1.10,None,2\n"
    )
    instances = made.get_instances(str(tmp_path))
    assert [instance.input.text for instance in instances] == ["007 NA?", "1.10 None?"]
    assert [instance.references[0].output.text for instance in instances] == ["TRUE", "2"]
    assert instances[0].extra_data is None


@pytest.mark.parametrize(
    ("prompt", "table", "expected"),
    [
        (
            "{q}?",
            'id,ward,q,correct_answer,incorrect_answers\nx1,north,a,b,"[""c""]"\nx2,,d,e,[]\n',
            [("x1", {"ward": "north"}), ("x2", {"ward": ""})],
        ),
        ("{q}?", "id,q,correct_answer\nx,a,b\nx,c,d\n", [(None, {"id": "x"}), (None, {"id": "x"})]),
        ("{q}?", "id,q,correct_answer\n ,a,b\nx,c,d\n", [(None, {"id": " "}), (None, {"id": "x"})]),
        (
            "{cluster} {ward}: {q}?",
            "cluster,ward,q,correct_answer\nnote 1,north,a,b\n",
            [(None, {"cluster": "note 1"})],
        ),
        ("{q} {id}?", "id,q,correct_answer\nx,a,b\n", [("x", None)]),
        ("{q}?", "q,correct_answer\na,b\n", [(None, None)]),
    ],
)
def test_other_columns_stay(
    prompt: str, table: str, expected: Any, tmp_path: Path, apply_patch: ApplyPatch
) -> None:
    apply_patch("read_own_tables")
    instances = scenario_of(tmp_path, prompt, table).get_instances(str(tmp_path))
    assert [(one.id, one.extra_data) for one in instances] == expected


def test_without_right_answers_a_jury_alone_scores(tmp_path: Path, apply_patch: ApplyPatch) -> None:
    apply_patch("read_own_tables")
    with pytest.raises(ValueError, match="has no column correct_answer"):
        scenario_of(tmp_path, "{q}?", "q\na\n").get_instances(str(tmp_path))
