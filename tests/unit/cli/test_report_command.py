"""`eval-factory report`: what is written where."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError
from stored_results import right_or_wrong


def test_the_page_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "101")
    done = CliRunner().invoke(cli, ["report", str(folder), "-o", str(tmp_path / "page.html")], catch_exceptions=False)
    assert done.output == f"{tmp_path / 'page.html'}\n"
    assert "exact_match" in (tmp_path / "page.html").read_text("utf-8")


def test_two_folders_are_one_too_many(tmp_path: Path) -> None:
    folders = [str(right_or_wrong(tmp_path / name, "101")) for name in "ab"]
    done = CliRunner().invoke(cli, ["report", *folders])
    assert isinstance(done.exception, ConfigError)
