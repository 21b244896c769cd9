"""Lets people rate a sample of a result's answers.

The module writes rating sheets, imports the completed sheets and updates the result with the
ratings. It also plans how many answers people must rate for a confidence interval of a given width.
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from markupsafe import Markup

from eval_factory.analysis.annotation_sheets import (
    Candidate,
    DrawSettings,
    csv_sheet,
    draw_answers,
    rater_order,
    read_returns,
    sample_of_draw,
    strata_of,
)
from eval_factory.core import formats
from eval_factory.core.annotations import (
    AnswerKey,
    Sample,
    ShownAnswer,
    rated_question_of,
    read_annotations,
    read_sample,
)
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import Clinicians, InstanceRecord, Provenance, TaskResult
from eval_factory.core.rundir import PRIVATE, PRIVATE_FOLDER, RunDir, keep_from_git
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.tables import Table, screen_lines
from eval_factory.report.checksums import digests_of, listed_checksums, write_checksums
from eval_factory.report.page.document import rater_form
from eval_factory.report.page.page_media import PageMedia
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.clinicians import people_scores
from eval_factory.scoring.intervals import design_effect, effective_clusters, lower_end_of_scale
from eval_factory.scoring.prediction_powered import (
    MIN_RATED,
    ExpectedFigures,
    half_width_of,
    ratings_needed_for,
)
from eval_factory.workflows.recollect import recollected, require_last_run_state
from eval_factory.workflows.resume import write_result_state

UPDATED_FILES = ("evaluation_config.yaml", "results.yml", "report.html", "report.md")
"""The files of a result that people's ratings change."""

_MAX_RATERS = 50
_MAX_PICTURE_SIDE = 1024  # the maximum width and height of a picture in a form, in pixels
_MAX_MEDIA_SIZE = 64 * 1024 * 1024  # of all media in a form together, in base64 characters
_MIN_PAIRS = 10  # answers with a rating and a score; fewer give no usable correlation
_SHOWN_SHARES = (0.1, 0.05, 0.03)
"""The half widths in a rating plan, as shares of the score's range, if the user names no width."""
_ASSUMED_CORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.9)
"""The correlations of judge and people for which a rating plan has a row."""


@dataclass(frozen=True)
class Exported:
    """The sheets that `export_sheets` has written, and their sample."""

    sample: Sample
    files: tuple[Path, ...]
    sample_file: Path  # the file that maps the codes on the sheets to answers


@dataclass(frozen=True)
class Imported:
    """The number of imported ratings, and the result that was updated with them."""

    ratings: int
    empty: int  # rows without a rating
    stored: StoredResult
    # notes on parts of the result that could not be computed again, or that another version wrote
    notes: tuple[str, ...]

    @property
    def clinicians(self) -> Clinicians:
        """The people's scores in the updated result."""
        clinicians = self.stored.result.clinicians
        if clinicians is None:
            raise ValueError("a result with ratings must have the people's scores")
        return clinicians


