"""report.md: a result in short, for pull requests and wikis.

It holds no prompt, answer or reference. A pure function of the result, so that `verify` makes the same file again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from eval_factory.core import formats
from eval_factory.core.failure_causes import line_of
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.nouns import MODEL_ROLE
from eval_factory.core.results import Provenance, RubricReport, RubricVotes, Score, Scores, TaskResult
from eval_factory.core.tables import Code, Strong, Table, TableCell, code, markdown, prose
from eval_factory.report import sentences
from eval_factory.report.asked_again_text import asked_again_lines

_MOST = 5  # causes of failures, and notes


def markdown_report(result: TaskResult) -> str:
    """GitHub-flavoured Markdown; it ends with a line break."""
    validity = result.validity
    rows: list[list[TableCell]] = []
    for name in sorted(result.scores, key=lambda name: name != result.main_metric):
        score, (low, high) = result.scores[name], validity.bounds.get(name, (None, None))
        bounds = "" if low == high else formats.between(low, high, " to ")
        label = Strong(Code(name)) if name == result.main_metric else Code(name)
        rows.append([label, formats.score(score.value), _interval(score), bounds, formats.count(score.stats.count)])
    head = ["metric", "value", "95 % interval", "with what is missing", "instances"]
    failures = []
    for cause in sorted(validity.failures, key=lambda cause: -cause.count):
        who = "the model" if cause.role == MODEL_ROLE else f"judge {code(cause.role)}"
        failures.append(f"{who}: {prose(line_of(cause))}")
    parts = [
        [f"# {code(result.task)}: {code(result.provenance.target)}"],
        list(_headline(result)),
        ["## Scores", "", *markdown(Table(head, rows, numbers=4))],
        ["## Validity", "", *_validity(result)],
        list(_first("What failed", failures, "cause", "validity.failures")),
        list(_first("Notes", [*map(prose, validity.notes)], "note", "validity.notes")),
        *(_group(result, field, by_value) for field, by_value in result.groups.items()),
        ["## Provenance", "", *_provenance(result.provenance)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _first(title: str, lines: Sequence[str], word: str, where: str) -> Iterator[str]:
    """A list under its title, and where the rest of it is; nothing where there are none."""
    if lines:
        yield from (f"## {title}", "", *(f"- {line}" for line in lines[:_MOST]))
    if (more := len(lines) - _MOST) > 0:
        yield f"- {counted(more, f'more {word}')}: `{where}` in `evaluation_config.yaml`"


def _headline(result: TaskResult) -> Iterator[str]:
    """The main score, and whether it may be reported."""
    score, floor = result.scores.get(result.main_metric), result.validity.floors.get(result.main_metric)
    if score is None:
        yield f"**{code(result.main_metric)} could not be computed.**"
    else:
        interval = f", 95 % interval {_interval(score)}" if _interval(score) else ""
        over = counted(score.stats.count, "instance")
        yield f"**{code(result.main_metric)}: {formats.score(score.value)}**{interval}, {over}"
        if (better := sentences.corrected_score(result)) is not None:
            yield f"\nCorrected for a known defect: **{formats.score(better.value)}**"
        if result.clinicians is not None:
            yield f"\n{prose(sentences.clinician_headline(result.clinicians))}"
        if floor is not None:
            yield f"\nBest answer that needs no model: {prose(floor.named)}, {formats.score(floor.value)}"
    yield ""
    if result.reportable:
        yield f"May be reported. Status: {prose(result.status)}."
        return
    counts = result.validity.instances
    yield f"**Not reportable.** Status: {prose(result.status)}."
    yield ""
    for reason in result.validity.not_reportable:
        yield f"- {prose(reason)}"
    if counts.scored < counts.requested or not result.validity.not_reportable:
        yield f"- {counts.scored:,} of {counted(counts.requested, 'instance')} have a score"


def _interval(score: Score) -> str:
    return formats.between(score.stats.ci_low, score.stats.ci_high, " to ")


def _validity(result: TaskResult) -> Iterator[str]:
    counts = vars(result.validity.instances)
    always = ("requested", "scored", "failed")
    rows = [[name.replace("_", " "), formats.count(count)] for name, count in counts.items() if count or name in always]
    yield from markdown(Table(["instances", "count"], rows, numbers=1))
    jury = result.validity.jury
    judges = [f"{code(name)} {one.scored:,} of {one.asked:,}" for name, one in result.validity.judges.items()]
    if judges:
        yield f"\nJudgements: {', '.join(judges)}"
    if (line := sentences.ratings_line(result)) is not None:
        yield f"\n{prose(line)}"
    if jury is not None and jury.krippendorff_alpha is not None:
        yield f"\nAgreement of the judges (Krippendorff's alpha): {formats.coefficient(jury.krippendorff_alpha)}"
    if (line := sentences.choice_order_line(result)) is not None:
        yield f"\n{prose(line[:1].upper() + line[1:])}"
    again = [f"- {prose(line[:1].upper() + line[1:])}" for line in asked_again_lines(result.validity.asked_again)]
    yield from ["\nDoes the answer hold?\n", *again] if again else []
    if (line := sentences.stopping_line(result)) is not None:
        yield f"\n{prose(line)}"
    yield from _rubric(result.validity.rubric)
    record = result.comparability
    if record is not None and record.medhelm_settings is not None:
        unlike = ", ".join(prose(one.setting) for one in record.deviations)
        yield f"\nSettings of {record.leaderboard}: {'yes' if record.medhelm_settings else f'no ({unlike})'}"
    if (cost := sentences.cost_line(result.usage)) is not None:
        yield f"\n{prose(cost)}"


def _rubric(found: RubricReport | None) -> Iterator[str]:
    """Two tables: of the judges, and of pairs of them."""
    if found is None:
        return
    yield f"\nCriteria: {sentences.rubric_headline(found)}"
    yield ""
    head = ["criteria judged by", "asked", "met", "not met", "tied", "unjudged", "score by it alone"]
    majority: dict[TableCell, RubricVotes] = {"majority": found.criteria} if len(found.judges) > 1 else {}
    rows = [
        [name, *map(formats.count, (votes.asked, votes.met, votes.not_met, votes.tied, votes.unjudged)),
         formats.score(votes.score)]
        for name, votes in [*majority.items(), *((Code(judge), votes) for judge, votes in found.judges.items())]
    ]  # fmt: skip
    yield from markdown(Table(head, rows, numbers=6))
    if found.agreement:
        pairs = []
        for pair, one in found.agreement.items():
            agreement = formats.percent(formats.rounded(one.agreement))
            pairs.append([Code(pair), formats.count(one.criteria), agreement, formats.coefficient(one.kappa)])
        yield ""
        yield from markdown(Table(["judges", "criteria that both decided", "the same", "Cohen's kappa"], pairs, 3))


def _group(result: TaskResult, field: str, by_value: Mapping[str, Scores]) -> list[str]:
    """Folded; the empty lines around the table let GitHub read it as Markdown. The summary is read as HTML."""
    found = {value: scores[result.main_metric] for value, scores in by_value.items() if result.main_metric in scores}
    rows = [
        [Code(value), formats.score(score.value), _interval(score), formats.count(score.stats.count)]
        for value, score in found.items()
    ]
    table = markdown(Table([Code(field), "value", "95 % interval", "instances"], rows, numbers=3))
    title = f"{counted(len(rows), 'group')} by <code>{escape(one_line(field))}</code>"
    return ["<details>", f"<summary>{title}</summary>", "", *table, "", "</details>"]


def _provenance(record: Provenance) -> list[str]:
    helm = [] if record.helm is None else [f"{record.helm_name} {code(record.helm)}"]
    ended = [] if record.ended_at is None else [f"ended {code(record.ended_at)}"]
    parts = [
        f"eval-factory {code(record.eval_factory)}", *helm, f"Python {code(record.python)}",
        f"run {code(record.run_identity)}", f"prompts {code(one_line(record.prompts_sha256)[:16])}", *ended,
    ]  # fmt: skip
    commands = ("eval-factory verify .", "eval-factory reproduce . --run --output_dir ../reproduced")
    return [f"{', '.join(parts)}.", "", "In the folder of this result:", "", "```bash", *commands, "```"]
