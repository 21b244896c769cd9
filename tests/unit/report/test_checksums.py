"""SHA256SUMS and the in-toto statement of a folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.core.enums import RunStatus
from eval_factory.core.rundir import RunDir
from eval_factory.report import checksums
from eval_factory.report.checksums import digests_of, read_checksums, write_checksums
from eval_factory.report.reader import load_result
from finished_folder import RUN, finished_folder


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return finished_folder(tmp_path_factory.mktemp("finished") / "out")


def test_every_file_of_the_result_is_listed_as_sha256sum_writes_it(finished: RunDir) -> None:
    lines = finished.checksums.read_text("utf-8").splitlines()
    names = [line[66:] for line in lines]
    assert names == sorted(names)
    assert set(names) == {
        ".run_state.json",
        "attestation.intoto.json",
        "cache.db",
        "eval_factory_metrics.json",
        "evaluation_config.yaml",
        "helm/run_record.json",
        "packages.txt",
        "instances.jsonl",
        "report.html",
        "report.md",
        "responses/model.jsonl",
        "results.jsonl",
        "results.yml",
        "run_config.yml",
        *(
            f"{RUN}/{name}.json"
            for name in ("per_instance_stats", "run_spec", "scenario_state", "stats")
        ),
        *(
            f"model_configs/{name}.yaml"
            for name in ("logging", "model_deployments", "model_metadata")
        ),
        "model_configs/settings.json",
    }
    assert all(line == f"{sha256(finished.root / line[66:])}  {line[66:]}" for line in lines)
    assert read_checksums(finished.checksums) == {line[66:]: line[:64] for line in lines}


def test_own_data_are_listed_by_what_was_written_of_them(finished: RunDir, tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    rundir.own_data.write_text("{}", "utf-8")
    assert set(digests_of(rundir, [])) == {".own_data.json"}


def test_the_statement_is_in_totos(finished: RunDir) -> None:
    document = json.loads(finished.attestation.read_text("utf-8"))
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    listed = read_checksums(finished.checksums)
    del listed["attestation.intoto.json"]
    assert document["subject"] == [
        {"name": name, "digest": {"sha256": listed[name]}} for name in sorted(listed)
    ]
    predicate = document["predicate"]
    config = {"name": "run_config.yml", "digest": {"sha256": sha256(finished.run_config)}}
    assert (predicate["configuration"], predicate["result"]) == ([config], "PASSED")
    told = predicate["evalFactory"]
    assert (told["task"], told["mainMetric"]) == ("pubmed_qa", "exact_match")
    assert told["scores"]["exact_match"]["value"] == 0.5
    assert told["provenance"]["git_hash"] == "abc123"


@pytest.mark.parametrize(
    ("reportable", "status", "outcome"),
    [
        (True, "complete", "PASSED"),
        (True, "partial", "WARNED"),
        (False, "partial", "FAILED"),
        (False, "complete", "FAILED"),
    ],
)
def test_the_statements_outcome(
    reportable: bool, status: str, outcome: str, finished: RunDir
) -> None:
    result = replace(
        load_result(finished.root).result, reportable=reportable, status=RunStatus(status)
    )
    predicate = checksums.result_statement(result, {})["predicate"]
    assert predicate["result"] == outcome
    lists = {name: tests for name, tests in predicate.items() if name.endswith("Tests")}
    assert lists.pop(f"{outcome.lower()}Tests") == ["pubmed_qa"]
    assert list(lists.values()) == [[], []]


def test_names_are_escaped_as_coreutils_does(finished: RunDir, tmp_path: Path) -> None:
    odd = finished.root / "responses" / "a\\b\nc.jsonl"
    odd.write_text("x", "utf-8")
    try:
        write_checksums(
            finished, load_result(finished.root).result, digests_of(finished, [finished.root / RUN])
        )
        text = finished.checksums.read_text("utf-8")
        assert f"\\{sha256(odd)}  responses/a\\\\b\\nc.jsonl\n" in text
        assert read_checksums(finished.checksums)["responses/a\\b\nc.jsonl"] == sha256(odd)
    finally:
        odd.unlink()
        write_checksums(
            finished, load_result(finished.root).result, digests_of(finished, [finished.root / RUN])
        )


ZEROS = "0" * 64


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x",
        f"{ZEROS[1:]}  a",
        f"{ZEROS} a",
        *(f"{ZEROS}  {name}" for name in ("../a", "a/../b", "..", "", "/etc/passwd")),
    ],
)
def test_another_form_is_refused(line: str, tmp_path: Path) -> None:
    file = tmp_path / "SHA256SUMS"
    file.write_text(f"{ZEROS}  helm/runs/a..b/c\n{line}\n", "utf-8")
    with pytest.raises(checksums.ChecksumsError, match="line 2"):
        read_checksums(file)


def test_what_is_forgotten_is_gone_and_may_be_gone_before(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    rundir.checksums.write_text("x")
    rundir.attestation.write_text("x")
    rundir.forget_checksums()
    rundir.forget_checksums()
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_another_line_separator_is_listed_and_read(tmp_path: Path) -> None:
    path = tmp_path / "SHA256SUMS"
    name = "responses/a\u2028b\x0bc.jsonl"
    path.write_text(f"{'a' * 64}  {name}\n", encoding="utf-8")
    assert read_checksums(path) == {name: "a" * 64}
