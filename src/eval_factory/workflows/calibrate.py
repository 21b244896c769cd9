"""A judge's decisions that are there already, held against physicians': read, computed, written. Nobody is asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import load_mapping, to_yaml
from eval_factory.core.rundir import PRIVATE, PRIVATE_FOLDER, sha256_of
from eval_factory.core.safe_files import renamed_together, write_atomic
from eval_factory.report.judge_passport import JudgePassport, passport_document, passport_page
from eval_factory.scoring.judge_calibration import calibration_of
from eval_factory.tasks.file_problems import shortened
from eval_factory.tasks.physician_labels import read_labels

PASSPORT, PAGE = "judge_passport.yaml", "judge_passport.html"


@dataclass(frozen=True)
class Calibrated:
    """What was found: `passport.found` has the figures, `passport.verdict` the sentences; and what was written."""

    passport: JudgePassport
    files: tuple[Path, ...] = ()
    unchanged: bool = False
    """Whether the files were there already, with the same bytes."""


def calibrate(
    labels: Path, column: str, judge: str | None = None, to: Path | None = None, *, today: str | None = None
) -> Calibrated:
    """As `api.calibrate`. `today`: of a passport that is not there yet, YYYY-MM-DD."""
    try:
        read, digest = read_labels(labels, column), sha256_of(labels)
    except FileNotFoundError:
        raise ConfigError(f"{labels}: there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        raise ConfigError(f"{labels}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if read.problems:
        raise ConfigError([f"{labels}: {problem}" for problem in shortened(read.problems, inside="the file")])
    judge = judge or column
    before = None if to is None else _date_of_same(to, digest, judge, column)
    passport = JudgePassport(judge, column, digest, calibration_of(read.rows))
    date = before or today or datetime.now(timezone.utc).date().isoformat()
    return Calibrated(passport) if to is None else _written(passport, to, date)


def _date_of_same(folder: Path, digest: str, judge: str, column: str) -> str | None:
    """The date of the passport that is there, or None. Raises ConfigError: the folder holds something else."""
    refused = "name a folder that is new or empty"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"--to {folder}: is no folder; {refused}")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if not names:
        return None
    if PASSPORT not in names or names - {PASSPORT, PAGE}:
        raise ConfigError(f"--to {folder}: holds something else, and nothing is overwritten; {refused}")
    there = load_mapping(folder / PASSPORT, "a judge's passport", inside=folder)
    label_set = there.get("label_set")
    same = isinstance(label_set, dict) and label_set.get("sha256") == digest
    if not same or (there.get("judge"), there.get("judge_labels")) != (judge, column):
        raise ConfigError(f"--to {folder}: holds the passport of another judge or of other labels; {refused}")
    return str(there.get("date"))


def _written(passport: JudgePassport, folder: Path, date: str) -> Calibrated:
    written = {
        folder / PASSPORT: to_yaml(passport_document(passport, date)), folder / PAGE: passport_page(passport, date),
    }  # fmt: skip
    if all(file.is_file() and file.read_bytes() == text.encode() for file, text in written.items()):
        return Calibrated(passport, tuple(written), unchanged=True)
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with renamed_together():
        for file, text in written.items():
            write_atomic(file, text, mode=PRIVATE)
    return Calibrated(passport, tuple(written))
