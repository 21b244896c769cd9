"""An evaluation done again from its output folder."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import evaluation
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.demo.example import write_example
from eval_factory.endpoint.response_cache import read_origin, write_origin
from eval_factory.report.reader import load_result
from eval_factory.workflows import reproduce as module
from eval_factory.workflows.reproduce import (
    compared_scores,
    copy_answers,
    evaluation_differences,
    reproduce,
    run_again,
    without_unset,
)
from facts import each_says, naming, says
from finished_folder import finished_folder

KEYS = {"OPENAI_API_KEY": "x"}


def test_the_run_config_is_of_the_same_evaluation(folder: RunDir, tmp_path: Path) -> None:
    found = reproduce(folder.root, None, env=KEYS)
    assert (found.differences, found.needs, found.file) == ((), (), None)
    assert found.run_config.startswith(f"# Repeats the evaluation of {folder.root} (run v1-")
    document = yaml.safe_load(found.run_config)
    assert document["config"]["output_dir"] == str(folder.root.with_name("out.reproduced"))
    assert document["target"]["api_endpoint"]["url"] == "https://host.example/v1"
    assert "null" not in found.run_config
    given = {"config": document["config"], "target": document["target"]}
    again = evaluation(given).as_dict()
    first = evaluation({"config.output_dir": "x"}).as_dict()
    again["config"]["output_dir"] = "x"
    assert again == first
    assert not folder.root.with_name("out.reproduced").exists()
    found = reproduce(folder.root, tmp_path / "new", env=KEYS)
    assert found.file == tmp_path / "new" / "reproduce.yml"
    assert found.file.read_text("utf-8") == found.run_config
    assert (tmp_path / "new" / ".eval-factory").is_file()


@pytest.mark.parametrize("where", ["out", "out/below", "."])
def test_the_original_is_never_written_to(where: str, folder: RunDir, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="choose another folder"):
        reproduce(folder.root, tmp_path / where, env=KEYS)


def test_nulls_are_left_out_but_for_those_that_are_sent_or_say_that_no_key_is() -> None:
    tree: dict[str, Any] = {
        "a": None,
        "b": {"c": None, "d": False, "e": []},
        "params_to_add": {"seed": None},
    }
    tree["b"] |= {"api_key": None, "gpt_judge_api_key": None}
    kept = {"d": False, "e": [], "api_key": None, "gpt_judge_api_key": None}
    assert without_unset(tree) == {"b": kept, "params_to_add": {"seed": None}}


def test_what_is_needed_and_what_differs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    write_example(own)
    flags = {
        "config.type": "custom",
        "config.params.extra.benchmark": str(own / "benchmark.yaml"),
        "target.api_endpoint.url": "https://host.example/v1?key=${GATEWAY_KEY}",
    }
    folder = finished_folder(tmp_path / "out", flags, GATEWAY_KEY="not-to-be-seen-1")
    assert reproduce(folder.root, None, env={**KEYS, "GATEWAY_KEY": "x"}).lines() == []
    monkeypatch.setattr("eval_factory.scoring.provenance.__version__", "9.9")
    text = folder.evaluation_config.read_text("utf-8").replace(
        "errata_version: ", "errata_version: 9"
    )
    folder.evaluation_config.write_text(text, "utf-8")
    (own / "prompt.txt").write_text((own / "prompt.txt").read_text("utf-8") + " ", "utf-8")
    edited = reproduce(folder.root, None, env={})
    assert [line.split(":")[0] for line in edited.differences[:3]] == [
        "another version",
        "errata",
        "data",
    ]
    assert edited.differences[2].startswith("data: prompt.txt has SHA-256 ")
    each_says(edited.needs, ["key of model", "set OPENAI_API_KEY"], ["a secret", "set GATEWAY_KEY"])
    says(edited.lines()[-1], "needs: ", "set GATEWAY_KEY")
    assert edited.lines()[0].startswith("differs: another version")
    assert "${GATEWAY_KEY}" in edited.run_config
    shutil.rmtree(own)
    gone = reproduce(folder.root, None, env={**KEYS, "GATEWAY_KEY": "x"})
    where = own / "benchmark.yaml"
    (need,) = gone.needs
    says(need, "config.params.extra.benchmark", f"{where} does not exist", "change the path")
    names = [f"data: {name}" for name in ("benchmark.yaml", "prompt.txt", "data.csv")]
    assert [line.split(" is no longer")[0] for line in gone.differences[2:]] == names


def test_two_results_are_compared(folder: RunDir) -> None:
    then = load_result(folder.root).result
    assert list(evaluation_differences(then, then)) == []
    score = then.scores["exact_match"]
    before = replace(then.provenance, dataset_files={"a": "1", "b": "2"})
    after = replace(
        before, run_identity="v9", prompts_sha256="0", dataset_files={"b": "3"}, errata_version=99
    )
    old = replace(then, provenance=before, scores={**then.scores, "gone": score})
    new = replace(
        then, provenance=after, reportable=False, scores={"exact_match": replace(score, value=0.25)}
    )
    each_says(
        evaluation_differences(old, new),
        [f"run identity: {before.run_identity}", "v9 now"],
        ["prompts"],
        ["data: a: SHA-256", "1 then, none now"],
        ["data: b: SHA-256", "2 then, 3 now"],
        ["errata", f"{before.errata_version} then, 99 now"],
        ["reported", "may not"],
    )
    told = list(compared_scores(old, new))
    says(told[0], "exact_match: 0.5 then", "0.25 now (differs)")
    says("\n".join(told), "gone: 0.5 then", "absent now (differs)")
    says(next(compared_scores(then, then)), "exact_match: 0.5 then", "0.5 now (the same)")


@pytest.mark.parametrize("same", [True, False])
def test_it_is_run_and_compared(
    same: bool, folder: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def evaluate(request: Any, options: Any, **given: Any) -> str:
        asked.update(given, file=request.run_config, options=options)
        finished_folder(tmp_path / "new", None if same else {"config.params.limit_samples": 7})
        return "evaluated"

    monkeypatch.setattr("eval_factory.workflows.evaluate.evaluate", evaluate)
    screen = io.StringIO()
    found = run_again(folder.root, tmp_path / "new", env={}, screen=screen)
    assert asked["file"] == tmp_path / "new" / "reproduce.yml"
    says(screen.getvalue(), "needs: ", "set OPENAI_API_KEY")
    assert screen.getvalue().count("\n") == 1
    assert str(found.evaluated) == "evaluated"
    assert (found.differences == ()) is same
    says(found.scores[0], "exact_match: 0.5 then", "0.5 now (the same)")


def test_data_of_the_package_are_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished_folder(tmp_path / "out", {"config.type": "sample_medical_qa"})
    assert reproduce(folder.root, None, env=KEYS).differences == ()
    monkeypatch.setattr(
        module, "packaged_data_hashes", lambda _: {"package:demo/sample/data.csv": "0" * 64}
    )
    (line,) = reproduce(folder.root, None, env=KEYS).differences
    assert line.startswith(f"data: package:demo/sample/data.csv has SHA-256 {'0' * 64}; it was ")


def test_answers_to_rescore_are_copied_once_and_from_one_run(
    folder: RunDir, tmp_path: Path
) -> None:
    then = load_result(folder.root).result.provenance
    new = RunDir(tmp_path / "new")
    before = folder.cache_db.read_bytes()
    new.create()
    for _ in range(2):
        copy_answers(folder, then, new)
    origin = read_origin(new.cache_db)
    assert origin is not None
    assert (origin.run_identity, origin.started_at, origin.attempts) == (
        then.run_identity,
        then.started_at,
        4,
    )
    assert folder.cache_db.read_bytes() == before
    with pytest.raises(ConfigError, match=naming("answers of another run")):
        copy_answers(folder, replace(then, run_identity="v1-other"), new)
    new.cache_db.unlink()
    write_origin(folder.cache_db, "v1-first", "then")
    with pytest.raises(PrerequisiteError, match=naming("has changed")):
        copy_answers(folder, then, new)
    assert not list(new.root.glob("*cache.db"))
