"""leaderboard.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import HelmError
from eval_factory.core.redaction import REDACTED, Redactor
from eval_factory.core.rundir import RunDir
from eval_factory.workflows.leaderboard.summary import RunResult, main_score_of, write_results


def run_folder(folder: Path, name: str, *stats: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "run_spec.json").write_text(json.dumps({"name": name}))
    (folder / "stats.json").write_text(json.dumps(stats))
    return folder


def stat(name: str, mean: float | None, split: str = "test", **more: Any) -> dict[str, Any]:
    said = {} if mean is None else {"mean": mean, "sum": mean}
    return {"name": {"name": name, "split": split, **more}, "count": 1, **said}


def test_the_main_metric_is_the_benchmarks_over_the_main_split(tmp_path: Path) -> None:
    folder = run_folder(
        tmp_path / "run", "mmlu:subject=anatomy,model=m", stat("quasi_exact_match", 0.9), stat("exact_match", 0.5),
        stat("exact_match", 0.1, "valid"), stat("exact_match", 0.2, perturbation={"name": "typos"}),
    )  # fmt: skip
    assert main_score_of(folder) == ("exact_match", 0.5)


def test_the_name_of_a_run_may_have_no_colon(tmp_path: Path) -> None:
    assert main_score_of(run_folder(tmp_path / "run", "mmlu,model=m", stat("exact_match", 0.5)))[0] == "exact_match"


def test_a_run_in_which_helm_computed_nothing_has_no_score(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "mmlu:subject=a", stat("exact_match", None), stat("num_references", 1.0))
    assert main_score_of(folder) == ("none", None)


def test_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HelmError):
        main_score_of(tmp_path)


@pytest.fixture
def rundir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def written(rundir: RunDir, leaderboard: str, *results: RunResult, models: tuple[str, ...] = ("org/a",)) -> Any:
    write_results(rundir, leaderboard, models, results, Redactor(["a-known-key-value-1"]))
    return json.loads(rundir.leaderboard.read_text("utf-8"))


def named(document: Any, leaderboard: str) -> list[tuple[str, str]]:
    return [(record["model_id"], record["run"]) for record in document["leaderboards"][leaderboard]]


def test_every_run_is_written_and_redacted(rundir: RunDir) -> None:
    result = RunResult("r", "org/a", "failed", reason="no a-known-key-value-1 é")
    document = written(rundir, "lite", result)
    assert document == {
        "schema_version": 1,
        "leaderboards": {
            "lite": [
                {
                    "run": "r", "model_id": "org/a", "state": "failed", "reason": f"no {REDACTED} é", "requested": None,
                    "failed": None, "unjudged": None, "main_metric": None, "score": None,
                }
            ]
        },
    }  # fmt: skip
    assert "é" in rundir.leaderboard.read_text("utf-8")
    assert rundir.leaderboard.read_text("utf-8").endswith("}\n")


def test_what_is_said_of_others_stays(rundir: RunDir) -> None:
    written(rundir, "lite", RunResult("old", "org/a", "failed"))
    written(rundir, "lite", RunResult("r", "org/b", "kept out"), models=("org/b",))
    written(rundir, "medhelm", RunResult("r", "org/a", "left out"))
    document = written(rundir, "lite", RunResult("new", "org/a", "in the tables", score=0.5))
    assert named(document, "lite") == [("org/b", "r"), ("org/a", "new")]
    assert named(document, "medhelm") == [("org/a", "r")]


def test_a_model_without_a_run_any_more_is_gone(rundir: RunDir) -> None:
    written(rundir, "lite", RunResult("old", "org/a", "failed"))
    assert written(rundir, "lite")["leaderboards"] == {"lite": []}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"leaderboards"'])
def test_a_file_that_cannot_be_read_is_written_anew(content: str, rundir: RunDir) -> None:
    rundir.leaderboard.write_text(content)
    assert named(written(rundir, "lite", RunResult("r", "org/a", "failed")), "lite") == [("org/a", "r")]
