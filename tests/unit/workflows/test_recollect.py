"""A finished folder's result, made again from its own files."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.demo.example import write_example
from eval_factory.report.page.document import result_page
from eval_factory.report.reader import load_result
from eval_factory.workflows.recollect import (
    recollected,
    require_last_run_state,
    stored_evaluation,
    values_at,
    versions_that_differ,
)
from eval_factory.workflows.verify import Verified, verify
from facts import each_says, naming, says
from finished_folder import finished_folder
from unit.scoring.test_collect import state


@pytest.fixture
def custom(tmp_path: Path) -> tuple[RunDir, Path]:
    """Of a custom benchmark, and the benchmark's folder."""
    own = tmp_path / "own"
    write_example(own)
    flags = {"config.type": "custom", "config.params.extra.benchmark": str(own / "benchmark.yaml")}
    return finished_folder(tmp_path / "out", flags), own


def test_every_file_is_made_again_byte_for_byte_and_then_gone(folder: RunDir) -> None:
    with recollected(folder, load_result(folder.root)) as made:
        assert made.notes == ()
        assert (
            made.result.provenance.run_identity
            == load_result(folder.root).result.provenance.run_identity
        )
        written = {path.name: path.read_bytes() for path in made.rundir.existing_result_files()}
        place = made.rundir.root
    assert written == {path.name: path.read_bytes() for path in folder.existing_result_files()}
    assert set(written) == {
        "run_config.yml",
        "evaluation_config.yaml",
        "results.yml",
        "results.jsonl",
        "instances.jsonl",
        "report.html",
        "report.md",
        "eval_factory_metrics.json",
        "model.jsonl",
    }
    assert not place.exists()
    shutil.rmtree(folder.logs)
    found = verify(folder.root)
    (no_events,) = found.notes
    assert found.findings == ()
    says(no_events, "logs/events.jsonl is missing", "not checked again")


def test_the_page_of_an_own_benchmark_has_its_description(custom: tuple[RunDir, Path]) -> None:
    folder, own = custom
    (stated,) = re.findall(r"^description: (.*)$", (own / "benchmark.yaml").read_text(), re.M)
    page = folder.report_html.read_text("utf-8")
    assert escape(stated.rstrip(".")) in page
    assert result_page(load_result(folder.root)) == page
    (folder.model_configs / "benchmark.yaml").write_text("- no mapping\n", "utf-8")
    assert escape(stated.rstrip(".")) not in result_page(load_result(folder.root))


def test_a_secret_stays_the_name_of_its_variable(tmp_path: Path) -> None:
    flags = {"target.api_endpoint.url": "https://host.example/v1?key=${GATEWAY_KEY}"}
    folder = finished_folder(tmp_path / "out", flags, GATEWAY_KEY="not-to-be-seen-1")
    evaluation = stored_evaluation(folder, load_result(folder.root))
    assert evaluation.run.target.api_endpoint.url == "https://host.example/v1?key=${GATEWAY_KEY}"
    assert verify(folder.root).intact


@pytest.mark.parametrize("why", ["moved", "edited"])
def test_the_files_of_a_custom_benchmark_may_be_elsewhere(
    why: str, custom: tuple[RunDir, Path]
) -> None:
    folder, own = custom
    assert verify(folder.root).notes == ()
    if why == "moved":
        shutil.rmtree(own)
    else:
        (own / "prompt.txt").write_text((own / "prompt.txt").read_text("utf-8") + " ", "utf-8")
    found = verify(folder.root)
    assert (found.findings, found.notes) == ((), ())


def test_what_was_recorded_of_a_moved_benchmark_is_still_checked(
    custom: tuple[RunDir, Path],
) -> None:
    folder, own = custom
    shutil.rmtree(own)
    for file in (folder.checksums, folder.attestation):
        file.unlink()
    text = folder.evaluation_config.read_text("utf-8")
    digest = load_result(folder.root).result.provenance.dataset_files["prompt.txt"]
    folder.evaluation_config.write_text(text.replace(digest, "a" * 64), "utf-8")
    assert "provenance.run_identity" in {finding.field for finding in verify(folder.root).findings}
    (folder.model_configs / "benchmark.yaml").unlink()
    with pytest.raises(ConfigError, match=r"benchmark\.yaml: cannot be read"):
        stored_evaluation(folder, load_result(folder.root))


