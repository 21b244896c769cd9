"""What an output folder remembers, and what it archives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.plan.run_plan import Plan
from eval_factory.workflows import resume
from eval_factory.workflows.resume import DataRead, archive_other_results, ended_run, finished_run, read_state, remember
from unit.builders import plan

OWN = {"data_path/a": "1"}


def here(tmp_path: Path, **flags: object) -> Plan:
    return plan({"config.output_dir": str(tmp_path), **flags})


def with_result(made: Plan, own: dict[str, str]) -> None:
    files = {"scenarios/x/data.json": "2", **own}
    document = {"provenance": {"run_identity": made.identity, "dataset_files": files}}
    made.rundir.root.mkdir(exist_ok=True)
    made.rundir.evaluation_config.write_text(yaml.safe_dump(document))
    made.rundir.report_html.write_text("x")
    made.rundir.packages.write_text("x")
    made.rundir.run_config.write_text("x")


def test_results_of_the_same_run_stay(tmp_path: Path) -> None:
    made = here(tmp_path)
    with_result(made, OWN)
    assert archive_other_results(made, OWN) is None
    assert made.rundir.evaluation_config.exists()


@pytest.mark.parametrize("why", ["another model", "other data", "damaged"])
def test_other_results_are_archived_and_not_lost(why: str, tmp_path: Path) -> None:
    made = here(tmp_path)
    with_result(here(tmp_path, **{"target.api_endpoint.model_id": "o/m"}) if why == "another model" else made, OWN)
    if why == "damaged":
        made.rundir.evaluation_config.write_text("provenance: [")
    aside = archive_other_results(made, {"data_path/a": "9"} if why == "other data" else OWN)
    assert aside is not None
    assert aside.name.startswith("results.set-aside-")
    names = {"evaluation_config.yaml", "packages.txt", "report.html", "run_config.yml"}
    assert {path.name for path in aside.iterdir()} == names
    assert list(tmp_path.iterdir()) == [aside]
    assert archive_other_results(made, OWN) is None


@pytest.mark.parametrize("why", ["another model", "another version", "not complete", "files are gone"])
def test_what_is_not_this_run_finished(why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = here(tmp_path)
    folder = tmp_path / "helm" / "run"
    folder.mkdir(parents=True)
    (folder / "stats.json").write_text("[]")
    complete = why != "not complete"
    remember(made.rundir, ended_run(made, [folder], run_id="r", wall_s=1.0, complete=complete, read=DataRead()))
    if why == "another model":
        made = here(tmp_path, **{"target.api_endpoint.model_id": "o/m"})
    if why == "another version":
        monkeypatch.setattr(resume, "versions", lambda: {"eval_factory": "0", "crfm-helm": "0"})
    if why == "files are gone":
        (folder / "stats.json").unlink()
    assert finished_run(made, read_state(made.rundir), DataRead()) is None


@pytest.mark.parametrize(
    "other",
    [
        {}, {"own": {"data_path/a": "9"}}, {"all_files": True}, {"bundle": None},
        {"bundle": {"manifest_sha256": "b" * 64, "hub": []}},
    ],
)  # fmt: skip
def test_a_finished_run_of_other_data_is_not_finished(other: dict[str, Any], tmp_path: Path) -> None:
    made = here(tmp_path)
    folder = tmp_path / "helm" / "run"
    folder.mkdir(parents=True)
    (folder / "stats.json").write_text("[]")
    read = DataRead({"manifest_sha256": "a" * 64, "hub": []}, OWN, all_files=False)
    remember(made.rundir, ended_run(made, [folder], run_id="r", wall_s=1.0, complete=True, read=read))
    assert finished_run(made, read_state(made.rundir), replace(read, **other)) == (None if other else [folder])
