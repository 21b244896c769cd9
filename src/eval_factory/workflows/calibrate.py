"""Compares judges with physicians: collects the decisions of both, and writes judge passports.

A judge's passport is a file that says how often the judge agrees with physicians. An item is one
criterion of a rubric for one answer, with the physicians' decisions about it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import load_mapping, to_yaml
from eval_factory.core.rundir import (
    GIT_IGNORE,
    PRIVATE,
    PRIVATE_FOLDER,
    RunDir,
    keep_from_git,
    sha256_of,
)
from eval_factory.core.safe_files import rename_together, write_atomic
from eval_factory.plan.run_plan import make_plan, slug_of
from eval_factory.report.judge_passport import (
    JudgePassport,
    juries_document,
    juries_page,
    label_set_size,
    passport_document,
    passport_page,
)
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.clinicians import rated_items
from eval_factory.scoring.judge_calibration import (
    QuestionChange,
    Steadiness,
    calibration_of,
    steadiness_of,
)
from eval_factory.scoring.judge_passports import PASSPORT, AskedJudge, prompt_hashes
from eval_factory.scoring.jury_choice import BestJury, best_juries
from eval_factory.tasks.file_problems import first_problems
from eval_factory.tasks.physician_labels import LabelledItem, read_labels
from eval_factory.workflows.ask_judges import (
    QUESTIONS,
    RUN_FOLDER,
    ChangedDecisions,
    Decisions,
    JudgingOptions,
    ask_judges,
    asked_judge,
    has_own_judge_prompt,
)
from eval_factory.workflows.recollect import stored_evaluation

PASSPORT_PAGE = "judge_passport.html"  # a judge's passport as a page
JURIES = "juries.yaml"  # the best juries of the judges
JURIES_PAGE = "juries.html"
JUDGES_FOLDER = "judges"  # the folder with a subfolder for each judge, if there are several judges


@dataclass(frozen=True)
class Calibrated:
    """The passports of the calibrated judges, and the files that were written.

    The field `found` of a passport has the figures, `verdict` has sentences about them.
    """

    passports: tuple[JudgePassport, ...]
    juries: tuple[BestJury, ...] = ()  # the best jury of each odd size, if there are several judges
    files: tuple[Path, ...] = ()

    @property
    def passport(self) -> JudgePassport:
        """The passport of the first judge."""
        return self.passports[0]


def calibrate(
    labels: Path,
    columns: Sequence[str],
    judge: str | None = None,
    to: Path | None = None,
    *,
    today: str | None = None,
) -> Calibrated:
    """Calibrate judges whose decisions are already in the label file; no judge is asked.

    Args:
        labels: The JSON lines file with the physicians' and the judges' decisions.
        columns: The fields of the file that contain a judge's decisions, one field for each judge.
        judge: The name of the judge if there is only one; None: the name of the field.
        to: The folder for the passports; None: no passport is written.
        today: The date of a new passport as YYYY-MM-DD; None: the current date.

    Raises:
        ConfigError: The label file is missing or wrong, or the folder `to` contains other files.
    """
    passports = []
    decisions = {}
    items: list[LabelledItem] = []  # the same items for each column, except for the decisions
    for column in columns:
        digest, items = _read_label_file(labels, column)
        decisions[column] = [item.judged for item in items]
        passports.append(JudgePassport(judge or column, column, digest, calibration_of(items)))
    juries = _juries(items, decisions, costs={})
    return _write_passports(passports, juries, to, today=today)


def calibrate_by_asking(
    labels: Path, asking: JudgingOptions, *, env: Mapping[str, str], screen: TextIO
) -> Calibrated:
    """Calibrate the judges of a run config: ask each judge about each labelled answer.

    Raises:
        ConfigError: The run config is wrong, lacks a named judge or has no rubric; or the folder
            contains other questions.
        NotReportableError: A judge left too many items without a decision.
        EvalFactoryError: For the same reasons as in `evaluate`.
    """
    digest, items = _read_label_file(labels, column=None)
    _check_folder(asking.folder)
    asked = ask_judges(items, asking, env=env, screen=screen)
    passports = []
    for name, decisions in asked.decisions.items():
        judged = _judged_items(items, decisions)
        passports.append(
            JudgePassport(
                judge=name,
                column="",  # the decisions come from the judge, not from a field of the label file
                labels_sha256=digest,
                found=calibration_of(judged),
                asked=asked.judges[name],
                steadiness=_steadiness(items, decisions, asked.changed_decisions[name]),
                unjudged=len(items) - len(judged),
            )
        )
    costs = {name: judge.cost_per_1000 for name, judge in asked.judges.items()}
    juries = _juries(items, asked.decisions, costs)
    return _write_passports(passports, juries, asking.folder)


def _judged_items(items: Sequence[LabelledItem], decisions: Decisions) -> list[LabelledItem]:
    """Return the items that a judge decided, each with the judge's decision or mark."""
    judged = []
    for item, decision in zip(items, decisions, strict=True):
        if decision is not None:
            judged.append(replace(item, judged=decision))
    return judged


