"""Writes a short summary of a result: the last lines of a run on the screen, and report.md.

The file report.md is for pull requests and wikis. A summary has no prompts, answers or references.
report.md depends on the result alone, so that `verify` can make the same file again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from eval_factory.core import formats
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.failure_causes import cause_line
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.results import Provenance, Score, Scores, Spent, TaskResult, Usage
from eval_factory.core.rundir import RunDir
from eval_factory.core.tables import Code, Strong, Table, TableCell, code, markdown_lines, prose
from eval_factory.report import result_sentences, verdicts
from eval_factory.report.asked_again_sentences import (
    MAX_ON_SCREEN,
    asked_again_lines,
    choice_order_line,
)

MAX_NOTES = 5  # the maximum number of notes in a summary
_MAX_CAUSES = 5  # the maximum number of causes of failures in a summary


def result_summary(result: TaskResult, rundir: RunDir) -> str:
    """Return the lines that a run ends with on the screen.

    The lines have the main score with its interval, the doubts and problems, the notes, and the
    paths of the page and the result.
    """
    lines = list(_score_lines(result))
    verdict = verdicts.verdict_of(result)
    if verdict.is_doubt or verdict is verdicts.Verdict.DEMO:
        lines.append(verdict.value.title)
    lines += result_lines(result, MAX_ON_SCREEN)
    notes = result.validity.notes
    shown_count = result.validity.urgent_notes  # the urgent notes are the first ones
    if shown_count is None:  # not known in results of earlier versions
        shown_count = MAX_NOTES
    for note in notes[:shown_count]:
        lines.append(f"note: {note}")
    hidden_count = len(notes) - shown_count
    if hidden_count > 0:
        noun = "note" if shown_count == 0 else "more note"
        verb = "is" if hidden_count == 1 else "are"
        lines.append(f"{counted(hidden_count, noun)} {verb} on the page")
    lines.append(f"page: {rundir.report_html}")
    lines.append(f"results: {rundir.evaluation_config}")
    return "\n  ".join(lines)  # indents all lines but the first


def result_lines(result: TaskResult, max_families: int | None = None) -> Iterator[str]:
    """Yield the lines of facts about the result, apart from the main score and the notes.

    Facts that the result does not have are left out. `max_families` is the maximum number of
    families of rewordings that are reported; None reports all of them.
    """
    validity = result.validity
    yield from _added_score_lines(result)
    if result.clinicians is not None:
        yield result_sentences.clinician_headline(result.clinicians)
    yield from _if_known(result_sentences.floor_line(result))
    yield from _if_known(choice_order_line(result))
    yield from asked_again_lines(validity.asked_again, max_families)
    yield from _if_known(result_sentences.stopping_line(result))
    yield from _other_split_lines(result)
    yield from _instance_lines(result)
    yield from _judge_lines(result)
    if result.provenance.imported is None:
        yield from _usage_lines(result.usage)
    yield from _if_known(result_sentences.cost_line(result.usage))
    comparability = result.comparability
    # The reason why the settings cannot be compared is left out.
    if comparability is not None and comparability.medhelm_settings is not None:
        yield from _if_known(result_sentences.leaderboard_line(comparability))


def _if_known(line: str | None) -> Iterator[str]:
    """Yield the line unless it is None or empty: then the result has no facts for the line."""
    if line:
        yield line


def _judge_lines(result: TaskResult) -> Iterator[str]:
    """Yield the lines about missing judgements, ratings, the judges' agreement and a rubric."""
    validity = result.validity
    incomplete_judges = []
    for name, judge in validity.judges.items():
        if judge.scored < judge.asked:
            incomplete_judges.append(f"{name} {judge.scored:,} of {judge.asked:,}")
    if incomplete_judges:
        yield f"judgements that came: {', '.join(incomplete_judges)}"
    yield from _if_known(result_sentences.ratings_line(result))
    if validity.jury is not None and validity.jury.means:
        means = ", ".join(
            f"{judge} {formats.mean_rating(mean)}" for judge, mean in validity.jury.means.items()
        )
        alpha = formats.coefficient(validity.jury.krippendorff_alpha, missing="not defined")
        yield f"judges' mean ratings: {means}; agreement (Krippendorff's alpha): {alpha}"
    if validity.rubric is not None:
        yield f"criteria: {result_sentences.rubric_headline(validity.rubric)}"


def headline(result: TaskResult) -> str:
    """Return the main score in one line, or why the result must not be reported."""
    if result.reportable:
        return "; ".join(_score_lines(result))
    reasons = list(result.validity.short_reasons)
    if missing := result_sentences.missing_scores_sentence(result):
        reasons.append(missing)
    return f"{result.task}: not reportable: {'; '.join(reasons)}"


