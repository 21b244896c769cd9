"""The folder that a run holds, and where it tells what happens."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import (
    ConfigError,
    EndpointRefusedError,
    HelmError,
    InterruptedRunError,
    PrerequisiteError,
)
from eval_factory.core.secrets import REDACTED
from eval_factory.workflows.context import HUB_TOKEN, lock_folder, redactor_of
from eval_factory.workflows.options import code_of_error
from unit.builders import evaluation, plan

KEY, TOKEN = "plain-looking-key-77", "plain-looking-token-88"


def flags(folder: Path, **more: Any) -> dict[str, Any]:
    return {"config.output_dir": str(folder / "out"), "target.api_endpoint.api_key": "MY_KEY", **more}


def test_the_keys_and_the_token_of_the_hub_are_redacted(tmp_path: Path) -> None:
    redactor = redactor_of(evaluation(flags(tmp_path)), {"MY_KEY": KEY, HUB_TOKEN: TOKEN, "OTHER": "other-value-99"})
    assert redactor.text(f"{KEY} {TOKEN} other-value-99") == f"{REDACTED} {REDACTED} other-value-99"
    assert HUB_TOKEN == "HF_TOKEN"


def test_a_key_without_its_white_space_is_what_the_run_sees(tmp_path: Path) -> None:
    here = plan(flags(tmp_path))
    with lock_folder(here, {"MY_KEY": f" {KEY}\r\n", "PATH": "/bin"}, io.StringIO()) as context:
        assert context.env == {"MY_KEY": KEY, "PATH": "/bin"}
        assert context.redactor.text(KEY) == REDACTED


def test_a_missing_key_is_found_before_the_folder_is_made(tmp_path: Path) -> None:
    here = plan(flags(tmp_path))
    with pytest.raises(PrerequisiteError, match="MY_KEY"), lock_folder(here, {}, io.StringIO()):
        pass
    assert not here.rundir.root.exists()


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


@pytest.mark.parametrize("fresh", [True, False])
def test_a_folder_of_somebody_else_is_left_alone(fresh: bool, tmp_path: Path) -> None:
    """With --fresh a cache would be deleted; without, only renamed."""
    here = plan(flags(tmp_path))
    here.rundir.root.mkdir()
    here.rundir.cache_db.write_text("mine")
    if not fresh:
        with lock_folder(here, {"MY_KEY": KEY}, io.StringIO()):
            pass
        return
    with (
        pytest.raises(ConfigError, match="is no output folder"),
        lock_folder(here, {"MY_KEY": KEY}, io.StringIO(), fresh=True),
    ):
        pass
    assert not here.rundir.marker.exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HelmError("x"), 4),
        (EndpointRefusedError("x"), 3),
        (InterruptedRunError("x"), 130),
        (KeyboardInterrupt(), 130),
        (OSError(errno.ENOSPC, "full"), 3),
        (OSError(errno.EACCES, "no"), 3),
        (OSError(errno.EPIPE, "gone"), 70),
        (ValueError("x"), 70),
    ],
    ids=["HELM", "endpoint", "stopped", "Ctrl-C", "disk full", "no access", "pipe", "defect"],
)
def test_an_error_has_the_code_that_it_ends_a_program_with(error: BaseException, code: int) -> None:
    assert code_of_error(error) == code
