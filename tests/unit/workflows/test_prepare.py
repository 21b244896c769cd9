"""What stands in an output folder before helm-run begins."""

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

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.endpoint import response_cache
from eval_factory.helm.model_files import model_files
from eval_factory.helm.names import SETTINGS
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.prepare import prepare
from unit.builders import context, plan

KEY = "a-known-key-value-1"
ARGV = ["helm-run", "--suite", f"a b {KEY}"]


@pytest.fixture
def here(tmp_path: Path) -> Plan:
    made = plan({"config.output_dir": str(tmp_path / "out")})
    made.rundir.create()
    return made


def prepared(here: Plan, files: Mapping[str, str] | None = None, *, fresh: bool = False, debug: bool = False) -> str:
    """What is shown on the screen."""
    screen = io.StringIO()
    run = replace(context(here.rundir, screen), redactor=Redactor([KEY]))
    prepare(run, here, ARGV, HelmRunSettings(file_lists="/lists"), files or {}, fresh=fresh, debug=debug)
    return screen.getvalue()


@pytest.mark.parametrize("debug", [True, False])
def test_the_files_that_helm_run_reads_are_for_the_user_alone(debug: bool, here: Plan) -> None:
    prepared(here, debug=debug)
    folder = here.rundir.model_configs
    written = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    settings = written.pop(SETTINGS)
    assert written == model_files(here, debug=debug)
    assert json.loads(settings) == {"variables": {"EVAL_FACTORY_FILE_LISTS": "/lists"}}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_the_configuration_is_written_whole_and_redacted(here: Plan) -> None:
    prepared(here)
    document: dict[str, Any] = yaml.safe_load(here.rundir.run_config.read_text("utf-8"))
    info = here.evaluation.framework.framework
    assert document == {
        "command": f"helm-run --suite 'a b {REDACTED}'", "framework_name": info.name, "pkg_name": info.pkg_name,
        **here.evaluation.as_dict(),
    }  # fmt: skip


def test_the_cache_is_there(here: Plan) -> None:
    prepared(here)
    assert response_cache.is_our_cache(here.rundir.cache_db)


def test_results_of_another_configuration_are_archived_and_it_is_said(here: Plan) -> None:
    here.rundir.results_yml.write_text("of another run")
    said = prepared(here)
    (folder,) = here.rundir.root.glob("results.set-aside-*")
    assert (folder / "results.yml").read_text() == "of another run"
    assert said == (
        f"the results in {here.rundir.root} are of another configuration or of other data; moved to {folder.name}\n"
    )
    assert prepared(here) == ""


def test_results_of_other_data_are_archived(here: Plan) -> None:
    def result_of(digest: str) -> None:
        provenance = {"run_identity": here.identity, "dataset_files": {"data_path": digest}}
        here.rundir.evaluation_config.write_text(yaml.safe_dump({"provenance": provenance}))

    result_of("1")
    assert prepared(here, {"data_path": "1"}) == ""
    assert "moved to" in prepared(here, {"data_path": "2"})


@pytest.mark.parametrize("fresh", [True, False])
def test_kept_answers_are_deleted_only_when_asked(fresh: bool, here: Plan, caplog: pytest.LogCaptureFixture) -> None:
    prepared(here)
    kept = here.rundir.responses / "model.jsonl"
    kept.write_text("{}")
    with caplog.at_level(logging.INFO, "test"):
        prepared(here, fresh=fresh)
    assert kept.exists() is not fresh
    assert ("--fresh: the answers kept so far were deleted" in caplog.messages) is fresh
    assert caplog.messages[-1].startswith(f"run {here.identity}: helm-run --suite ")


def test_what_a_killed_run_left_unfinished_is_removed(here: Plan) -> None:
    unfinished = here.rundir.helm / "runs" / "v1" / "stats.json.tmp"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_text("[")
    prepared(here)
    assert not unfinished.exists()
