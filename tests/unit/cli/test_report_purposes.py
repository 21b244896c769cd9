"""`report --for`: to the screen or a file, for one folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.cli.report_purposes import PURPOSES
from eval_factory.core.errors import ConfigError
from eval_factory.report import purposes
from eval_factory.report.reader import load_result
from stored_results import right_or_wrong


@pytest.mark.parametrize("purpose", PURPOSES)
def test_it_goes_to_standard_output_or_to_a_file(purpose: str, tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "101")
    page = (folder / "report.html").read_bytes()
    text = purposes.written_for(purpose, load_result(folder))
    done = CliRunner().invoke(cli, ["report", str(folder), "--for", purpose], catch_exceptions=False)
    assert done.output == text
    file = tmp_path / "out"
    done = CliRunner().invoke(cli, ["report", str(folder), "--for", purpose, "-o", str(file)], catch_exceptions=False)
    assert done.output == f"{file}\n"
    assert file.read_text("utf-8") == text
    assert (folder / "report.html").read_bytes() == page


def test_it_is_about_one_run(tmp_path: Path) -> None:
    folders = [str(right_or_wrong(tmp_path / name, "101")) for name in "ab"]
    done = CliRunner().invoke(cli, ["report", *folders, "--for", "model-card"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "report: --for model-card is about one run: give one output folder"


def test_another_purpose_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["report", str(tmp_path), "--for", "poster"])
    assert done.exit_code == 2
    assert tuple(purposes.PURPOSES) == PURPOSES
