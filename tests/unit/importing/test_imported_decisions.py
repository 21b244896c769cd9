"""Imported results are decided upon as results of our own: rated, calibrated, verified."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.core.annotations import SampledAnswer
from eval_factory.core.rundir import RunDir
from eval_factory.report.reader import load_result
from eval_factory.workflows.annotate import export_sheets, import_sheets, rating_plan_lines
from eval_factory.workflows.calibrate import calibrate_run
from eval_factory.workflows.import_results import import_results
from eval_factory.workflows.recollect import recollected
from eval_factory.workflows.verify import verify
from foreign_results import QUESTIONS, inspect_samples, write_eval_log
from rated_folder import filled_in

EPOCHS = 5
RATED = 50


def raters_say(answer: SampledAnswer, _number: int) -> str:
    """Every third question is answered wrong, and question 4 too."""
    number = int(answer.key.id.removeprefix("fruit/"))
    return "no" if number % 3 == 0 or number == 4 else "yes"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_eval_log(tmp_path / "fruit.eval", inspect_samples(epochs=EPOCHS))


@pytest.fixture
def folder(log: Path, tmp_path: Path) -> Path:
    import_results(log, tmp_path / "out")
    return tmp_path / "out"


def rate(folder: Path, sheets: Path) -> None:
    exported = export_sheets(folder, sheets, RATED, 2)
    import_sheets(folder, [filled_in(exported, rater, raters_say) for rater in ("1", "2")])


def test_people_rate_an_imported_result(folder: Path, log: Path, tmp_path: Path) -> None:
    rate(folder, tmp_path / "sheets")
    people = load_result(folder).result.clinicians
    assert people is not None
    assert (people.rated, people.answers, people.raters) == (RATED, EPOCHS * QUESTIONS, 2)
    assert people.corrected is not None
    assert people.corrected.value < 8 / QUESTIONS
    assert verify(folder).findings == ()
    log.unlink()
    assert verify(folder).intact
    assert any("0.5" in line for line in rating_plan_lines(folder, None))


def test_ratings_outlive_another_import_of_the_same_source(
    folder: Path, log: Path, tmp_path: Path
) -> None:
    rate(folder, tmp_path / "sheets")
    before = load_result(folder).result.clinicians
    import_results(log, folder)
    assert load_result(folder).result.clinicians == before
    assert verify(folder).intact


def test_a_changed_rating_is_found(folder: Path, tmp_path: Path) -> None:
    rate(folder, tmp_path / "sheets")
    ratings = RunDir(folder).ratings
    ratings.write_text(ratings.read_text().replace('"value": 1.0', '"value": 0.0', 1))
    assert {finding.file for finding in verify(folder).findings} >= {
        "annotations/ratings.jsonl",
        "evaluation_config.yaml",
    }


def test_the_scorer_of_an_imported_result_is_calibrated(folder: Path, tmp_path: Path) -> None:
    rate(folder, tmp_path / "sheets")
    found = calibrate_run(folder, (), tmp_path / "passport").passport
    assert (found.judge, found.asked) == ("choice", None)
    assert found.found.total.items == RATED


def test_an_imported_result_is_written_again_as_it_was(folder: Path) -> None:
    with recollected(RunDir(folder), load_result(folder)) as made:
        for path in made.rundir.existing_result_files():
            stored = folder / path.relative_to(made.rundir.root)
            assert path.read_bytes() == stored.read_bytes()


@pytest.mark.parametrize(
    ("command", "others"),
    [
        (("import",), ("data import", "annotate import")),
        (("data", "import"), ("eval-factory import", "annotate import")),
        (("annotate", "import"), ("eval-factory import", "data import")),
    ],
)
def test_three_commands_that_import_name_each_other(
    command: tuple[str, ...], others: tuple[str, ...]
) -> None:
    shown = " ".join(CliRunner().invoke(cli, [*command, "--help"]).output.split())
    for other in others:
        assert other in shown