def export_sheets(
    folder: Path,
    out: Path,
    count: int = 100,
    raters: int = 3,
    *,
    seed: int = 0,
    kind: str | None = None,
    with_reference: bool = True,
) -> Exported:
    """Draw a sample of `count` answers, and write a CSV file and an HTML form for each rater.

    The sheets name each answer by a code. A file in the result's folder maps the codes to the
    answers.

    Args:
        folder: The folder of the result.
        out: The folder for the sheets.
        count: The number of answers in the sample.
        raters: The number of people who rate, from 1 to 50.
        seed: The seed of the random sample.
        kind: `ratings` or `criteria`; None: criteria if the result has criteria.
        with_reference: True to show the raters the reference answers.

    Raises:
        ConfigError: Raters cannot judge what the main metric measures, or a sheet already exists.
        PrerequisiteError: The folder has no result.
    """
    stored = load_result(folder)
    rundir = RunDir(stored.folder)
    if not 1 <= raters <= _MAX_RATERS:
        raise ConfigError(f"--raters {raters}: 1 to {_MAX_RATERS} people can rate")
    names = tuple(str(number) for number in range(1, raters + 1))  # the names of the raters
    files = []
    for name in names:
        files += [out / f"rater_{name}.csv", out / f"rater_{name}.html"]
    _refuse_existing(files)
    draw = DrawSettings(count, seed, raters=names, identity=stored.result.provenance.run_identity)
    sample, shown = _draw_sample(stored, kind, draw, read_annotations(rundir.ratings).rated_answers)
    sample_file = rundir.sample_file(sample.id)
    with rundir.locked():
        rundir.annotations.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        write_atomic(sample_file, json.dumps(asdict(sample), indent=1) + "\n", mode=PRIVATE)
        # A folder without SHA256SUMS gets none: nothing shows that its files are unaltered.
        if earlier_digests := listed_checksums(rundir):
            _write_checksums_of(rundir, [sample_file], earlier_digests, stored.result.provenance)
    page_media = PageMedia(_MAX_PICTURE_SIDE, _MAX_MEDIA_SIZE)
    media: list[Markup] = []
    for answer in shown.values():
        media += page_media.add(stored.folder, answer.media)
    out.mkdir(parents=True, exist_ok=True)
    keep_from_git(out, is_ours=False)
    for name in names:
        codes = [answer.code for answer in sample.answers]
        order = rater_order(codes, sheet=sample.id, rater=name)
        as_csv = csv_sheet(sample, name, order, shown, with_reference=with_reference)
        form = rater_form(sample, name, order, shown, with_reference=with_reference, media=media)
        write_atomic(out / f"rater_{name}.csv", as_csv, mode=PRIVATE)
        write_atomic(out / f"rater_{name}.html", form, mode=PRIVATE)
    return Exported(sample, tuple(files), sample_file)


def _refuse_existing(files: Sequence[Path]) -> None:
    """Check that no file exists, because a rater may have filled in an existing sheet.

    Raises:
        ConfigError: A file exists.
    """
    existing = []
    for file in files:
        if file.exists():
            existing.append(str(file))
    if existing:
        raise ConfigError(
            f"{', '.join(existing)}: the file already exists, and a rater may have filled it in: "
            "choose another folder with --out"
        )


def _draw_sample(
    stored: StoredResult, kind: str | None, draw: DrawSettings, rated: frozenset[AnswerKey]
) -> tuple[Sample, dict[str, ShownAnswer]]:
    """Draw the answers to rate.

    Args:
        stored: The result.
        kind: The kind of the sheets, as in `export_sheets`.
        draw: The settings of the draw.
        rated: The answers that are already rated; they are not drawn again.

    Returns:
        The sample, and a dict from the code of each drawn answer to the texts that a rater sees.

    Raises:
        ConfigError: No answer can be rated.
    """
    records = []
    for record in stored.result.instances:
        if record.metrics:
            records.append(record)
    rated_question = rated_question_of(stored.result, records, kind, system_prompts(stored))
    category_names = set(chain.from_iterable(record.categories for record in records))
    # The answers are grouped by the first field that groups the scores of the result, if any.
    group_field = next((name for name in stored.result.groups if name in category_names), None)
    candidates = []
    record_of_key = {}
    for record in records:
        score = rated_question.value_of(record)
        if score is not None and rated_question.questions(record):
            group = ""
            if group_field is not None:
                group = str(record.categories.get(group_field, ""))
            key = AnswerKey(record.id, record.trial)
            candidates.append(Candidate(key, score, group))
            record_of_key[key] = record
    if not candidates:
        raise ConfigError(f"{stored.folder}: no answer has a score, so there is nothing to rate")
    strata = strata_of(candidates, draw.count)  # groups of similar answers
    chosen = []  # (texts, number of the stratum, probability of being drawn)
    for key, stratum_number, probability in draw_answers(strata, rated, draw):
        shown = rated_question.shown_answer(record_of_key[key])
        chosen.append((shown, stratum_number, probability))
    sample = sample_of_draw(rated_question, strata, chosen, draw)
    shown_by_code = {}
    for answer, (shown, _, _) in zip(sample.answers, chosen, strict=True):
        shown_by_code[answer.code] = shown
    return sample, shown_by_code


def system_prompts(stored: StoredResult) -> frozenset[str]:
    """Return a set with the user's own system prompt; empty if the user set no prompt."""
    # An imported result has no endpoint, and `adapter_config` may be null.
    adapter = stored.target.get("api_endpoint", {}).get("adapter_config") or {}
    prompt = adapter.get("custom_system_prompt")
    if isinstance(prompt, str) and prompt:
        return frozenset([prompt])
    return frozenset()


