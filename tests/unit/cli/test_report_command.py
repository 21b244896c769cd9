"""`eval-factory report`: what is written where."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import RunDir
from eval_factory.report.checksums import write_checksums
from eval_factory.report.page.instance_data import readable_page
from eval_factory.report.reader import load_result
from stored_results import right_or_wrong


def report(*arguments: str | Path) -> str:
    return CliRunner().invoke(cli, ["report", *map(str, arguments)], catch_exceptions=False).output


def test_the_page_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "101")
    assert report(folder, "-o", tmp_path / "page.html") == f"{tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_bytes() == (folder / "report.html").read_bytes()
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o600


def test_a_page_without_texts_does_not_replace_the_one_with_texts(tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "101")
    before = (folder / "report.html").read_bytes()
    assert report(folder, "--no-text") == f"{folder / 'report-without-texts.html'}\n"
    assert (folder / "report.html").read_bytes() == before
    without = readable_page((folder / "report-without-texts.html").read_text("utf-8"))
    assert "What is q0?" not in without
    assert "answer to q0" not in without
    (folder / "report.html").unlink()
    assert report(folder) == f"{folder / 'report.html'}\n"
    assert (folder / "report.html").read_bytes() == before


def test_a_page_that_is_part_of_the_result_is_not_replaced_by_another(tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "101")
    write_checksums(RunDir(folder), [], load_result(folder).result)
    before = (folder / "report.html").read_bytes()
    assert report(folder) == f"{folder / 'report.html'}\n"  # the same page
    (folder / "report.html").write_bytes(before.replace(b"</html>", b"<!-- of another version --></html>"))
    write_checksums(RunDir(folder), [], load_result(folder).result)
    done = CliRunner().invoke(cli, ["report", str(folder)])
    assert isinstance(done.exception, ConfigError)
    assert "this version's page differs: give -o page.html" in str(done.exception)
    assert b"of another version" in (folder / "report.html").read_bytes()
    assert report(folder, "-o", tmp_path / "page.html") == f"{tmp_path / 'page.html'}\n"
    assert report(folder, "--no-text") == f"{folder / 'report-without-texts.html'}\n"


@pytest.mark.parametrize("no_text", [[], ["--no-text"]])
def test_several_results_have_a_page_between_them(no_text: list[str], tmp_path: Path) -> None:
    folders = [right_or_wrong(tmp_path / name, values) for name, values in (("a", "1010"), ("b", "1100"))]
    assert report(*folders, *no_text, "-o", tmp_path / "both.html") == f"{tmp_path / 'both.html'}\n"
    text = readable_page((tmp_path / "both.html").read_text("utf-8"))
    assert "1 right in A alone: q2." in text
    assert ("What is q0?" in text) is not bool(no_text)


def test_several_results_need_a_place(tmp_path: Path) -> None:
    folders = [str(right_or_wrong(tmp_path / name, "101")) for name in "ab"]
    done = CliRunner().invoke(cli, ["report", *folders])
    assert isinstance(done.exception, ConfigError)
    assert "-o page.html" in str(done.exception)