def _score_lines(result: TaskResult) -> Iterator[str]:
    """Yield the line of the main score, then the line of the corrected score, if there is one.

    A corrected score exists if HELM's value of the metric has a known defect.
    """
    score = result.scores.get(result.main_metric)
    corrected = result_sentences.corrected_score(result)
    if score is None:
        yield f"{result.task}: {result.main_metric} could not be computed"
        return
    over = ""
    if len(result.validity.splits) > 1 and score.split:
        over = f" over the {counted(score.stats.count, 'instance')} of split {score.split}"
    elif score.stats.count != result.validity.instances.scored:
        over = f" over {counted(score.stats.count, 'instance')}"
    yield (
        f"{result.task}: {result.main_metric} "
        f"= {formats.score(score.value)}{over}{_interval_suffix(score)}"
    )
    if corrected is not None:
        corrected_over = ""
        if corrected.stats.count != score.stats.count:
            corrected_over = f" over {counted(corrected.stats.count, 'instance')}"
        value = formats.score(corrected.value)
        yield f"corrected = {value}{corrected_over}{_interval_suffix(corrected)}"


def _added_score_lines(result: TaskResult) -> Iterator[str]:
    """Yield a line for each score that `rescore` or an import added to an imported result."""
    imported = result.provenance.imported
    if imported is None:
        return
    for name in imported.added:
        score = result.scores[name]
        over = ""
        if score.stats.count != result.validity.instances.scored:
            over = f" over {counted(score.stats.count, 'instance')}"
        yield f"added: {name} = {formats.score(score.value)}{over}{_interval_suffix(score)}"


def _interval_suffix(score: Score) -> str:
    """Return the interval as the end of a line; empty if the score has no interval."""
    between = formats.between(score.stats.ci_low, score.stats.ci_high)
    if not between:
        return ""
    return f"  (95 % interval {between})"


def _other_split_lines(result: TaskResult) -> Iterator[str]:
    """Yield a line for each split whose instances do not count in the main score."""
    main = result.scores.get(result.main_metric)
    if main is not None:
        main_split = main.split
    else:
        main_split = result.validity.main_split
        if main_split is None:  # No instance has a score.
            return
    for split, count in result.validity.splits.items():
        if split == main_split:
            continue
        value = " without this score"
        if main is not None:
            label = f"{main.metric}@{split}"
            if label in result.scores:
                value = f": {label} = {formats.score(result.scores[label].value)}"
        yield f"split {split}: {counted(count, 'instance')} more{value}"


def _instance_lines(result: TaskResult) -> Iterator[str]:
    """Yield the numbers of instances by outcome, then the most frequent causes of failures."""
    counts = result.validity.instances
    line = (
        f"instances: {counts.scored} of {counts.requested} scored; {counts.failed} failed,"
        f" {counts.empty} empty, {counts.truncated} cut off, {counts.filtered} filtered"
    )
    if result.validity.judges:
        line += f", {counts.unjudged} unjudged"
    if counts.unreadable:
        answers = counted(counts.unreadable, "answer")
        line += f"; {answers} from which the score reads nothing"
    # `splits` counts an instance once, even if it has several trials and perturbations.
    questions = sum(result.validity.splits.values())
    if questions and questions != counts.requested:
        line += f" ({counted(questions, 'instance')}, each trial and perturbation counted)"
    yield line
    causes = result.validity.failures
    most_frequent = sorted(causes, key=lambda cause: -cause.count)[:_MAX_CAUSES]
    # The lines have the order of `causes`: the model's causes come before the judges' causes.
    for cause in causes:
        if cause in most_frequent:
            prefix = "failed"
            if cause.role != MODEL_ROLE:
                prefix = f"judge {cause.role}"
            yield f"{prefix}: {cause_line(cause)}"
    if hidden := len(causes) - len(most_frequent):
        yield f"{counted(hidden, 'more cause')} of failures: validity.failures, report.html"


def _usage_lines(usage: Usage) -> Iterator[str]:
    """Yield a line with the numbers of requests and tokens of this run.

    If judges were asked, a line for each role follows. If there were several runs, a line with the
    numbers of all runs follows.
    """
    yield f"requests: {_spent_text(usage.this_run.total)}"
    if len(usage.this_run.roles) > 1:
        yield from (
            f"  {role}: {_spent_text(spent)}" for role, spent in usage.this_run.roles.items()
        )
    if usage.runs > 1:
        earlier_runs = counted(usage.runs - 1, "run")
        yield f"with the {earlier_runs} before: {_spent_text(usage.all_runs.total)}"


def _spent_text(spent: Spent) -> str:
    """Return the numbers of requests and tokens as text; no tokens if they are not known."""
    tokens = ""
    if spent.prompt_tokens is not None and spent.completion_tokens is not None:
        tokens = f"; {spent.prompt_tokens} prompt and {spent.completion_tokens} completion tokens"
    return f"{spent.requests} sent, {spent.cached} from the cache, {spent.retries} retries{tokens}"