def _steadiness(
    items: Sequence[LabelledItem], decisions: Decisions, changed: ChangedDecisions
) -> dict[QuestionChange, Steadiness]:
    """Return the steadiness of one judge: how often it decides as before after each kind of change.

    Args:
        items: All items.
        decisions: The judge's first decision about each item.
        changed: The judge's decisions on repeated questions.
    """
    first_decisions = []
    for item, decision in zip(items, decisions, strict=True):
        # An undecided item must have a number here, but its number is not used below.
        first_decisions.append(replace(item, judged=0.0 if decision is None else decision))
    by_change = {}
    for change, changed_decisions in changed.items():
        # An item without a first decision cannot be compared with its later decisions.
        comparable = []
        for number, decision in changed_decisions:
            if decisions[number] is not None:
                comparable.append((number, decision))
        if comparable:
            by_change[change] = steadiness_of(first_decisions, comparable)
    return by_change


def calibrate_run(folder: Path, judges: Sequence[str] = (), to: Path | None = None) -> Calibrated:
    """Calibrate the judges of a run by the ratings that people gave to the run's answers.

    The ratings come from `annotate import`; no judge is asked.

    Args:
        folder: The output folder of the run.
        judges: The names of the judges to calibrate; empty: all judges of the run.
        to: The folder for the passports; None: no passport is written.

    Raises:
        ConfigError: The run has no judge with a name in `judges`.
        PrerequisiteError: The folder has no result, or nobody has rated its answers.
    """
    stored = load_result(folder)
    rundir = RunDir(folder)
    # `marks`: each judge's mark of each item; `scale`: all possible marks, the lowest first
    items, marks, scale = rated_items(stored.result, rundir)
    for name in judges:
        if name not in marks:
            raise ConfigError(
                f"--judge {name}: {folder} has no judge of this name; its judges are "
                f"{', '.join(marks)}"
            )
    asked_judges = _judges_of(rundir, stored)
    digest = sha256_of(rundir.ratings)
    chosen = {name: marks[name] for name in judges or marks}
    passports = []
    for name, judge_marks in chosen.items():
        judged = _judged_items(items, judge_marks)
        passports.append(
            JudgePassport(
                judge=name,
                column="",  # the marks come from the result, not from a field of a label file
                labels_sha256=digest,
                found=calibration_of(judged, scale),
                asked=asked_judges.get(name),
                unjudged=len(items) - len(judged),
            )
        )
    juries: tuple[BestJury, ...] = ()
    if len(scale) == 2:  # a jury decides by majority, which needs marks with only two values
        juries = _juries(items, chosen, costs={})
    return _write_passports(passports, juries, to)


def _judges_of(rundir: RunDir, stored: StoredResult) -> dict[str, AskedJudge]:
    """Return how each judge of a run was asked, by the judge's role.

    Judges that another program asked are left out. Judges are also left out if they were asked
    with another prompt than eval-factory's own prompt of this version.
    """
    if stored.result.provenance.imported is not None:
        return {}
    evaluation = stored_evaluation(rundir, stored)
    if not has_own_judge_prompt(evaluation):
        return {}
    criteria_per_request = evaluation.extra.criteria_per_request or 1
    judges = {}
    for judge in make_plan(evaluation, rundir).judges:
        judge_record = asked_judge(judge, stored.result, criteria_per_request)
        if set(judge_record.prompt_sha256) == prompt_hashes(judge, criteria_per_request):
            judges[judge.role] = judge_record
    return judges


def _juries(
    items: Sequence[LabelledItem],
    decisions: Mapping[str, Decisions],
    costs: Mapping[str, float | None],
) -> tuple[BestJury, ...]:
    """Return the best juries, computed from the items that all judges decided.

    The result is empty if there are fewer than two judges, or if no item was decided by all judges.

    Args:
        items: All items.
        decisions: The decisions of each judge, by the judge's name.
        costs: The cost of 1,000 requests to each judge in US dollars, by name; a judge may be
            missing.
    """
    if len(decisions) < 2:
        return ()
    decided_by_all = []  # the numbers of the items that all judges decided
    for number in range(len(items)):
        decisions_on_item = [judge_decisions[number] for judge_decisions in decisions.values()]
        if None not in decisions_on_item:
            decided_by_all.append(number)
    if not decided_by_all:
        return ()
    common_items = [items[number] for number in decided_by_all]
    common_decisions = {}
    for name, judge_decisions in decisions.items():
        common_decisions[name] = [bool(judge_decisions[number]) for number in decided_by_all]
    return tuple(best_juries(common_items, common_decisions, costs))


