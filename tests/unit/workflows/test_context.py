"""The folder that a run holds, and where it tells what happens."""

from __future__ import annotations

import errno
import io
import logging
from pathlib import Path
from typing import Any

import pytest

from builders import evaluation, plan
from eval_factory.core import errors
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import REDACTED
from eval_factory.workflows.context import (
    HUB_TOKEN,
    claim_output_folder,
    lock_folder,
    redactor_of,
    start_over,
)
from eval_factory.workflows.options import exit_code_of_error
from eval_factory.workflows.prepare import create_or_check_cache, remove_unfinished
from facts import each_says, naming

KEY = "plain-looking-key-77"
TOKEN = "plain-looking-token-88"


def flags(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "config.output_dir": str(folder / "out"),
        "target.api_endpoint.api_key": "MY_KEY",
        **more,
    }


def test_the_keys_and_the_token_of_the_hub_are_redacted(tmp_path: Path) -> None:
    redactor = redactor_of(
        evaluation(flags(tmp_path)), {"MY_KEY": KEY, HUB_TOKEN: TOKEN, "OTHER": "other-value-99"}
    )
    assert (
        redactor.redact_text(f"{KEY} {TOKEN} other-value-99")
        == f"{REDACTED} {REDACTED} other-value-99"
    )
    assert HUB_TOKEN == "HF_TOKEN"


def test_a_key_without_its_white_space_is_what_the_run_sees(tmp_path: Path) -> None:
    here = plan(flags(tmp_path))
    with pytest.raises(PrerequisiteError, match="MY_KEY"), lock_folder(here, {}, io.StringIO()):
        pass
    assert not here.rundir.root.exists(), "a missing key is found before the folder is made"
    with lock_folder(here, {"MY_KEY": f" {KEY}\r\n", "PATH": "/bin"}, io.StringIO()) as context:
        assert context.env == {"MY_KEY": KEY, "PATH": "/bin"}
        assert context.redactor.redact_text(KEY) == REDACTED


def test_what_is_wrong_with_credentials_is_warned_of(tmp_path: Path) -> None:
    screen = io.StringIO()
    here = plan(flags(tmp_path))
    env = {"MY_KEY": KEY, "OPENAI_CLIENT_ID": "id", "OPENAI_CLIENT_SECRET": "secret-of-a-client-1"}
    with lock_folder(here, env, screen):
        pass
    warned = [line for line in screen.getvalue().splitlines() if line.startswith("warning: ")]
    assert len(warned) == 1
    assert "OPENAI_CLIENT_ID" in warned[0]
    assert warned[0].removeprefix("warning: ") in here.rundir.program_log.read_text("utf-8")


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    here = plan(flags(tmp_path))
    here.rundir.root.mkdir()
    here.rundir.cache_db.write_text("mine")
    with (
        pytest.raises(ConfigError, match="is not an output folder"),
        lock_folder(here, {"MY_KEY": KEY}, io.StringIO()),
    ):
        pass
    assert not here.rundir.marker.exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.HelmError("x"), 4),
        (errors.EndpointRefusedError("x"), 3),
        (errors.InterruptedRunError("x"), 130),
        (KeyboardInterrupt(), 130),
        (OSError(errno.ENOSPC, "full"), 3),
        (OSError(errno.EACCES, "no"), 3),
        (OSError(errno.EPIPE, "gone"), 70),
        (ValueError("x"), 70),
    ],
    ids=["HELM", "endpoint", "stopped", "Ctrl-C", "disk full", "no access", "pipe", "defect"],
)
def test_an_error_has_the_code_that_it_ends_a_program_with(error: BaseException, code: int) -> None:
    assert exit_code_of_error(error) == code


LOG = logging.getLogger("test")


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("mine")


@pytest.mark.parametrize(
    "names", [(), ("notes.txt", "logs/server.log", "helm/scenarios/medec/a.csv", "data/x.db")]
)
def test_a_folder_that_holds_nothing_of_ours_is_taken_and_known_again(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    rundir = RunDir(tmp_path / "out")
    put(rundir.root, *names)
    assert not rundir.marker.is_file()
    claim_output_folder(rundir)
    assert rundir.marker.is_file()
    put(rundir.root, "responses/model.jsonl")
    claim_output_folder(rundir)
    assert all((rundir.root / name).read_text() == "mine" for name in names)


@pytest.mark.parametrize(
    "name",
    [
        "responses/a.txt",
        "model_configs/x",
        "helm/runs/v1/scores.json",
        "report.html",
        "results.yml",
        "run_config.yml",
        "results.jsonl",
        "instances.jsonl",
        "evaluation_config.yaml",
        "packages.txt",
        "cache.db",
    ],
)
def test_what_is_not_ours_is_neither_replaced_nor_deleted(name: str, tmp_path: Path) -> None:
    put(tmp_path, name)
    with pytest.raises(ConfigError, match=naming("not an output folder", "a run would")) as told:
        claim_output_folder(RunDir(tmp_path))
    assert "/".join(
        Path(name).parts[:2] if name.startswith("helm") else Path(name).parts[:1]
    ) in str(told.value)
    assert "--output_dir" in str(told.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


def test_the_database_of_another_program_is_archived_and_never_deleted(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    claim_output_folder(rundir)
    put(tmp_path, "cache.db", "cache.db.backup")
    create_or_check_cache(rundir, LOG)
    start_over(rundir)
    (aside,) = tmp_path.glob("results.set-aside-*/cache.db")
    assert aside.read_text() == (tmp_path / "cache.db.backup").read_text() == "mine"
    assert not rundir.cache_db.exists()


def test_starting_over_keeps_data_and_what_was_moved_away(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    claim_output_folder(rundir)
    create_or_check_cache(rundir, LOG)
    kept = [
        "helm/scenarios/medec/a.csv",
        "results.set-aside-20260101-000000/results.yml",
        "notes.txt",
    ]
    put(tmp_path, *kept, "helm/runs/x/y/stats.json", "responses/model.jsonl", "report.html")
    put(tmp_path, ".run_state.json", "cache.db-wal")
    start_over(rundir)
    files = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert files == {*kept, ".eval-factory", ".gitignore"}


def test_what_a_killed_run_left_goes_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rundir = RunDir(tmp_path)
    claim_output_folder(rundir)
    unfinished = [
        ".report.html.x_8a3kd1.part",
        "..run_state.json.abcdefgh.part",
        "responses/.model.jsonl.abcdefgh.part",
        "model_configs/.judges.yaml.abcdefgh.part",
        "helm/runs/s/r/stats.json.4711.tmp",
        "helm/scenarios/medec/a.csv.tmp",
        "helm/scenarios/medec/b.csv.part",
    ]
    kept = [
        ".other.abcdefgh.part",
        "download.part",
        "notes.tmp",
        "logs/x.tmp",
        "helm/runs/s/r/stats.json",
        "helm/part",
        "helm/a.tmp.csv",
    ]
    put(tmp_path, *unfinished, *kept)
    put(tmp_path / "elsewhere", "mine.tmp")
    (rundir.helm / "link").symlink_to(tmp_path / "elsewhere")
    with caplog.at_level(logging.INFO):
        remove_unfinished(rundir, LOG)
        remove_unfinished(rundir, LOG)
    files = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert files == {".gitignore", *kept, ".eval-factory", "elsewhere/mine.tmp"}
    each_says(caplog.messages, [f"{len(unfinished)} files", "killed run", "deleted"])
