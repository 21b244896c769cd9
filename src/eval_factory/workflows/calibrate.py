"""Judges held against physicians: decisions read or asked for, figures computed, passports written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import load_mapping, to_yaml
from eval_factory.core.rundir import PRIVATE, PRIVATE_FOLDER, RunDir, sha256_of
from eval_factory.core.safe_files import renamed_together, write_atomic
from eval_factory.plan.run_plan import make_plan, slug_of
from eval_factory.report.judge_passport import (
    JudgePassport,
    juries_document,
    juries_page,
    passport_document,
    passport_page,
    size_of,
)
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.clinicians import RatedItem, rated_items
from eval_factory.scoring.judge_calibration import calibration_of, steadiness_of
from eval_factory.scoring.judge_passports import PASSPORT, AskedJudge, prompt_hashes
from eval_factory.scoring.jury_choice import BestJury, best_juries
from eval_factory.scoring.rating_calibration import RatedByJudge, calibration_of_ratings
from eval_factory.tasks.file_problems import shortened
from eval_factory.tasks.physician_labels import LabelledItem, read_labels
from eval_factory.tasks.upstreams import HELM
from eval_factory.workflows.ask_judges import QUESTIONS, RUN, Asking, Decisions, about_judge, ask_judges
from eval_factory.workflows.recollect import stored_evaluation

PAGE, JURIES, JURIES_PAGE, JUDGES = "judge_passport.html", "juries.yaml", "juries.html", "judges"
PROBES = 50  # answers of which it is asked again, where nothing else is said: 200 requests to each judge


@dataclass(frozen=True)
class Calibrated:
    """What was found: a passport's `found` has the figures, `verdict` the sentences; and what was written."""

    passports: tuple[JudgePassport, ...]
    juries: tuple[BestJury, ...] = ()  # where there are several judges: the best of each odd size
    files: tuple[Path, ...] = ()
    unchanged: bool = False  # whether the files were there already, with the same bytes

    @property
    def passport(self) -> JudgePassport:
        """The first judge's."""
        return self.passports[0]


def calibrate(
    labels: Path, columns: Sequence[str], judge: str | None = None, to: Path | None = None, *, today: str | None = None
) -> Calibrated:
    """Decisions that are there already; nobody is asked.

    Args:
        columns: fields with a judge's decision each.
        judge: what the one judge is called, if not as its field.
        today: of a passport that is not there yet, YYYY-MM-DD.
    """
    passports, digest, decisions = [], _digest(labels), {}
    items: list[LabelledItem] = []
    for column in columns:
        items = _read(labels, column)
        decisions[column] = [item.judged for item in items]
        passports.append(JudgePassport(judge or column, column, digest, calibration_of(items)))
    return _written(passports, _juries(items, decisions, {}), to, today)


def calibrate_by_asking(labels: Path, asking: Asking, *, env: Mapping[str, str], screen: TextIO) -> Calibrated:
    """The judges of a run config are asked about each labelled answer."""
    digest, items = _digest(labels), _read(labels, None)
    _refuse_others(asking.to)
    answered = ask_judges(items, asking, env=env, screen=screen)
    passports = []
    for name, decisions in answered.decisions.items():
        judged = [replace(item, judged=bool(met)) for item, met in zip(items, decisions, strict=True)]
        decided = [item for item, met in zip(judged, decisions, strict=True) if met is not None]
        of_same = {
            change: [(number, met) for number, met in changed if decisions[number] is not None]
            for change, changed in answered.changed[name].items()
        }
        steadiness = {change: steadiness_of(judged, changed) for change, changed in of_same.items() if changed}
        passports.append(
            JudgePassport(
                name, "", digest, calibration_of(decided), answered.judges[name], steadiness, len(items) - len(decided)
            )
        )
    costs = {name: judge.cost_per_1000 for name, judge in answered.judges.items()}
    return _written(passports, _juries(items, answered.decisions, costs), asking.to, None)


def calibrate_run(folder: Path, judges: Sequence[str] = (), to: Path | None = None) -> Calibrated:
    """The judges of a run, held against the people who rated its answers (`annotate import`). Nobody is asked.

    Raises:
        ConfigError: there is no such judge.
        PrerequisiteError: there is no result, or nobody has rated its answers.
    """
    stored, rundir = load_result(folder), RunDir(folder)
    rated, marks = rated_items(stored.result, rundir)
    known = list(dict.fromkeys(judge for item in rated for judge in item.marks))
    for name in judges:
        if name not in known:
            raise ConfigError(f"--judge {name}: {folder} has no such judge; there are {', '.join(known)}")
    asked, digest = _judges_of(rundir, stored), sha256_of(rundir.ratings)
    passports, decisions = [], {}
    for name in judges or known:
        by_judge = [item for item in rated if name in item.marks]
        if len(marks) > 2:
            of_ratings = [
                RatedByJudge(one.conversation, one.marks[name], one.ratings, one.category) for one in by_judge
            ]
            found = calibration_of_ratings(of_ratings, marks)
        else:
            found = calibration_of([_labelled(one, one.marks[name] == marks[-1], marks[-1]) for one in by_judge])
        decisions[name] = [item.marks[name] == marks[-1] if name in item.marks else None for item in rated]
        passports.append(JudgePassport(name, "", digest, found, asked.get(name), {}, len(rated) - len(by_judge)))
    items = [_labelled(one, judged=False, met=marks[-1]) for one in rated]
    return _written(passports, _juries(items, decisions, {}) if len(marks) == 2 else (), to, None)


