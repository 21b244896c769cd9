"""A finished run is not collected again where nothing has changed, and is wherever anything has."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import evaluation, plan
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.secrets import Redactor
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.report.checksums import read_checksums
from eval_factory.scoring import provenance
from eval_factory.workflows import resume
from eval_factory.workflows.resume import (
    DataRead,
    read_last_run_state,
    state_of_ended_run,
    unchanged_result,
    write_state,
)
from finished_folder import RUN, finished_folder
from unit.scoring.test_collect import state

KEY = "a-secret-of-some-length-1"


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    """Not a copy: elsewhere it would be another run's."""
    return finished_folder(tmp_path / "out")


def plan_of(folder: RunDir, **flags: Any) -> Plan:
    return make_plan(evaluation({"config.output_dir": str(folder.root), **flags}))


def looked_at(folder: RunDir, change: Callable[[], object] = lambda: None, **known: Any) -> Any:
    """Return what the next run finds."""
    assert read_last_run_state(folder) is not None
    change()
    plan = known.get("plan") or plan_of(folder)
    redactor = known.get("redactor")
    commit = known.get("commit", "abc123")
    return unchanged_result(plan, [folder.root / RUN], redactor or Redactor(), git_hash=commit)


def content(folder: RunDir) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()}


def restore(files: dict[Path, bytes]) -> None:
    for path, data in files.items():
        path.write_bytes(data)


def test_a_result_that_nothing_has_changed_for_stands_byte_for_byte(folder: RunDir) -> None:
    before = content(folder)
    result = looked_at(folder)
    assert result.scores[result.main_metric].value == 0.5
    assert [record.id for record in result.instances] == ["id0", "id1", "id2", "id3"]
    assert content(folder) == before
    assert looked_at(folder) is not None, "and again"


@pytest.mark.parametrize(
    "name",
    [
        "results.jsonl",
        "evaluation_config.yaml",
        "run_config.yml",
        "packages.txt",
        "cache.db",
        f"{RUN}/stats.json",
    ],
)
@pytest.mark.parametrize("how", ["edited", "gone"])
def test_a_file_that_is_another_has_it_collected_again(name: str, how: str, folder: RunDir) -> None:
    file = folder.root / name
    edited = file.read_bytes() + b"\n"
    change: Callable[[], object] = (
        file.unlink if how == "gone" else lambda: file.write_bytes(edited)
    )
    assert looked_at(folder, change) is None


@pytest.mark.parametrize(
    "name", ["results.jsonl", "evaluation_config.yaml", "cache.db", f"{RUN}/stats.json"]
)
def test_a_file_that_was_edited_together_with_its_checksum(name: str, folder: RunDir) -> None:
    file = folder.root / name
    before = sha256_of(file)
    file.write_bytes(file.read_bytes() + b"\n")
    folder.attestation.write_text(
        folder.attestation.read_text("utf-8").replace(before, sha256_of(file)), "utf-8"
    )
    sums = folder.checksums.read_text("utf-8").replace(before, sha256_of(file))
    statement = read_checksums(folder.checksums)[folder.attestation.name]
    folder.checksums.write_text(sums.replace(statement, sha256_of(folder.attestation)), "utf-8")
    assert read_checksums(folder.checksums)[name] == sha256_of(file)
    assert looked_at(folder) is None


@pytest.mark.parametrize("name", ["program", "framework", "packages", "python", "machine"])
def test_another_program(
    name: str, folder: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "framework.yml"
    other.write_text("x: 1")
    changes: dict[str, tuple[object, str, Callable[..., object]]] = {
        "program": (resume, "this_program_sha256", lambda: "0" * 64),
        "framework": (provenance, "framework_path", lambda: other),
        "packages": (provenance, "installed_packages", lambda _environment: "numpy==0\n"),
        "python": (platform, "python_version", lambda: "3.0.0"),
        "machine": (provenance, "platform_of_this", lambda: {"machine": "other"}),
    }
    plan = plan_of(folder)
    target, attribute, value = changes[name]
    monkeypatch.setattr(target, attribute, value)
    assert looked_at(folder, plan=plan) is None


def test_another_commit_or_what_the_user_set_collects_again(folder: RunDir) -> None:
    before = content(folder)
    assert looked_at(folder, commit="def456") is None
    restore(before)
    default = plan_of(folder).evaluation.run.config.params.request_timeout
    assert (
        looked_at(folder, plan=plan_of(folder, **{"config.params.request_timeout": default}))
        is None
    )


def test_other_data_lost_logs_or_another_statement_collect_again(folder: RunDir) -> None:
    before = content(folder)
    folder.attestation.write_text("{}")
    assert looked_at(folder) is None
    restore(before)
    data = folder.helm / "scenarios" / "pubmed_qa" / "data" / "test_set.json"
    data.parent.mkdir(parents=True)
    assert looked_at(folder, lambda: data.write_text("{}")) is None
    data.unlink()
    restore(before)
    assert looked_at(folder) is not None
    assert looked_at(folder, folder.events.unlink) is None


def test_a_key_that_was_not_known_then_is_not_left_where_it_stands(tmp_path: Path) -> None:
    rundir = finished_folder(tmp_path / "out", states=[state(number, KEY) for number in range(4)])
    assert KEY in rundir.results_jsonl.read_text()
    assert looked_at(rundir, redactor=Redactor([f"{KEY}-of-another"])) is not None
    assert looked_at(rundir, redactor=Redactor([KEY])) is None


def test_a_folder_without_checksums_or_of_an_earlier_version(folder: RunDir) -> None:
    plan = plan_of(folder)
    remembered = read_last_run_state(folder)
    assert remembered is not None
    runs = [folder.root / RUN]
    assert unchanged_result(plan, runs, Redactor(), git_hash="abc123") is not None
    before = content(folder)
    write_state(folder, replace(remembered, inputs=None))
    assert unchanged_result(plan, runs, Redactor(), git_hash="abc123") is None
    restore(before)
    folder.checksums.write_text("no checksums")
    assert unchanged_result(plan, runs, Redactor(), git_hash="abc123") is None
    folder.checksums.unlink()
    assert unchanged_result(plan, runs, Redactor(), git_hash="abc123") is None


def test_the_program_is_known_by_its_files_and_not_by_what_python_makes_of_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "module.py").write_text("x = 1")
    first = resume.program_sha256(tmp_path)
    (tmp_path / "a" / "module.pyc").write_bytes(b"x")
    assert resume.program_sha256(tmp_path) == first
    (tmp_path / "a" / "module.py").write_text("x = 2")
    assert resume.program_sha256(tmp_path) != first
    (tmp_path / "a" / "module.py").rename(tmp_path / "a" / "other.py")
    (tmp_path / "a" / "other.py").write_text("x = 1")
    assert resume.program_sha256(tmp_path) != first