def import_sheets(folder: Path, files: Sequence[Path]) -> Imported:
    """Import the ratings of completed sheets, and update the result with the ratings.

    If any row is wrong, nothing is imported. If the result cannot be updated, its files are
    restored.

    Raises:
        ConfigError: Rows are wrong (the message has a line for each), or no row has a rating.
        PrerequisiteError: No sheet was exported from this result, or files that the update needs
            are missing.
        HelmError: HELM failed while the result was updated.
        BusyError: A run has locked the folder.
    """
    stored = load_result(folder)
    rundir = RunDir(stored.folder)
    with rundir.locked():
        # the samples with ratings from earlier imports, and the samples of exported sheets
        samples = {sample.id: sample for sample in read_annotations(rundir.ratings).samples}
        for path in sorted(rundir.annotations.glob(rundir.sample_file("*").name)):
            sample = read_sample(path)
            samples[sample.id] = sample
        if not samples:
            raise PrerequisiteError(
                f"{rundir.root}: no sheet was exported from this result\n"
                f"  write sheets with: eval-factory annotate export {rundir.root} --out sheet"
            )
        returned = read_returns(files, samples, stored.folder)
        if returned.faults:
            raise ConfigError(
                [
                    *returned.faults,
                    "nothing was imported: correct these rows, and import all files again",
                ]
            )
        if not returned.ratings:
            raise ConfigError(
                f"{', '.join(map(str, files))}: no row has a rating, so there is nothing to import"
            )
        annotations = read_annotations(rundir.ratings).with_returned(samples, returned.ratings)
        changed = [rundir.ratings, *(rundir.root / name for name in UPDATED_FILES)]
        with _restored_on_failure(rundir, changed):
            earlier_digests = listed_checksums(rundir)
            rundir.forget_checksums()
            write_atomic(rundir.ratings, annotations.as_lines(), mode=PRIVATE)
            # `recollected` computes the result again, with the new ratings, in a temporary folder.
            with recollected(rundir, stored) as updated:
                # evaluation_config.yaml, the first file, is written last: it marks a result as
                # complete.
                for name in reversed(UPDATED_FILES):
                    source = updated.rundir.root / name
                    write_atomic(
                        rundir.root / name,
                        source.read_text("utf-8"),
                        mode=source.stat().st_mode & 0o777,
                    )
            _write_checksums_of(rundir, changed, earlier_digests, stored.result.provenance)
    return Imported(len(returned.ratings), returned.empty, load_result(folder), updated.notes)


def _write_checksums_of(
    rundir: RunDir,
    changed: Sequence[Path],
    old_digests: Mapping[str, str],
    old_provenance: Provenance,
) -> None:
    """Write the folder's checksums again, and update the digests in its run state.

    Files that are not in `changed` keep their old checksum, so that `verify` still detects a file
    that somebody altered.

    Args:
        rundir: The output folder.
        changed: The files that this module changed.
        old_digests: The checksums before the change, by file name.
        old_provenance: The provenance of the result before the change.
    """
    # The attestation changes, too: `write_checksums` writes it again.
    changed_names = {
        rundir.attestation.name,
        *(path.relative_to(rundir.root).as_posix() for path in changed),
    }
    unchanged = {}
    for name, digest in old_digests.items():
        if name not in changed_names:
            unchanged[name] = digest
    # Below, `digests` also contains `unchanged`, because `digests_of` leaves out files that
    # somebody deleted.
    result = load_result(rundir.root).result
    if old_provenance.imported is not None:  # an imported result has no run state
        no_helm_runs: Sequence[Path] = ()
        digests = {**unchanged, **digests_of(rundir, no_helm_runs, known_digests=unchanged)}
        rundir.forget_checksums()
        write_checksums(rundir, result, digests)
        return
    state = require_last_run_state(rundir)
    helm_runs = [rundir.root / name for name in state.runs]
    digests = {**unchanged, **digests_of(rundir, helm_runs, known_digests=unchanged)}
    # Update the state only if the provenance was unaltered; `verify` must still find an alteration.
    if state.inputs == state.digest_of_inputs(vars(old_provenance)):
        # `program` names the program whose run wrote the result. After an import, no run wrote it.
        program = None if rundir.evaluation_config in changed else state.program
        digests = write_result_state(
            rundir, replace(state, program=program), digests, vars(result.provenance)
        )
    rundir.forget_checksums()
    write_checksums(rundir, result, digests)