def markdown_report(result: TaskResult) -> str:
    """Return report.md: GitHub-flavoured Markdown that ends with a line break."""
    validity = result.validity
    notes = [f"- {prose(note)}" for note in validity.notes[:MAX_NOTES]]
    hidden = len(validity.notes) - MAX_NOTES
    if hidden > 0:
        notes.append(
            f"- {counted(hidden, 'more note')}: `validity.notes` in `evaluation_config.yaml`"
        )
    parts = [
        [f"# {code(result.task)}: {code(result.provenance.target)}"],
        list(_headline_lines(result)),
        ["## Scores", "", *markdown_lines(_score_table(result))],
        # Some lines are indented for the screen.
        ["## Validity", "", *(f"- {prose(line.strip())}" for line in result_lines(result))],
    ]
    if notes:
        parts.append(["## Notes", "", *notes])
    for field, by_value in result.groups.items():
        parts.append(_group_lines(result, field, by_value))
    parts.append(["## Provenance", "", *_provenance_lines(result.provenance)])
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _score_table(result: TaskResult) -> Table:
    """Return a table with one row for each score, the main score first."""
    rows: list[list[TableCell]] = []
    # `False` is sorted before `True`, so the main score comes first. The sort is stable.
    for name in sorted(result.scores, key=lambda name: name != result.main_metric):
        score = result.scores[name]
        # the lowest and the highest possible score, whatever the missing values are
        low, high = result.validity.bounds.get(name, (None, None))
        bounds = ""
        if low != high:  # The bounds are equal if no value is missing.
            bounds = formats.between(low, high, " to ")
        label: TableCell = Code(name)
        if name == result.main_metric:
            label = Strong(Code(name))
        count = formats.count(score.stats.count)
        rows.append([label, formats.score(score.value), _interval_text(score), bounds, count])
    head = ["metric", "value", "95 % interval", "with what is missing", "instances"]
    return Table(head, rows, number_columns=4)


def _headline_lines(result: TaskResult) -> Iterator[str]:
    """Yield the first lines of report.md: the main score, and whether it may be reported."""
    score = result.scores.get(result.main_metric)
    if score is None:
        yield f"**{code(result.main_metric)} could not be computed.**"
    else:
        interval = ""
        if _interval_text(score):
            interval = f", 95 % interval {_interval_text(score)}"
        count = counted(score.stats.count, "instance")
        yield f"**{code(result.main_metric)}: {formats.score(score.value)}**{interval}, {count}"
        corrected = result_sentences.corrected_score(result)
        if corrected is not None:
            yield ""
            yield f"Corrected for a known defect: **{formats.score(corrected.value)}**"
    yield ""
    status = f"Status: {prose(result.status)}."
    appearance = verdicts.verdict_of(result).value  # a verdict's value is its `Appearance`
    if result.reportable:
        yield f"{appearance.title}. {status}"
        return
    yield f"**{result_sentences.capitalized(appearance.phrase)}.** {status}"
    yield ""
    for refusal in verdicts.refusals_of(result):
        yield f"- {prose(refusal.reason)}"
        if refusal.advice:
            yield f"  - {prose(refusal.advice)}"
    if missing := result_sentences.missing_scores_sentence(result):
        yield f"- {prose(missing)}"


def _interval_text(score: Score) -> str:
    """Return the ends of a score's interval, joined by `to`; empty if there is no interval."""
    return formats.between(score.stats.ci_low, score.stats.ci_high, " to ")


def _group_lines(result: TaskResult, field: str, by_value: Mapping[str, Scores]) -> list[str]:
    """Return the lines of a folded table: the main score of each group.

    The empty lines around the table make GitHub render the table as Markdown. The text in
    `<summary>` is rendered as HTML.
    """
    rows = []
    for value, scores in by_value.items():
        score = scores.get(result.main_metric)
        if score is None:
            continue
        count = formats.count(score.stats.count)
        rows.append([Code(value), formats.score(score.value), _interval_text(score), count])
    table = markdown_lines(
        Table([Code(field), "value", "95 % interval", "instances"], rows, number_columns=3)
    )
    title = f"{counted(len(rows), 'group')} by <code>{escape(one_line(field))}</code>"
    return ["<details>", f"<summary>{title}</summary>", "", *table, "", "</details>"]


def _provenance_lines(record: Provenance) -> list[str]:
    """Return the versions and hashes of a result, and the commands that check or repeat its run."""
    parts = [f"eval-factory {code(record.eval_factory)}"]
    if record.helm is not None:
        parts.append(f"{record.helm_name} {code(record.helm)}")
    parts.append(f"Python {code(record.python)}")
    parts.append(f"run {code(record.run_identity)}")
    parts.append(f"prompts {code(one_line(record.prompts_sha256)[:16])}")
    if record.ended_at is not None:
        parts.append(f"ended {code(record.ended_at)}")
    commands = ["eval-factory verify ."]
    if record.imported is None:  # `reproduce` refuses an imported result
        commands.append("eval-factory reproduce . --run --output_dir ../reproduced")
    return [
        f"{', '.join(parts)}.",
        "",
        "In the folder of this result:",
        "",
        "```bash",
        *commands,
        "```",
    ]
