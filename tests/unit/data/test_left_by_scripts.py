"""Tests of what a data set's loading script leaves in its folder: nothing there leads to a file of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core import sandbox
from eval_factory.core.errors import PrerequisiteError
from eval_factory.data.bundle_changes import open_staging
from eval_factory.data.hub import RESULT_FILE, prepare_cache
from eval_factory.data.sources import HubDataset
from invented_bundle import sources

Script = Callable[[Path, Path], object]
OF_THE_USER = '{"of": "the user"}'
INFO = "dataset_info.json"


def says_what_it_made(folder: Path, made: Path) -> None:
    said = {"folder": str(made), "config": "x", "version": "1"}
    (folder / RESULT_FILE).write_text(json.dumps(said))


def a_link_out(folder: Path, users: Path) -> None:
    (folder / INFO).write_text("{}")
    (folder / "table.arrow").symlink_to(users)
    says_what_it_made(folder, folder)


def a_link_that_leads_out_when_it_is_moved(folder: Path, users: Path) -> None:
    made = folder / "a" / "b" / "c"
    made.mkdir(parents=True)
    (made / INFO).write_text("{}")
    (folder / users.name).write_text("another")
    (made / "table.arrow").symlink_to(f"../../../{users.name}")
    says_what_it_made(folder, made)


def a_link_that_is_written_through(folder: Path, users: Path) -> None:
    (folder / INFO).symlink_to(users)
    says_what_it_made(folder, folder)


def a_result_that_is_a_link(folder: Path, users: Path) -> None:
    (folder / RESULT_FILE).symlink_to(users)


def a_result_that_nobody_writes(folder: Path, _users: Path) -> None:
    os.mkfifo(folder / RESULT_FILE)


def a_result_of_another_form(folder: Path, _users: Path) -> None:
    (folder / RESULT_FILE).write_text("[1]")


def another_folder(folder: Path, users: Path) -> None:
    says_what_it_made(folder, users.parent)


@pytest.mark.parametrize(
    "script",
    [
        a_link_out,
        a_link_that_leads_out_when_it_is_moved,
        a_link_that_is_written_through,
        a_result_that_is_a_link,
        a_result_that_nobody_writes,
        a_result_of_another_form,
        another_folder,
    ],
)
def test_what_a_script_leaves_leads_nowhere(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users.json"
    users.write_text(OF_THE_USER)
    repository = tmp_path / "repository" / "some_calc"
    repository.mkdir(parents=True)
    (repository / "some_calc.py").write_text("")

    def run(_argv: object, folder: Path, *_: Any, **__: Any) -> sandbox.EndedProgram:
        script(folder, users)
        return sandbox.EndedProgram(0, b"")

    monkeypatch.setattr(sandbox, "run", run)
    known = HubDataset(id="org/some_calc", config=None, revision="ab" * 20, script=True)
    with open_staging(tmp_path / "bundle", sources()) as stage:
        with pytest.raises(PrerequisiteError, match="org/some_calc"):
            prepare_cache(repository, known, revision=known.revision, source="hub:x", staging=stage)
        assert not stage.hub
    assert users.read_text() == OF_THE_USER