@contextmanager
def _restored_on_failure(rundir: RunDir, changed: Sequence[Path]) -> Iterator[None]:
    """Restore the files that an import has changed, if the block raises an exception."""
    files = [*changed, rundir.run_state, rundir.attestation, rundir.checksums]
    with tempfile.TemporaryDirectory(dir=rundir.annotations) as folder:
        copies = {}
        for file in files:
            if file.is_file():
                copies[file] = shutil.copy2(file, folder)
        try:
            yield
        except BaseException:
            for file in files:
                if file in copies:
                    shutil.copy2(copies[file], file)
                else:
                    file.unlink(missing_ok=True)
            raise


def rating_plan_lines(folder: Path, half_width: float | None) -> list[str]:
    """Return the rating plan of a result: a table that says how many answers people must rate.

    Args:
        folder: The folder of the result.
        half_width: Half the width of the wanted confidence interval, in units of the score; None:
            several widths are shown.

    Raises:
        ConfigError: `half_width` is not above 0, fewer than two answers have a score, or all scores
            are equal and the metric has no scale.
    """
    if half_width is not None and not half_width > 0:  # also true for NaN
        raise ConfigError(
            f"--half_width {half_width:g}: give a number above 0, in units of the score"
        )
    return plan_lines(plan_basis(folder), half_width)


@dataclass(frozen=True)
class PlanBasis:
    """The facts about a result from which a rating plan is computed."""

    metric: str
    # the expected figures of the people's scores; if people rated too few answers, the mean and the
    # standard deviation are those of the metric
    expected: ExpectedFigures
    # the width of the metric's scale; without a scale, the distance from the lowest score of an
    # answer to the highest
    span: float
    rated: int = 0  # number of answers that people have rated
    # the correlation of the judge's scores with the people's; None if too few answers were rated
    correlation: float | None = None


def plan_lines(basis: PlanBasis, half_width: float | None) -> list[str]:
    """Return the lines of a table that shows how many answers people must rate.

    The table has a row for each assumed correlation of judge and people, and a column for each half
    width of the confidence interval.
    """
    expected = basis.expected
    if basis.correlation is not None:
        origin = f"from {basis.rated} rated answers"
    else:
        origin = "from this metric's scores"
    spread = (
        f"mean {formats.short(expected.mean)}, "
        f"standard deviation {formats.short(expected.stddev)} ({origin})"
    )
    widths = [basis.span * share for share in _SHOWN_SHARES]
    if half_width is not None:
        widths = [half_width]
    correlations = [(correlation, "") for correlation in _ASSUMED_CORRELATIONS]
    if basis.correlation is not None:
        # The plan counts on no help from a judge who contradicts the people.
        correlations.append((max(0.0, basis.correlation), " (measured)"))
    rows = []
    for correlation, suffix in sorted(correlations):
        needed = [ratings_needed_for(width, expected, correlation) for width in widths]
        narrowest = half_width_of(expected.answers, expected, correlation)  # all answers are rated
        rows.append(
            [
                f"{formats.decimals(correlation, 2)}{suffix}",
                *("-" if count is None else str(count) for count in needed),
                "-" if math.isinf(narrowest) else f"+/- {formats.significant(narrowest, digits=3)}",
            ]
        )
    columns = [f"+/- {formats.significant(width, digits=3)}" for width in widths]
    header = ["correlation of judge and people", *columns, "all rated"]
    return [
        f"{basis.metric}: {expected.answers} answers, {spread}",
        "answers to rate for a 95 % interval of the corrected score of this half width:",
        *(f"  {line}" for line in screen_lines(Table(header, rows, len(header)))),
        (
            "-: the interval is too wide even if every answer is rated: ask more questions; "
            f"at least {MIN_RATED} rated answers are needed"
        ),
    ]


