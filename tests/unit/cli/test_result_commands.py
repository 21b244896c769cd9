"""`eval-factory report`, `compare` and `gate`: options, what is printed, what is written where, and the exit codes."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from PIL import Image

from eval_factory.cli.main import cli
from eval_factory.cli.result_commands import drawings_of, repeat_options
from eval_factory.core.errors import ConfigError, NotReportableError, PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.report.checksums import digests_of, write_checksums
from eval_factory.report.page.blocks import readable_page
from eval_factory.report.reader import load_result
from facts import rows_of, says
from stored_results import instance, result, right_or_wrong, written


def report(*arguments: str | Path) -> str:
    return CliRunner().invoke(cli, ["report", *map(str, arguments)], catch_exceptions=False).output


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
    write_checksums(RunDir(folder), load_result(folder).result, digests_of(RunDir(folder), []))
    before = (folder / "report.html").read_bytes()
    assert report(folder) == f"{folder / 'report.html'}\n"  # the same page
    (folder / "report.html").write_bytes(
        before.replace(b"</html>", b"<!-- of another version --></html>")
    )
    write_checksums(RunDir(folder), load_result(folder).result, digests_of(RunDir(folder), []))
    done = CliRunner().invoke(cli, ["report", str(folder)])
    assert isinstance(done.exception, ConfigError)
    says(str(done.exception), "page differs", "-o page.html")
    assert b"of another version" in (folder / "report.html").read_bytes()
    assert report(folder, "-o", tmp_path / "page.html") == f"{tmp_path / 'page.html'}\n"
    assert report(folder, "--no-text") == f"{folder / 'report-without-texts.html'}\n"


def test_several_results_have_a_page_between_them(tmp_path: Path) -> None:
    folders = [
        right_or_wrong(tmp_path / name, values) for name, values in (("a", "1010"), ("b", "1100"))
    ]
    for no_text in ([], ["--no-text"]):
        assert (
            report(*folders, *no_text, "-o", tmp_path / "both.html")
            == f"{tmp_path / 'both.html'}\n"
        )
        text = readable_page((tmp_path / "both.html").read_text("utf-8"))
        says(text, "1 right in A", "alone: q2")
        assert ("What is q0?" in text) is not bool(no_text)


def test_the_plots_of_one_result(tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "1011x")
    before = (folder / "report.html").read_bytes(), (folder / "report.html").stat().st_mtime_ns
    told = report(folder, "--plots", tmp_path / "plots")
    names = [
        f"{name}.{kind}"
        for name, kind in product(("score", "distribution", "latency", "validity"), ("svg", "png"))
    ]
    assert told.splitlines() == [str(tmp_path / "plots" / name) for name in names]
    root = ElementTree.parse(tmp_path / "plots" / "score.svg").getroot()  # noqa: S314 - our own
    assert "exact_match: 0.500" in [child.text or "" for child in root][1]
    with Image.open(tmp_path / "plots" / "score.png") as picture:
        assert picture.size[0] == 2000
    assert before == (
        (folder / "report.html").read_bytes(),
        (folder / "report.html").stat().st_mtime_ns,
    )


def test_the_plots_of_two_results_and_of_their_difference(tmp_path: Path) -> None:
    a = right_or_wrong(tmp_path / "a", "11110000")
    b = right_or_wrong(tmp_path / "b", "11111110")
    drawings = drawings_of([a, b])
    one = ["score", "distribution", "latency", "validity"]
    assert list(drawings) == [
        *(f"a-{name}" for name in one),
        *(f"b-{name}" for name in one),
        "difference-a-b",
    ]
    difference = drawings["difference-a-b"]
    says(difference.title, "exact_match, B - A")
    says(difference.description, "B - A: 0.375")
    says(difference.description, "B org/model is better", "above zero", "A org/model below")
    says(drawings["b-distribution"].description, "8 values", "0: 1; 1: 7")


def test_no_plot_of_the_difference_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = right_or_wrong(tmp_path / "a", "1111")
    other = [instance(f"z{number}", 1.0, prompt="another") for number in range(4)]
    b = written(tmp_path / "b", result(other, task="medec"))
    drawings = drawings_of([a, b])
    assert not any(name.startswith("difference") for name in drawings)
    assert {name[:2] for name in drawings} == {"a-", "b-"}
    told = capsys.readouterr().err
    says(told, "warning: no plot", "cannot be compared")
    assert "'eval-factory compare'" in told


def compared(*arguments: str) -> tuple[Any, str]:
    done = CliRunner().invoke(cli, ["compare", *arguments])
    return done.exception, done.output


def printed(*arguments: str) -> str:
    error, output = compared(*arguments)
    assert error is None, output
    return output


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    return [
        str(right_or_wrong(tmp_path / name, values))
        for name, values in (("a", "11010"), ("b", "10111"))
    ]


def test_text_json_and_markdown_with_the_instances_texts_on_demand(folders: list[str]) -> None:
    says(printed(*folders), "no difference", "between A and B", "B is above A", "20.0 points")
    assert any(
        row[2:5] == ["B - A", "5", "20.0"] for row in rows_of(printed(*folders, "--markdown"))
    )
    found = json.loads(printed(*folders, "--json", "--margin", "0.5"))
    assert (found["comparable"], found["reasons"], len(found["comparisons"])) == (True, [], 1)
    (one,) = found["comparisons"]
    assert (one["a"], one["b"], one["margin"]) == (*folders, 0.5)
    assert one["flips"] == {"a_only": ["q1"], "b_only": ["q2", "q4"]}
    assert "texts" not in found
    says(printed(*folders, "--texts"), "q1 prompt: What", "is q1?")
    assert list(json.loads(printed(*folders, "--texts", "--json"))["texts"]) == ["q1", "q2", "q4"]


def test_reasons_are_printed_and_the_exit_code_is_1(folders: list[str], tmp_path: Path) -> None:
    other = str(right_or_wrong(tmp_path / "c", "1101", task="medec"))
    error, output = compared(folders[0], other)
    assert isinstance(error, NotReportableError)
    says(str(error), "instances, task", "--allow instances,task")
    says(output, "- task: ", "pubmed_qa and medec")
    error, output = compared(folders[0], other, "--json", "--texts")
    assert isinstance(error, NotReportableError)
    assert {reason["name"] for reason in json.loads(output)["reasons"]} == {"task", "instances"}
    error, _ = compared(*folders, "--metric", "none")
    says(str(error), "cannot be compared", "metric")
    for allowed in (["--allow", "task, instances"], ["--allow", "task", "--allow", "instances"]):
        assert "accepted (task)" in printed(folders[0], other, *allowed)


def test_what_is_wrong_with_the_command_line(folders: list[str], tmp_path: Path) -> None:
    for arguments, message in (
        ([*folders, "--json", "--markdown"], "give one of --json and --markdown"),
        ([*folders, "--texts", "--markdown"], "--texts is for two folders"),
        ([*folders, folders[0], "--texts"], "--texts is for two folders"),
        (folders[:1], "give two folders or more"),
        ([*folders, "--allow", "nothing"], "there is no such reason"),
    ):
        error, _ = compared(*arguments)
        assert isinstance(error, ConfigError)
        assert message in str(error)
    error, _ = compared(folders[0], str(tmp_path / "nothing"))
    assert isinstance(error, PrerequisiteError)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two baselines, candidates that are equal to them, and one that is much worse."""
    folder = tmp_path_factory.mktemp("gate")
    for name, values in (("old", "1" * 100), ("new", "1" * 100), ("bad", "0" * 100)):
        right_or_wrong(folder / name / "pubmed_qa", values)
        right_or_wrong(folder / name / "medec", values, task="medec")
    return folder


