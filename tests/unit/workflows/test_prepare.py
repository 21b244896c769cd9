"""Tests of what stands in an output folder before helm-run begins."""

from __future__ import annotations

import io
import json
import logging
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import context, plan
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings, SampleSettings
from eval_factory.core.rundir import sha256_of
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.data import pins, run_data
from eval_factory.data.sources import Sources
from eval_factory.helm.command import model_files
from eval_factory.helm.names import SETTINGS_FILE
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows import prepare as module
from eval_factory.workflows.prepare import data_settings, facts_about_data, find_bundle, place_data
from eval_factory.workflows.resume import DataRead
from facts import each_says, says
from invented_bundle import QUESTIONS, sources

KEY = "a-known-key-value-1"
ARGV = ["helm-run", "--suite", f"a b {KEY}"]


@pytest.fixture
def here(tmp_path: Path) -> Plan:
    made = plan({"config.output_dir": str(tmp_path / "out")})
    made.rundir.create()
    return made


def prepared(
    here: Plan, files: Mapping[str, str] | None = None, *, fresh: bool = False, debug: bool = False
) -> str:
    """Return what is shown on the screen."""
    screen = io.StringIO()
    run = replace(context(here.rundir, screen), redactor=Redactor([KEY]))
    module.prepare_output_folder(
        run, here, ARGV, HelmRunSettings(file_lists="/lists"), files or {}, fresh=fresh, debug=debug
    )
    return screen.getvalue()


def test_results_of_another_configuration_are_moved_away_and_it_is_said(here: Plan) -> None:
    here.rundir.evaluation_config.write_text("provenance: {run_identity: another}\n")
    message = prepared(here)
    says(message, "another configuration", "other data")
    assert "results.set-aside-" in message
    assert not here.rundir.evaluation_config.exists()


@pytest.mark.parametrize("debug", [True, False])
def test_the_files_that_helm_run_reads_are_for_the_user_alone(debug: bool, here: Plan) -> None:
    prepared(here, debug=debug)
    folder = here.rundir.model_configs
    written = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    settings = written.pop(SETTINGS_FILE)
    assert written == model_files(here, debug=debug)
    assert json.loads(settings)["file_lists"] == "/lists"
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    document: dict[str, Any] = yaml.safe_load(here.rundir.run_config.read_text("utf-8"))
    info = here.evaluation.framework.framework
    command = f"helm-run --suite 'a b {REDACTED}'"
    first = {"command": command, "framework_name": info.name, "pkg_name": info.pkg_name}
    assert document == {**first, **here.evaluation.as_dict()}, (
        "the configuration is written whole and redacted"
    )


@pytest.mark.parametrize("fresh", [True, False])
def test_kept_answers_are_deleted_only_when_asked(
    fresh: bool, here: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    prepared(here)
    kept = here.rundir.responses / "model.jsonl"
    kept.write_text("{}")
    with caplog.at_level(logging.INFO, "test"):
        prepared(here, fresh=fresh)
    assert kept.exists() is not fresh
    assert any("--fresh: " in message for message in caplog.messages) is fresh
    assert caplog.messages[-1].startswith(f"run {here.identity}: helm-run --suite ")


@pytest.fixture(autouse=True)
def _invented_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = sources()
    renamed: Sources = table.model_copy(update={"tasks": {"pubmed_qa": table.tasks["questions"]}})
    monkeypatch.setattr(pins, "load_sources", lambda: renamed)
    monkeypatch.setattr(run_data, "load_sources", lambda: renamed)


def of(out: Path, **extra: Any) -> Plan:
    flags = {f"config.params.extra.{name}": value for name, value in extra.items()}
    return plan({"config.type": "pubmed_qa", "config.output_dir": str(out), **flags})


def test_a_bundle_is_found_and_put_in_its_place(
    tmp_path: Path, bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = of(tmp_path / "out", data_dir=str(bundle))
    here.rundir.create()
    found = find_bundle(here, {})
    assert found is not None
    assert facts_about_data(context(here.rundir), here, found) == DataRead(bundle=found.record())
    with caplog.at_level(logging.INFO, "test"):
        place_data(context(here.rundir), here, found)
    assert (here.rundir.helm / "scenarios/questions/data/set.json").read_bytes() == QUESTIONS
    assert caplog.messages == [f"data bundle {bundle} (manifest {found.sha256})"]


def test_an_output_folder_inside_the_bundle_is_refused(tmp_path: Path, bundle: Path) -> None:
    with pytest.raises(ConfigError, match="an output folder"):
        find_bundle(of(bundle / "out", data_dir=str(bundle)), {})


def test_offline_only_the_endpoints_may_be_contacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = of(tmp_path / "out", offline=True)
    with pytest.raises(PrerequisiteError):
        find_bundle(here, {})  # the data have to be there already
    settings = data_settings(here, None, {})
    assert settings.allowed == (("host.example", 443),)
    assert settings.library_variables["HF_HUB_OFFLINE"] == "1"
    with caplog.at_level(logging.INFO, "test"):
        place_data(context(here.rundir), here, None)
    each_says(caplog.messages, ["offline: only", "https://host.example/v1"])


def test_with_what_instances_are_drawn(tmp_path: Path) -> None:
    limited = {"config.params.limit_samples": 5, "config.params.extra.sample_seed": 0}
    assert data_settings(plan(limited), None, {}).sample == SampleSettings(0)
    of_patients = plan({"config.type": "longhealth", **limited})
    assert data_settings(of_patients, None, {}).sample == SampleSettings(0, "patient")
    assert data_settings(of(tmp_path / "out"), None, {}).sample is None
    stopped = plan(
        {"config.params.extra.stop_when.half_width": 0.1, "config.params.extra.stop_when.seed": 4}
    )
    assert data_settings(stopped, None, {}).sample == SampleSettings(4, in_one_order=True)


def test_the_users_own_files_are_known_by_their_content(tmp_path: Path) -> None:
    """Offline too, where the rest is recorded beside them."""
    own = tmp_path / "data.csv"
    own.write_text("x\n1\n")
    flags = {"config.type": "shc_bmt_med", "config.params.extra.data_path": str(own)}
    here = plan({"config.output_dir": str(tmp_path / "out"), **flags})
    here.rundir.create()
    (digest,) = facts_about_data(context(here.rundir), here, None).own_files.values()
    assert digest == sha256_of(own)
    assert json.loads(here.rundir.own_data.read_text())["data_path"]["sha256"] == digest
    offline = plan(
        {"config.output_dir": str(tmp_path / "out"), **flags, "config.params.extra.offline": True}
    )
    assert facts_about_data(context(here.rundir), offline, None) == DataRead(
        own_files={"data_path": digest}
    )
