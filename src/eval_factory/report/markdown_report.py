"""report.md: a result in short, for pull requests and wikis.

It holds no prompt, answer or reference. A pure function of the result, so that `verify` makes the same file again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.results import Provenance, Score, Scores, TaskResult
from eval_factory.core.tables import Code, Strong, Table, TableCell, code, markdown, prose
from eval_factory.report import sentences
from eval_factory.report.screen import MAX_NOTES, result_lines


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
    notes = [f"- {prose(note)}" for note in validity.notes[:MAX_NOTES]]
    if (more := len(validity.notes) - MAX_NOTES) > 0:
        notes.append(f"- {counted(more, 'more note')}: `validity.notes` in `evaluation_config.yaml`")
    parts = [
        [f"# {code(result.task)}: {code(result.provenance.target)}"],
        list(_headline(result)),
        ["## Scores", "", *markdown(Table(head, rows, numbers=4))],
        ["## Validity", "", *(f"- {prose(line.strip())}" for line in result_lines(result))],
        ["## Notes", "", *notes] if notes else [],
        *(_group(result, field, by_value) for field, by_value in result.groups.items()),
        ["## Provenance", "", *_provenance(result.provenance)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _headline(result: TaskResult) -> Iterator[str]:
    """The main score, and whether it may be reported."""
    score = result.scores.get(result.main_metric)
    if score is None:
        yield f"**{code(result.main_metric)} could not be computed.**"
    else:
        interval = f", 95 % interval {_interval(score)}" if _interval(score) else ""
        over = counted(score.stats.count, "instance")
        yield f"**{code(result.main_metric)}: {formats.score(score.value)}**{interval}, {over}"
        if (better := sentences.corrected_score(result)) is not None:
            yield f"\nCorrected for a known defect: **{formats.score(better.value)}**"
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