def _labelled(item: RatedItem, judged: bool, met: float) -> LabelledItem:
    labels = tuple(rating == met for rating in item.ratings.values())
    return LabelledItem(item.conversation, judged, labels, tuple(item.ratings), item.category, item.length)


def _judges_of(rundir: RunDir, stored: StoredResult) -> dict[str, AskedJudge]:
    """The judges of a rubric as they were asked; none whose prompt is not this version's."""
    evaluation = stored_evaluation(rundir, stored)
    if not evaluation.task.helm.rubric or evaluation.task.helm.upstream is not HELM:
        return {}
    at_once = evaluation.run.config.params.extra.criteria_per_request or 1
    found = {judge.role: about_judge(judge, stored.result, at_once) for judge in make_plan(evaluation, rundir).judges}
    return {name: one for name, one in found.items() if set(one.prompt_sha256) == prompt_hashes(at_once)}


def _juries(
    items: Sequence[LabelledItem], decisions: Mapping[str, Decisions], costs: Mapping[str, float | None]
) -> tuple[BestJury, ...]:
    """By the items of which all judges decided."""
    if len(decisions) < 2:
        return ()
    complete = [number for number, said in enumerate(zip(*decisions.values(), strict=True)) if None not in said]
    of_all = {name: [bool(given[number]) for number in complete] for name, given in decisions.items()}
    return tuple(best_juries([items[number] for number in complete], of_all, costs)) if complete else ()


def _digest(labels: Path) -> str:
    try:
        return sha256_of(labels)
    except FileNotFoundError:
        raise ConfigError(f"{labels}: there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        raise ConfigError(f"{labels}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _read(labels: Path, column: str | None) -> list[LabelledItem]:
    try:
        read = read_labels(labels, column)
    except OSError as error:
        raise ConfigError(f"{labels}: cannot be read: {error.strerror or error}") from None
    if read.problems:
        raise ConfigError([f"{labels}: {problem}" for problem in shortened(read.problems, inside="the file")])
    return read.rows


def _written(
    passports: Sequence[JudgePassport], juries: tuple[BestJury, ...], to: Path | None, today: str | None
) -> Calibrated:
    """One passport into the folder itself, several into folders of the judges' names below it."""
    if to is None:
        return Calibrated(tuple(passports), juries)
    several = len(passports) > 1
    _refuse_others(to)
    texts: dict[Path, str] = {}
    for passport in passports:
        is_name = re.fullmatch(r"[A-Za-z0-9][\w.-]{0,79}", passport.judge)  # of a field of the labels: anything
        folder = to / JUDGES / (passport.judge if is_name else slug_of(passport.judge)) if several else to
        date = _date_of_same(folder, passport) or today or datetime.now(timezone.utc).date().isoformat()
        texts[folder / PASSPORT] = to_yaml(passport_document(passport, date))
        texts[folder / PAGE] = passport_page(passport, date)
    if juries:
        texts[to / JURIES] = to_yaml(juries_document(juries))
        texts[to / JURIES_PAGE] = juries_page(juries, size_of(passports[0].found), passports[0].found.total.items)
    if all(file.is_file() and file.read_bytes() == text.encode() for file, text in texts.items()):
        return Calibrated(tuple(passports), juries, tuple(texts), unchanged=True)
    for folder in {file.parent for file in texts}:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with renamed_together():
        for file, text in texts.items():
            write_atomic(file, text, mode=PRIVATE)
    return Calibrated(tuple(passports), juries, tuple(texts))


_REFUSED = "name a folder that is new or empty"


def _refuse_others(folder: Path) -> None:
    """Raises ConfigError: it is no folder, or holds what `calibrate` did not write."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"--to {folder}: is no folder; {_REFUSED}")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    alone = (PAGE in names and PASSPORT not in names) or (RUN in names and QUESTIONS not in names)
    if alone or names - {PASSPORT, PAGE, QUESTIONS, RUN, JUDGES, JURIES, JURIES_PAGE}:
        raise ConfigError(f"--to {folder}: holds something else, and nothing is overwritten; {_REFUSED}")


def _date_of_same(folder: Path, passport: JudgePassport) -> str | None:
    """The date of the passport that is there, or None. Raises ConfigError: it is another one, or something else."""
    _refuse_others(folder)
    if not (folder / PASSPORT).exists():
        return None
    there = load_mapping(folder / PASSPORT, "a judge's passport", inside=folder)
    label_set, asked = there.get("label_set"), there.get("asked")
    same = isinstance(label_set, dict) and label_set.get("sha256") == passport.labels_sha256
    as_before = passport.asked.judge_sha256 if passport.asked else None
    if (asked.get("judge_sha256") if isinstance(asked, dict) else None) != as_before or not same or (
        there.get("judge"), there.get("judge_labels")
    ) != (passport.judge, passport.column or None):  # fmt: skip
        raise ConfigError(f"--to {folder}: holds the passport of another judge or of other labels; {_REFUSED}")
    return str(there.get("date"))