@pytest.mark.parametrize("runs", [[], ["../x"], ["/x"], [1], ["helm/runs/s/r", ".."]])
def test_runs_outside_of_the_folder_are_refused(runs: list[Any], folder: RunDir) -> None:
    assert require_last_run_state(folder).run_id == "run"
    state = json.loads(folder.run_state.read_text("utf-8"))
    folder.run_state.write_text(json.dumps({**state, "runs": runs}), "utf-8")
    with pytest.raises(PrerequisiteError, match=naming("must name folders")):
        require_last_run_state(folder)
    folder.run_state.write_text("x", "utf-8")
    with pytest.raises(PrerequisiteError, match="cannot be read"):
        require_last_run_state(folder)


def test_versions_are_compared_one_by_one(folder: RunDir) -> None:
    now = load_result(folder.root).result.provenance
    then = replace(
        now,
        python="2.7",
        packages={**now.packages, "numpy": "0.1", "gone": "1"},
        target="x",
        git_hash="y",
    )
    assert versions_that_differ(now, now) == []
    each_says(
        versions_that_differ(then, now),
        ["python: 2.7 then", f"{now.python} here"],
        ["numpy: 0.1 then", f"{now.packages['numpy']} here"],
        ["gone: 1 then", "None here"],
    )
    early = replace(now, packages={}, platform={}, framework_sha256=None, lock_sha256=None)
    assert versions_that_differ(early, now) == []  # an earlier version did not record them


def test_a_package_that_was_installed_beside_is_no_difference(folder: RunDir) -> None:
    now = load_result(folder.root).result.provenance
    then = replace(now, lock_sha256="0" * 64)
    listed = "a==1\nb==2\nnumpy==3\n"
    assert versions_that_differ(then, now, listed, f"{listed}z==1\n") == []
    (line,) = versions_that_differ(then, now, listed, "a==1\nb==3\nnumpy==4\n")
    says(line, "packages.txt", "1 package", "version: b")
    says(versions_that_differ(then, now)[0], "lock_sha256", "0" * 64)


def test_sources_that_are_in_the_data_are_remembered_where_these_are_gone(tmp_path: Path) -> None:
    """ehr_sql: the templates of its questions; and that its database has no rows."""
    data = tmp_path / "out" / "helm" / "scenarios" / "ehr_sql"
    data.mkdir(parents=True)
    records = [
        {"question": f"q{number}?", "q_tag": f"template {number // 2}"} for number in range(4)
    ]
    (data / "ehrsql_valid.json").write_text(json.dumps(records), "utf-8")
    (data / "ehrsql_test.json").write_text("[]", "utf-8")
    with closing(sqlite3.connect(data / "eicu.sqlite")) as connection:
        connection.execute("CREATE TABLE patient (a)")
    asked = [
        {"input": {"text": f"-- Schema\n\n--   Question:\nq{number}?\n\n"}} for number in range(4)
    ]
    states = [state(number, "SELECT 1", instance=instance) for number, instance in enumerate(asked)]
    folder = finished_folder(tmp_path / "out", {"config.type": "ehr_sql"}, states)
    stats = load_result(folder.root).result.scores["exact_match"].stats
    assert (stats.count, stats.clusters) == (4, 2)
    assert verify(folder.root).notes == ()
    shutil.rmtree(data)
    found = verify(folder.root)
    (unread,) = found.notes
    assert found.findings == ()
    says(unread, "3 data files", "not computed again")
    text = folder.results_jsonl.read_text("utf-8")
    folder.results_jsonl.write_text("no JSON\n" + text.partition("\n")[2], "utf-8")
    assert "results.jsonl" in {finding.file for finding in verify(folder.root).findings}


def test_values_are_the_whole_configurations_at_the_keys_that_were_set() -> None:
    judges = [{"name": "x", "url": None}, {"name": "y", "url": None}]
    whole = {"a": 1, "b": {"c": 2, "d": 3}, "judges": judges, "e": [1]}
    assert values_at({"a": 9, "b": {"c": 9}, "gone": 1}, whole) == {"a": 1, "b": {"c": 2}}
    found = values_at({"judges": [{"name": "z"}, {"url": 1}], "e": [2]}, whole)
    assert found == {"judges": [{"name": "x"}, {"url": None}], "e": [1]}
    assert values_at({"judges": [{"name": "z"}]}, whole) == {"judges": judges}
    assert values_at({"judges": 3, "b": 4}, whole) == {"judges": judges, "b": whole["b"]}


def test_a_jury_of_ones_own_has_the_keys_that_were_set(tmp_path: Path) -> None:
    judges = [
        {"name": "one", "model_id": "judge/one"},
        {"name": "two", "model_id": "judge/two", "temperature": 0.5},
    ]
    flags = {"config.type": "medication_qa", "config.params.extra.judges": judges}
    assert verify(finished_folder(tmp_path / "out", flags).root) == Verified(tmp_path / "out")