OWN = {"data_path/a": "1"}


def here(tmp_path: Path, **flags: object) -> Plan:
    return plan({"config.output_dir": str(tmp_path), **flags})


def with_result(made: Plan, own: dict[str, str]) -> None:
    files = {"scenarios/x/data.json": "2", **own}
    document = {"provenance": {"run_identity": made.identity, "dataset_files": files}}
    made.rundir.root.mkdir(exist_ok=True)
    made.rundir.evaluation_config.write_text(yaml.safe_dump(document))
    for file in (made.rundir.report_html, made.rundir.packages, made.rundir.run_config):
        file.write_text("x")


def ended(made: Plan, *, complete: bool = True, read: DataRead | None = None) -> Path:
    """Its run has ended: HELM's folder of it."""
    run = made.rundir.helm / "run"
    run.mkdir(parents=True)
    (run / "stats.json").write_text("[]")
    write_state(
        made.rundir,
        state_of_ended_run(
            made, [run], run_id="r", wall_s=1.0, complete=complete, data=read or DataRead()
        ),
    )
    return run


@pytest.mark.parametrize("why", ["another model", "other data", "damaged"])
def test_other_results_are_archived_and_not_lost(why: str, tmp_path: Path) -> None:
    made = here(tmp_path)
    with_result(
        here(tmp_path, **{"target.api_endpoint.model_id": "o/m"})
        if why == "another model"
        else made,
        OWN,
    )
    if why == "damaged":
        made.rundir.evaluation_config.write_text("provenance: [")
    aside = resume.archive_other_results(made, {"data_path/a": "9"} if why == "other data" else OWN)
    assert aside is not None
    assert aside.name.startswith("results.set-aside-")
    names = {"evaluation_config.yaml", "packages.txt", "report.html", "run_config.yml"}
    assert {path.name for path in aside.iterdir()} == names
    assert list(tmp_path.iterdir()) == [aside]
    assert resume.archive_other_results(made, OWN) is None
    with_result(made, OWN)
    assert resume.archive_other_results(made, OWN) is None, "results of the same run stay"
    assert made.rundir.evaluation_config.exists()


def test_a_run_goes_on_when_more_metrics_can_be_computed(tmp_path: Path) -> None:
    """The pictures are there: nothing is asked, and HELM scores them again."""
    made = here(tmp_path)
    ended(made, read=DataRead(uncomputed=("a.B",)))
    assert resume.state_of_finished_run(made, DataRead(uncomputed=("a.B",))) is not None
    assert resume.state_of_finished_run(made, DataRead()) is None


@pytest.mark.parametrize(
    "why", ["another model", "another version", "not complete", "files are gone"]
)
def test_what_is_not_this_run_finished(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = here(tmp_path)
    folder = ended(made, complete=why != "not complete")
    if why == "another model":
        made = here(tmp_path, **{"target.api_endpoint.model_id": "o/m"})
    if why == "another version":
        monkeypatch.setattr(
            resume, "installed_versions", lambda _upstream: {"eval_factory": "0", "crfm-helm": "0"}
        )
    if why == "files are gone":
        (folder / "stats.json").unlink()
    assert resume.state_of_finished_run(made, DataRead()) is None


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"own_files": {"data_path/a": "9"}},
        {"all_files": True},
        {"bundle": None},
        {"bundle": {"manifest_sha256": "b" * 64, "hub": []}},
    ],
)
def test_a_finished_run_of_other_data_is_not_finished(
    other: dict[str, Any], tmp_path: Path
) -> None:
    made = here(tmp_path)
    read = DataRead({"manifest_sha256": "a" * 64, "hub": []}, OWN, all_files=False)
    ended(made, read=read)
    assert resume.state_of_finished_run(made, replace(read, **other)) == (
        None if other else read_last_run_state(made.rundir)
    )
