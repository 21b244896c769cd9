"""`calibrate`: where the passport is written, and where it is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from eval_factory import api
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.rundir import sha256_of
from eval_factory.scoring.judge_passports import PASSPORT
from eval_factory.workflows.calibrate import PASSPORT_PAGE, Calibrated, calibrate
from facts import naming, says
from invented_labels import COLUMN, SECRET, drawn, line, written_labels


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return written_labels(tmp_path / "labels.jsonl", drawn(60))


def on(day: int, labels: Path, to: Path, judge: str = "invented") -> Calibrated:
    return calibrate(labels, [COLUMN], judge, to, today=f"2026-11-{day}")


def test_the_passport_says_whose_it_is_and_of_what(labels: Path, tmp_path: Path) -> None:
    made = on(27, labels, tmp_path / "new" / "passport")
    assert made.files == (
        tmp_path / "new/passport" / PASSPORT,
        tmp_path / "new/passport" / PASSPORT_PAGE,
    )
    held = load_mapping(made.files[0], needs="a passport")
    assert (held["judge"], held["judge_labels"], held["date"]) == ("invented", COLUMN, "2026-11-27")
    assert held["label_set"] == {
        "sha256": sha256_of(labels),
        "items": 60,
        "labels": 132,
        "physicians": 3,
        "conversations": 60,
    }
    assert held["verdict"] == made.passport.verdict
    figures = made.passport.found.total.judge
    assert figures is not None
    assert held["figures"]["judge"]["kappa"]["value"] == figures.kappa.value
    for file in made.files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert SECRET not in file.read_text("utf-8")
    assert stat.S_IMODE((tmp_path / "new/passport").stat().st_mode) == 0o700


def test_the_same_labels_again_change_nothing(labels: Path, tmp_path: Path) -> None:
    first = on(27, labels, tmp_path / "p")
    before = [file.read_bytes() for file in first.files]
    again = on(28, labels, tmp_path / "p")
    assert [file.read_bytes() for file in again.files] == before
    (tmp_path / "p" / PASSPORT_PAGE).unlink()
    mended = on(29, labels, tmp_path / "p")
    assert [file.read_bytes() for file in mended.files] == before


@pytest.mark.parametrize(
    "what", ["file", "link", "other file", "page alone", "more", "other judge", "other labels"]
)
def test_a_folder_with_something_else_is_left_alone(
    what: str, labels: Path, tmp_path: Path
) -> None:
    to = tmp_path / "p"
    judge = "invented"
    if what == "file":
        to.write_text("mine")
    elif what == "link":
        (tmp_path / "real").mkdir()
        to.symlink_to(tmp_path / "real")
    elif what in ("other file", "page alone"):
        to.mkdir()
        (to / ("notes.txt" if what == "other file" else PASSPORT_PAGE)).write_text("mine")
    else:
        on(27, labels, to)
        if what == "more":
            (to / "notes.txt").write_text("mine")
        elif what == "other judge":
            judge = "another"
        else:
            written_labels(labels, drawn(61))
    before = {path: path.read_bytes() for path in to.rglob("*")} if to.is_dir() else to.read_bytes()
    with pytest.raises(ConfigError, match=naming("a folder", "new or empty")):
        on(28, labels, to, judge)
    assert before == (
        {path: path.read_bytes() for path in to.rglob("*")} if to.is_dir() else to.read_bytes()
    )


def test_mistakes_come_with_file_and_line_and_nothing_is_written(tmp_path: Path) -> None:
    rows = [line(number, judged=f"{SECRET} {number}") for number in range(14)]
    file = written_labels(tmp_path / "labels.jsonl", rows)
    with pytest.raises(ConfigError) as raised:
        on(27, file, tmp_path / "p")
    assert len(raised.value.problems) == 11
    says(raised.value.problems[0], f"{file}: line 1", "judge_label", "true or false")
    says(raised.value.problems[-1], f"{file}: 4 more")
    assert SECRET not in str(raised.value)
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.jsonl", "there is no such file"),
        (".", "cannot be read: Is a directory"),
        ("a\0b", "cannot be read: "),
    ],
)
def test_a_file_that_cannot_be_read(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        calibrate(tmp_path / name, [COLUMN])


def test_from_python(labels: Path, tmp_path: Path) -> None:
    made = api.calibrate(str(labels), judge_labels=COLUMN)
    assert (made.files, made.passport.judge, made.passport.found.total.items) == (
        (),
        COLUMN,
        60,
    )
    assert (
        api.calibrate(labels, judge_labels=COLUMN, judge="x", to=str(tmp_path / "p")).passport.judge
        == "x"
    )
    assert isinstance(made, api.Calibrated)
