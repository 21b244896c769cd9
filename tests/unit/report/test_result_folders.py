"""Which runs a folder stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.report.reader import compared_runs, is_suite_folder, one_run, run_folders
from stored_results import right_or_wrong
from suite_folders import SAME, suite_folder

VALUES = {"small/qa": SAME, "large/qa": SAME, "small/calc": SAME, "large/calc": SAME}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return suite_folder(tmp_path / "suite", VALUES)


def named(suite: Path, runs: list[Path]) -> list[str]:
    return [str(run.relative_to(suite)) for run in runs]


def test_a_run_is_itself_and_each_is_taken_once(tmp_path: Path) -> None:
    run = right_or_wrong(tmp_path / "a", "10")
    assert run_folders([run, str(run), tmp_path / "nothing"]) == [run, tmp_path / "nothing"]
    assert one_run(run, "x") == run
    assert not is_suite_folder(run)


def test_a_suite_is_its_runs_in_the_order_of_its_table_and_a_target_its_own(suite: Path) -> None:
    right_or_wrong(suite / "small" / "of_another_suite", "10")
    (suite / ".suite" / "x").mkdir(parents=True)
    (suite / ".suite" / "x" / "evaluation_config.yaml").write_text("")
    assert is_suite_folder(suite)
    assert named(suite, run_folders([suite])) == list(VALUES)
    assert named(suite, run_folders([suite / "large", suite])) == ["large/calc", "large/qa", "small/qa", "small/calc"]


def test_a_suite_whose_table_is_not_there_yet_is_what_has_a_result(suite: Path) -> None:
    (suite / "suite_results.yaml").unlink()
    assert named(suite, run_folders([suite])) == sorted(VALUES)
    for name in VALUES:
        (suite / name / "evaluation_config.yaml").unlink()
    with pytest.raises(PrerequisiteError, match="none of whose runs has a result; 'eval-factory suite status"):
        run_folders([suite])


def test_a_result_that_lies_elsewhere_is_refused(suite: Path, tmp_path: Path) -> None:
    stranger = right_or_wrong(tmp_path / "stranger", "10")
    (suite / "small" / "qa" / "evaluation_config.yaml").unlink()
    (suite / "small" / "qa" / "evaluation_config.yaml").symlink_to(stranger / "evaluation_config.yaml")
    with pytest.raises(PrerequisiteError):
        run_folders([suite])


def test_what_is_about_one_run_says_which_there_are(suite: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"reproduce: is about one run, and .* has 4: give one of .*small/qa, .*large/qa"
    ):
        one_run(suite, "reproduce")
    for name in list(VALUES)[1:]:
        (suite / name / "evaluation_config.yaml").unlink()
    assert one_run(suite, "reproduce") == suite / "small/qa"


def test_runs_of_one_benchmark_are_compared_and_of_several_one_is_to_be_chosen(suite: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        compared_runs([suite])
    assert f"for qa alone: eval-factory compare {suite}/small/qa {suite}/large/qa" in str(caught.value)
    assert "suite_results.md has those of each" in str(caught.value)
    one = suite_folder(tmp_path / "one", {"a/qa": SAME, "b/qa": SAME})
    assert named(one, compared_runs([one])) == ["a/qa", "b/qa"]
    given = [suite / "small" / "qa", suite / "small" / "calc"]
    assert compared_runs(given) == given  # whoever names runs gets them compared, or the reasons


def test_a_leaderboard_of_helms_own_runs_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "leaderboard.json").write_text("{}")
    with pytest.raises(
        PrerequisiteError, match="is a leaderboard's folder of an earlier version, whose runs are HELM's own"
    ):
        run_folders([tmp_path])