@pytest.fixture
def here(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with these results, which are only read, and a policy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name in ("old", "new", "bad"):
        (tmp_path / name).symlink_to(stored / name)
    text = "version: 1\ndefaults: {max_drop: 0.1}\nbenchmarks: {pubmed_qa: {}, medec: {}}\n"
    (tmp_path / "policy.yml").write_text(text)
    return tmp_path


def gated(*arguments: str) -> tuple[Any, str]:
    done = CliRunner().invoke(cli, ["gate", *arguments])
    return done.exception, done.output


@pytest.mark.parametrize(
    "arguments",
    [
        "policy.yml --candidate new --baseline old",
        "policy.yml --candidate new/medec new/pubmed_qa --baseline old/medec old/pubmed_qa",
        "--candidate new/medec new/pubmed_qa policy.yml --baseline old",
        "--candidate new/medec --candidate new/pubmed_qa --baseline old policy.yml",
    ],
)
def test_a_policy_that_is_kept(here: Path, arguments: str) -> None:
    error, output = gated(*arguments.split())
    assert error is None, output
    assert output.startswith("gate: PASS (policy.yml, sha256 ")


def test_a_policy_that_is_not_kept_has_exit_code_1_and_its_reports(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    error, output = gated(
        "policy.yml", "--candidate", "bad", "--baseline", "old", "--junit", "junit.xml"
    )
    assert isinstance(error, NotReportableError)
    assert str(error) == "gate: fail: pubmed_qa, medec"
    assert output.startswith("gate: FAIL")
    assert 'failures="2"' in (here / "junit.xml").read_text()
    assert (here / "summary.md").read_text().startswith("## Gate: FAIL\n")
    _, output = gated("policy.yml", "--candidate", "bad", "--baseline", "old", "--json")
    assert json.loads(output)["outcome"] == "fail"


@pytest.mark.parametrize(
    ("junit", "summary"), [("policy.yml/junit.xml", None), ("folder", None), ("j.xml", "no/s.md")]
)
def test_no_room_for_a_report(
    here: Path, monkeypatch: pytest.MonkeyPatch, junit: str, summary: str | None
) -> None:
    if summary is not None:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", summary)
    (here / "folder").mkdir()
    error, output = gated("policy.yml", "--candidate", "new", "--baseline", "old", "--junit", junit)
    assert isinstance(error, PrerequisiteError)
    assert str(error).startswith(f"{summary or junit}: cannot be written: ")
    assert output.startswith("gate: PASS")


def test_a_locked_policy_is_held(here: Path) -> None:
    error, output = gated("policy.yml", "--lock")
    assert (error, (here / "policy.yml.lock").exists()) == (None, True)
    says(output, "policy.yml.lock", "commit this file")
    assert gated("policy.yml", "--candidate", "new", "--baseline", "old")[0] is None
    (here / "policy.yml").write_text(
        "version: 1\ndefaults: {max_drop: 1}\nbenchmarks: {pubmed_qa: {}}\n"
    )
    error, _ = gated("policy.yml", "--candidate", "bad", "--baseline", "old")
    assert isinstance(error, ConfigError)
    says(str(error), "changed", "locked")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["policy.yml"], "give --candidate DIR (or --lock, before the run)"),
        (["policy.yml", "--lock", "--candidate", "new"], "--lock is given before the run"),
        (["none.yml", "--candidate", "new"], "there is no such file"),
        (
            ["policy.yml", "--candidate", "new", "--attest", "signed"],
            "--attest DIR and --evaluator URI belong together",
        ),
        (
            ["policy.yml", "--candidate", "new", "--evaluator", "urn:me"],
            "a statement has an evaluator",
        ),
    ],
)
def test_mistakes(here: Path, arguments: list[str], words: str) -> None:
    error, _ = gated(*arguments)
    assert isinstance(error, ConfigError)
    assert words in str(error)


def test_folders_are_spread_up_to_the_next_option() -> None:
    given = [
        "p.yml",
        "--candidate",
        "a",
        "b",
        "--json",
        "x",
        "--baseline",
        "c",
        "d",
        "e.yaml",
        "--junit",
        "f",
    ]
    assert list(repeat_options(given)) == [
        "p.yml",
        "--candidate",
        "a",
        "--candidate",
        "b",
        "--json",
        "x",
        "--baseline",
        "c",
        "--baseline",
        "d",
        "e.yaml",
        "--junit",
        "f",
    ]