def plan_basis(folder: Path) -> PlanBasis:
    """Return the facts for a rating plan, read from the result and the ratings in the folder.

    Raises ConfigError if fewer than two answers have a score, or if all scores are equal and the
    metric has no scale.
    """
    stored = load_result(folder)
    result = stored.result
    main_score = result.scores.get(result.main_metric)
    metric = result.main_metric
    split = None  # all splits
    scale_of_metric = None
    if main_score is not None:
        metric = main_score.metric or result.main_metric
        split = main_score.split
        scale_of_metric = main_score.scale
    scored = _scored_instances(result, metric, split)
    score_of_answer = {}
    for instance in scored:
        score_of_answer[AnswerKey(instance.id, instance.trial)] = instance.metrics[metric]
    # instances with the same source (for example, one patient's record) are not independent
    sources = [instance.cluster or instance.id for instance in scored]
    scores = list(score_of_answer.values())
    if len(scores) < 2:
        raise ConfigError(
            f"{stored.folder}: fewer than two answers have a score by {metric}: "
            "no rating plan is possible"
        )
    low, high = scale_of_metric or (min(scores), max(scores))
    if low == high:
        raise ConfigError(
            f"{stored.folder}: all answers have the same {metric}, and it has no scale: "
            "no rating plan is possible"
        )
    people = people_scores(result, RunDir(stored.folder))
    figures = _people_figures(people, score_of_answer)
    # In a rubric, each instance has its own lowest score. The lower bound is computed from
    # these scores. In any other benchmark, the instances have no lowest scores.
    possible = [instance.lowest_score for instance in scored]
    lowest_scores = [lowest for lowest in possible if lowest is not None]
    lower_bound = lower_end_of_scale(scores, lowest_scores, high) if lowest_scores else low
    bounds = (lower_bound, high)
    # The design effect says how much the sources increase the variance of the mean.
    expected = ExpectedFigures(
        answers=len(scores),
        mean=figures.mean,
        stddev=figures.stddev,
        scale=bounds,
        design_effect=design_effect(scores, bounds, sources),
        answers_per_source=len(sources) / effective_clusters(sources),
    )
    return PlanBasis(
        result.main_metric,
        expected,
        span=high - low,
        rated=len(people),
        correlation=figures.correlation,
    )


@dataclass(frozen=True)
class _PeopleFigures:
    """The figures of the people's scores that a rating plan needs; see `PlanBasis`."""

    mean: float
    stddev: float
    correlation: float | None


def _people_figures(
    people: Mapping[AnswerKey, float], score_of_answer: Mapping[AnswerKey, float]
) -> _PeopleFigures:
    """Return the figures of the people's scores.

    Args:
        people: The people's score of each rated answer.
        score_of_answer: The metric's score of each answer.
    """
    rated_keys = [key for key in people if key in score_of_answer]
    # the scores of the same answers, in the same order
    ratings = [people[key] for key in rated_keys]
    metric_scores = [score_of_answer[key] for key in rated_keys]
    mean = statistics.fmean(score_of_answer.values())
    stddev = statistics.stdev(score_of_answer.values())
    if len(ratings) < _MIN_PAIRS:
        return _PeopleFigures(mean, stddev, correlation=None)
    # The correlation with a constant is undefined; a constant predicts nothing, so 0 is used.
    is_constant = len(set(ratings)) < 2 or len(set(metric_scores)) < 2
    correlation = 0.0 if is_constant else statistics.correlation(ratings, metric_scores)
    # Equal ratings of a few answers do not show that the ratings of all answers would be equal.
    if statistics.stdev(ratings) > 0:
        mean = statistics.fmean(ratings)
        stddev = statistics.stdev(ratings)
    return _PeopleFigures(mean, stddev, correlation)


def _scored_instances(result: TaskResult, metric: str, split: str | None) -> list[InstanceRecord]:
    """Return the unperturbed instances that have a score by the metric.

    If `split` is None, the instances of all splits are returned.
    """
    scored = []
    for instance in result.instances:
        is_of_split = split in (None, instance.split)
        is_unperturbed = instance.perturbation is None
        has_no_error = instance.error is None
        if is_of_split and is_unperturbed and has_no_error and metric in instance.metrics:
            scored.append(instance)
    return scored
