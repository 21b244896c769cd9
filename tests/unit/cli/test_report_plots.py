"""`eval-factory report --plots`: which files there are, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from PIL import Image

from eval_factory.cli.main import cli
from eval_factory.cli.result_commands import drawings_of
from stored_results import instance, result, right_or_wrong, written


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(cli, ["report", *map(str, arguments)], catch_exceptions=False)


def test_the_plots_of_one_result(tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "1011x")
    before = (folder / "report.html").read_bytes(), (folder / "report.html").stat().st_mtime_ns
    done = run(folder, "--plots", tmp_path / "plots")
    names = [f"{name}.{kind}" for name in ("score", "distribution", "latency", "validity") for kind in ("svg", "png")]
    assert done.output.splitlines() == [str(tmp_path / "plots" / name) for name in names]
    root = ElementTree.parse(tmp_path / "plots" / "score.svg").getroot()  # noqa: S314 - our own
    assert "exact_match: 0.500" in [child.text or "" for child in root][1]
    with Image.open(tmp_path / "plots" / "score.png") as picture:
        assert picture.size[0] == 2000
    assert before == ((folder / "report.html").read_bytes(), (folder / "report.html").stat().st_mtime_ns)


def test_the_plots_of_two_results_and_of_their_difference(tmp_path: Path) -> None:
    a, b = right_or_wrong(tmp_path / "a", "11110000"), right_or_wrong(tmp_path / "b", "11111110")
    drawings = drawings_of([a, b])
    one = ["score", "distribution", "latency", "validity"]
    assert list(drawings) == [*(f"a-{name}" for name in one), *(f"b-{name}" for name in one), "difference-a-b"]
    difference = drawings["difference-a-b"]
    assert difference.title == "pubmed_qa: exact_match, org/model minus org/model"
    assert difference.description.startswith("exact_match: 0.375 (")
    assert difference.description.endswith("; B (org/model) is better above zero, A (org/model) below.")
    assert drawings["b-distribution"].description == "8 values; 0: 1; 1: 7."


def test_results_that_do_not_compare_have_no_plot_of_their_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = right_or_wrong(tmp_path / "a", "1111")
    other = [instance(f"z{number}", 1.0, prompt="another") for number in range(4)]
    b = written(tmp_path / "b", result(other, task="medec"))
    drawings = drawings_of([a, b])
    assert not any(name.startswith("difference") for name in drawings)
    assert {name[:2] for name in drawings} == {"a-", "b-"}
    told = capsys.readouterr().err
    assert told.startswith("warning: no plot of differences: the results cannot be compared (")
    assert "'eval-factory compare'" in told