def _read_label_file(labels: Path, column: str | None) -> tuple[str, list[LabelledItem]]:
    """Return the SHA-256 of the label file, and its items.

    `column` is the field with a judge's decisions. If `column` is None, the items have the texts to
    show to a judge, and their `judged` has no meaning.

    Raises:
        ConfigError: The file is missing, cannot be read or has wrong lines.
    """
    try:
        label_file = read_labels(labels, column)  # refuses a file that is too large to be hashed
        digest = sha256_of(labels)
    except FileNotFoundError:
        raise ConfigError(f"{labels}: there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the file's name
        raise ConfigError(
            f"{labels}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if label_file.problems:
        raise ConfigError(
            [
                f"{labels}: {problem}"
                for problem in first_problems(label_file.problems, inside="the file")
            ]
        )
    return digest, label_file.rows


def _write_passports(
    passports: Sequence[JudgePassport],
    juries: tuple[BestJury, ...],
    to: Path | None,
    *,
    today: str | None = None,
) -> Calibrated:
    """Write the passports and juries, if `to` is a folder, and return them with the files' paths.

    A single passport is written to `to` itself. Several passports are written to one subfolder for
    each judge. `today` is the date of new passports; None: the current date.
    """
    if to is None:
        return Calibrated(tuple(passports), juries)
    has_several_judges = len(passports) > 1
    _check_folder(to)
    texts: dict[Path, str] = {}
    for passport in passports:
        folder = to
        if has_several_judges:
            folder = to / JUDGES_FOLDER / _folder_name(passport.judge)
        current_date = datetime.now(timezone.utc).date().isoformat()
        date = _stored_date(folder, passport) or today or current_date
        texts[folder / PASSPORT] = to_yaml(passport_document(passport, date))
        texts[folder / PASSPORT_PAGE] = passport_page(passport, date)
    if juries:
        size = label_set_size(passports[0].found)  # all judges have the same label set
        item_count = passports[0].found.total.items
        texts[to / JURIES] = to_yaml(juries_document(juries))
        texts[to / JURIES_PAGE] = juries_page(juries, size, item_count)
    for folder in {file.parent for file in texts}:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        keep_from_git(folder, is_ours=(folder / PASSPORT).exists())
    with rename_together():
        for file, text in texts.items():
            write_atomic(file, text, mode=PRIVATE)
    return Calibrated(tuple(passports), juries, tuple(texts))


def _folder_name(judge: str) -> str:
    """Return the name of the subfolder for a judge.

    The judge's name may come from a field of the label file and contain any character.
    """
    if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,79}", judge):  # "gpt-4.1_judge"
        return judge
    return slug_of(judge)


_CHOOSE_EMPTY_FOLDER = "name a folder that is new or empty"


def _check_folder(folder: Path) -> None:
    """Check that `calibrate` may write to the folder.

    Raises:
        ConfigError: The path is not a folder, or the folder contains files that `calibrate` did not
            write.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"--to {folder}: is not a folder; {_CHOOSE_EMPTY_FOLDER}")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    # `calibrate` never writes the page without the passport, or the run without the questions
    is_page_alone = PASSPORT_PAGE in names and PASSPORT not in names
    is_run_alone = RUN_FOLDER in names and QUESTIONS not in names
    own_names = {
        GIT_IGNORE,
        PASSPORT,
        PASSPORT_PAGE,
        QUESTIONS,
        RUN_FOLDER,
        JUDGES_FOLDER,
        JURIES,
        JURIES_PAGE,
    }
    if is_page_alone or is_run_alone or names - own_names:
        raise ConfigError(
            f"--to {folder}: contains files that calibrate did not write and will not overwrite; "
            f"{_CHOOSE_EMPTY_FOLDER}"
        )


def _stored_date(folder: Path, passport: JudgePassport) -> str | None:
    """Return the date of the same judge's passport in the folder; None if there is no passport.

    Raises:
        ConfigError: The folder contains another passport, or files that `calibrate` did not write.
    """
    _check_folder(folder)
    if not (folder / PASSPORT).exists():
        return None
    stored = load_mapping(folder / PASSPORT, needs="a judge's passport", inside=folder)
    stored_identity = [stored.get("judge"), stored.get("judge_labels")]
    for name, key in (("label_set", "sha256"), ("asked", "judge_sha256")):
        section = stored.get(name)
        stored_identity.append(section.get(key) if isinstance(section, dict) else None)
    column = passport.column or None  # the document states None for an empty name
    judge_hash = passport.asked.judge_sha256 if passport.asked else None
    if stored_identity != [passport.judge, column, passport.labels_sha256, judge_hash]:
        raise ConfigError(
            f"--to {folder}: contains the passport of another judge or of other labels; "
            f"{_CHOOSE_EMPTY_FOLDER}"
        )
    return str(stored.get("date"))
