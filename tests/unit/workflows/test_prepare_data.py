"""What a run reads: looked for, recorded, put in its place, and what helm-run is told of it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import sha256_of
from eval_factory.data import run_data
from eval_factory.data import run_data as placing
from eval_factory.data.sources import Sources
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.prepare import data_read, data_settings, find_bundle, place_data
from eval_factory.workflows.resume import DataRead
from invented_bundle import QUESTIONS, sources
from unit.builders import context, plan


@pytest.fixture(autouse=True)
def _invented_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = sources()
    tasks = {"pubmed_qa": table.tasks["questions"], "mtsamples_procedures": table.tasks["notes"]}
    renamed: Sources = table.model_copy(update={"tasks": tasks})
    monkeypatch.setattr(placing, "load_sources", lambda: renamed)
    monkeypatch.setattr(run_data, "load_sources", lambda: renamed)


def of(tmp_path: Path, task: str = "pubmed_qa", out: Path | None = None, **extra: Any) -> Plan:
    flags = {f"config.params.extra.{name}": value for name, value in extra.items()}
    return plan({"config.type": task, "config.output_dir": str(out or tmp_path / "out"), **flags})


def test_without_a_data_dir_nothing_is_looked_for(tmp_path: Path) -> None:
    here = of(tmp_path)
    assert find_bundle(here, {}) is None
    assert data_read(context(here.rundir), here, None) == DataRead()
    settings = data_settings(here, None, {})
    assert (settings.allowed, settings.all_files, settings.libraries) == (None, None, {})


def test_a_bundle_is_found_recorded_and_put_in_its_place(
    tmp_path: Path, bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = of(tmp_path, data_dir=str(bundle))
    here.rundir.create()
    found = find_bundle(here, {})
    assert found is not None
    assert found.root == bundle
    assert data_read(context(here.rundir), here, found) == DataRead(bundle=found.record())
    with caplog.at_level(logging.INFO, "test"):
        place_data(context(here.rundir), here, found)
    assert (here.rundir.helm / "scenarios/questions/data/set.json").read_bytes() == QUESTIONS
    assert caplog.messages == [f"data bundle {bundle} (manifest {found.sha256})"]


def test_an_output_folder_inside_the_bundle_is_refused(tmp_path: Path, bundle: Path) -> None:
    with pytest.raises(ConfigError, match="an output folder"):
        find_bundle(of(tmp_path, out=bundle / "out", data_dir=str(bundle)), {})


def test_what_a_bundle_lacks_is_told_before_the_run(tmp_path: Path, bundle: Path) -> None:
    (bundle / "scenarios/questions/data/set.json").write_bytes(b"altered")
    with pytest.raises(PrerequisiteError):
        find_bundle(of(tmp_path, data_dir=str(bundle)), {})


def test_offline_without_a_bundle_the_data_have_to_be_there_already(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError):
        find_bundle(of(tmp_path, offline=True), {})


def test_whether_more_than_helms_list_is_read_is_recorded_where_a_list_is_answered(
    tmp_path: Path, bundle: Path
) -> None:
    notes = of(tmp_path, "mtsamples_procedures", data_dir=str(bundle))
    found = find_bundle(notes, {})
    assert data_read(context(notes.rundir), notes, found).all_files is False
    assert data_settings(notes, found, {}).all_files is False
    assert data_settings(notes, found, {"MEDICAL_DATA_ALL_FILES": "1"}).all_files is True
    questions = of(tmp_path, data_dir=str(bundle))
    assert data_settings(questions, find_bundle(questions, {}), {}).all_files is None
    without = of(tmp_path, "mtsamples_procedures", offline=True)
    assert data_settings(without, None, {}).all_files is False


def test_a_bundle_says_where_libraries_find_their_data(tmp_path: Path, bundle: Path) -> None:
    here = of(tmp_path, "mtsamples_procedures", data_dir=str(bundle))
    settings = data_settings(here, find_bundle(here, {}), {})
    assert settings.allowed is None
    assert settings != HelmRunSettings(all_files=False), "the bundle's folders are named"


def test_offline_only_the_endpoints_may_be_contacted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    here = of(tmp_path, offline=True)
    settings = data_settings(here, None, {})
    assert settings.allowed == (("host.example", 443),)
    assert settings.libraries["HF_HUB_OFFLINE"] == "1"
    with caplog.at_level(logging.INFO, "test"):
        place_data(context(here.rundir), here, None)
    assert caplog.messages == ["offline: only https://host.example/v1 may be contacted"]


def test_offline_with_the_embedded_endpoint_nothing_may_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    demo = {"config.params.extra.offline": True, "target.api_endpoint.url": "demo://baseline"}
    here = plan({"config.output_dir": str(tmp_path / "out"), **demo})
    with caplog.at_level(logging.INFO, "test"):
        place_data(context(here.rundir), here, None)
    assert caplog.messages == ["offline: only nothing may be contacted"]


def test_online_nothing_is_put_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    here = of(tmp_path)
    with caplog.at_level(logging.INFO, "test"):
        place_data(context(here.rundir), here, None)
    assert caplog.messages == []
    assert not here.rundir.helm.exists()


def test_the_users_own_files_are_known_by_their_content(tmp_path: Path) -> None:
    """Offline too, where the rest is recorded beside them."""
    own = tmp_path / "data.csv"
    own.write_text("x\n1\n")
    flags = {"config.type": "shc_bmt_med", "config.params.extra.data_path": str(own)}
    here = plan({"config.output_dir": str(tmp_path / "out"), **flags})
    here.rundir.create()
    (digest,) = data_read(context(here.rundir), here, None).own.values()
    assert digest == sha256_of(own)
    assert json.loads(here.rundir.own_data.read_text())["data_path"]["sha256"] == digest
    offline = plan({"config.output_dir": str(tmp_path / "out"), **flags, "config.params.extra.offline": True})
    assert data_read(context(here.rundir), offline, None) == DataRead(own={"data_path": digest})
