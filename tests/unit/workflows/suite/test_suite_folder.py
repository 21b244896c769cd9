"""Which folder somebody means, who holds it, and what stands in it before a suite runs, and after one was killed."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.suite import build_suite
from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.core.rundir import Holder, SuiteDir
from eval_factory.data.bundle import MANIFEST
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.suite import suite_folder as module
from eval_factory.workflows.suite.suite_folder import find_lock_holder, find_suite, write_configs
from facts import each_says, naming, says
from stored_results import right_or_wrong
from suite_by_hand import started, suite_folder
from suites import ENDPOINT
from suites import suite as suite_of


def refused(path: Path) -> str:
    with pytest.raises(PrerequisiteError) as error:
        find_suite(path)
    return str(error.value)


def test_what_is_no_suite_and_what_may_have_been_meant(tmp_path: Path) -> None:
    here = tmp_path / "suites"
    folder = suite_folder(here / "one")
    folder.results_yaml.touch()
    (here / "none").mkdir()
    right_or_wrong(folder.cell_folder("small", "qa"), "1")
    (folder.cell_folder("small", "qa") / ".eval-factory").touch()
    expected = refused(tmp_path / "nothing").splitlines()[1]
    each_says(
        refused(tmp_path / "nothing").splitlines(), [f"{tmp_path}/nothing: ", "no such folder"], []
    )
    says(expected, "output_dir", "eval-factory run_suite")
    says(refused(folder.results_yaml), f"{folder.results_yaml}: is a file", f"{here}/one?")
    told = refused(folder.cell_folder("small", "qa"))
    says(told, "of one run", "not of a suite", f"{here}/one?")
    says(refused(here).splitlines()[0], f"{here}: ", "folder of a suite")
    assert "\x1b" not in refused(tmp_path / "a\x1b[31mb")


def test_what_is_a_suite_and_what_stands_for_one(tmp_path: Path) -> None:
    just_begun = suite_folder(tmp_path / "other")
    just_begun.events.unlink()
    assert find_suite(just_begun.root).root == just_begun.root, "it has a lock alone"
    inner = suite_folder(tmp_path / ".slurm", started()).root
    for path in (tmp_path, inner):
        assert find_suite(path).root == inner
        assert find_suite(path).cell_folder("a", "b") == tmp_path


def test_the_second_is_told_who_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LOCK_WAIT_S", 0.1)
    folder = SuiteDir(tmp_path / "suite")
    with module.locked(folder):
        assert json.loads(folder.lock.read_text())["pid"] == os.getpid()
        said = rf"in use by another run_suite: process {os.getpid()} on"
        with pytest.raises(BusyError, match=said), module.locked(folder):
            pass
    with module.locked(folder):
        pass


def test_who_only_looks_for_an_instant_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SuiteDir(tmp_path)
    folder.state.mkdir()
    folder.lock.touch()
    looking = os.open(folder.lock, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        fcntl.flock(looking, fcntl.LOCK_UN)

    monkeypatch.setattr("time.sleep", sleep)
    with module.locked(folder):
        assert len(slept) == 1
    os.close(looking)


def test_the_folder_of_one_run_is_no_suites_and_a_file_is_none(tmp_path: Path) -> None:
    (tmp_path / ".eval-factory").touch()
    with (
        pytest.raises(ConfigError, match=naming("of one run")),
        module.locked(SuiteDir(tmp_path)),
    ):
        pass
    assert not SuiteDir(tmp_path).state.exists()
    file = SuiteDir(tmp_path / ".eval-factory")
    with pytest.raises(PrerequisiteError, match="choose another with"), module.locked(file):
        pass


def test_who_looks_keeps_nobody_out_who_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "not supported")

    folder = suite_folder(tmp_path)
    with folder.lock.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert find_lock_holder(folder) is None
        monkeypatch.setattr(fcntl, "flock", refuse)
        assert find_lock_holder(folder) is None


def test_the_number_of_a_process_that_ended_may_be_anothers(tmp_path: Path) -> None:
    """Whom nobody may stop."""
    folder = suite_folder(tmp_path)
    with module.locked(folder):
        assert find_lock_holder(folder) == Holder.read_from(folder.lock), "it is this process"
        folder.lock.write_text(replace(Holder.this_process(), pid=os.getppid()).as_json())
        assert find_lock_holder(folder) is None


def test_suite_and_cells_can_be_run_again_from_their_files(tmp_path: Path) -> None:
    found = suite_of(
        output_dir=str(tmp_path / "s"), preset="quick", params={"parallelism": 2}, max_cost=1.5
    )
    write_configs(found)
    assert build_suite(tmp_path / "s" / "suite_config.yml", env={}) == found
    cells = tmp_path / "s" / ".suite" / "cells"
    assert {str(file.relative_to(cells)) for file in cells.rglob("*")} >= {
        f"{cell.name}.yml" for cell in found.cells
    }
    assert len(list(cells.rglob("*.yml"))) == len(found.cells)
    assert "run_suite" in found.folder.config.read_text("utf-8").splitlines()[0]
    assert (
        "run_eval --run_config"
        in found.folder.cell_config("small", "medec").read_text("utf-8").splitlines()[0]
    )
    for cell in found.cells[:3]:
        file = found.folder.cell_config(cell.target, cell.evaluation)
        from_file = build_evaluation(RunRequest(run_config=file), load_framework(), {})
        assert from_file.run == build_evaluation(cell.request, load_framework(), {}).run
    write_configs(found)  # another time


def test_the_files_hold_names_of_variables_and_never_a_secret(tmp_path: Path) -> None:
    env = {"MY_KEY": "canary-0123456789-canary", "WHERE": str(tmp_path / "s")}
    endpoint = {
        **ENDPOINT,
        "api_key": "MY_KEY",
        "url": "https://h/v1?key=${MY_KEY}",
        "adapter_config": {"params_to_add": {"user_token": "${MY_KEY}"}},
    }
    found = suite_of(
        output_dir="${WHERE}", targets=[{"name": "a", "api_endpoint": endpoint}], env=env
    )
    write_configs(found)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) == 3
    for file in files:
        assert "canary" not in file.read_text("utf-8")
        assert "${MY_KEY}" in file.read_text("utf-8")


def test_a_data_bundle_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(PrerequisiteError, match=naming("is a data bundle", "data verify")):
        find_suite(tmp_path)
