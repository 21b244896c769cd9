"""report.md: a result in short, for pull requests and wikis.

It holds no prompt, answer or reference. A pure function of the result, so that `verify` makes the same file again.

Text of others inside Markdown that GitHub shows: it stays text, and calls nobody.

GitHub makes links of more than Markdown's own: `@name` sends that person a message, `#12` and `GH-12` link an issue,
and a bare address becomes a link, also where the sign is escaped, for they are looked for in the finished text; only
code is left alone (GitHub Flavored Markdown, section 6.9; docs.github.com, "Autolinked references and URLs").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape

from eval_factory.core.failure_causes import line_of
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import Provenance, RubricReport, RubricVotes, Score, Scores, TaskResult
from eval_factory.report.sentences import (
    choice_order_line,
    clinician_headline,
    cost_line,
    counted,
    ratings_line,
    rubric_headline,
    score_text,
)
from eval_factory.tasks.errata import CORRECTED

_MADE_INTO = re.compile(
    r"@|#|://|www\.|gh-\d|:[\w+-]+:|mailto:|xmpp:"  # a link, a message to somebody, a picture
    r"|[\\`*\[\]<>~$!&|]|(?<![^\W_])_|_(?![^\W_])",  # markup; an underscore between letters is one
    re.IGNORECASE,
)
"""In a word of which GitHub may make something."""
_LIST = re.compile(r"(\d*)([-+.)]-*)")
"""A first word that would begin a list, or draw a line."""
LONGEST_PROSE = 2_000
"""Characters of a note that are shown."""
_BAR = "\u00a6"
"""In code for the bar that ends a table's cell: no escape for it holds after a backslash."""


def code(text: str) -> str:
    """As code, which nothing is made of. A text that is empty becomes a dash."""
    line = one_line(text).replace("|", _BAR)
    if not line:
        return "-"
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if "`" in (line[0], line[-1]) else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def prose(text: str) -> str:
    """As words of a sentence: each word of which something would be made is code.

    Nothing is escaped, so that what has to be redacted is still found in it.
    """
    first, *words = one_line(text, LONGEST_PROSE).split(" ")
    found = _LIST.fullmatch(first)
    shown = _word(first) if found is None else f"{found[1]}\\{found[2]}"
    return " ".join([shown, *map(_word, words)])


def _word(word: str) -> str:
    return code(word) if _MADE_INTO.search(word) else word


def table(head: list[str], rows: list[list[str]], numbers: int) -> list[str]:
    """The lines of a table of cells that are Markdown.

    Args:
        numbers: how many of the last columns stand to the right.
    """
    sides = [":--"] * (len(head) - numbers) + ["--:"] * numbers
    return [f"| {' | '.join(cells)} |" for cells in [head, sides, *rows]]


MOST_NOTES = 5
MOST_CAUSES = 5
ALWAYS = ("requested", "scored", "failed")
"""Counts that are shown also where they are 0."""


def markdown_report(result: TaskResult) -> str:
    """GitHub-flavoured Markdown; it ends with a line break."""
    parts = [
        [f"# {code(result.task)}: {code(result.provenance.target)}"],
        list(_headline(result)),
        list(_reportable(result)),
        ["## Scores", "", *_scores(result)],
        ["## Validity", "", *_validity(result)],
        list(_failures(result)),
        list(_notes(result)),
        *(_group(result, field, by_value) for field, by_value in result.groups.items()),
        ["## Provenance", "", *_provenance(result)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _headline(result: TaskResult) -> Iterator[str]:
    score = result.scores.get(result.main_metric)
    if score is None:
        yield f"**{code(result.main_metric)} could not be computed.**"
        return
    interval = f", 95 % interval {_interval(score)}" if _interval(score) else ""
    of = counted(score.stats.count, "instance")
    yield f"**{code(result.main_metric)}: {score_text(score.value)}**{interval}, {of}"
    corrected = result.scores.get(f"{result.main_metric}{CORRECTED}")
    if corrected is not None:
        yield f"\nCorrected for a known defect: **{score_text(corrected.value)}**"
    if result.clinicians is not None:
        yield f"\n{prose(clinician_headline(result.clinicians))}"
    floor = result.validity.floors.get(result.main_metric)
    if floor is not None:
        yield f"\nBest answer that needs no model: {prose(floor.named)}, {score_text(floor.value)}"


def _reportable(result: TaskResult) -> Iterator[str]:
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


def _scores(result: TaskResult) -> list[str]:
    names = dict.fromkeys(name for name in (result.main_metric, *result.scores) if name in result.scores)
    return table(
        ["metric", "value", "95 % interval", "with what is missing", "instances"],
        [[_strong(code(name), name == result.main_metric), *_cells(result, name)] for name in names],
        numbers=4,
    )


def _cells(result: TaskResult, name: str) -> list[str]:
    score, bounds = result.scores[name], result.validity.bounds.get(name)
    could = "" if bounds is None or bounds[0] == bounds[1] else f"{score_text(bounds[0])} to {score_text(bounds[1])}"
    return [score_text(score.value), _interval(score), could, f"{score.stats.count:,}"]


def _strong(text: str, strong: bool) -> str:
    return f"**{text}**" if strong else text


def _interval(score: Score) -> str:
    low, high = score.stats.ci_low, score.stats.ci_high
    return "" if low is None or high is None else f"{score_text(low)} to {score_text(high)}"


def _validity(result: TaskResult) -> Iterator[str]:
    counts = vars(result.validity.instances)
    shown = {name: count for name, count in counts.items() if count or name in ALWAYS}
    yield from table(
        ["instances", "count"], [[name.replace("_", " "), f"{count:,}"] for name, count in shown.items()], 1
    )
    jury = result.validity.jury
    judges = [f"{code(name)} {one.scored:,} of {one.asked:,}" for name, one in result.validity.judges.items()]
    if judges:
        yield f"\nJudgements: {', '.join(judges)}"
    if (line := ratings_line(result)) is not None:
        yield f"\n{prose(line)}"
    if jury is not None and jury.krippendorff_alpha is not None:
        yield f"\nAgreement of the judges (Krippendorff's alpha): {jury.krippendorff_alpha:.3f}"
    if (line := choice_order_line(result)) is not None:
        yield f"\n{prose(line[:1].upper() + line[1:])}"
    yield from _rubric(result.validity.rubric)
    record = result.comparability
    if record is not None and record.medhelm_settings is not None:
        unlike = ", ".join(prose(one.setting) for one in record.deviations)
        yield f"\nSettings of MedHELM's leaderboard: {'yes' if record.medhelm_settings else f'no ({unlike})'}"
    if (cost := cost_line(result.usage)) is not None:
        yield f"\n{prose(cost)}"


def _rubric(found: RubricReport | None) -> Iterator[str]:
    """Two tables: of the judges, and of pairs of them."""
    if found is None:
        return
    yield f"\nCriteria: {rubric_headline(found)}"
    yield ""
    head = ["criteria judged by", "asked", "met", "not met", "tied", "unjudged", "score by it alone"]
    several = len(found.judges) > 1
    rows = [_votes("majority", found.criteria)] if several else []
    rows += [_votes(code(judge), votes) for judge, votes in found.judges.items()]
    yield from table(head, rows, numbers=6)
    if found.agreement:
        pairs = [
            [code(pair), f"{one.criteria:,}", f"{100 * one.agreement:.1f} %", _decimals(one.kappa)]
            for pair, one in found.agreement.items()
        ]
        yield ""
        yield from table(["judges", "criteria that both decided", "the same", "Cohen's kappa"], pairs, numbers=3)


def _votes(name: str, votes: RubricVotes) -> list[str]:
    counts = (votes.asked, votes.met, votes.not_met, votes.tied, votes.unjudged)
    return [name, *(f"{count:,}" for count in counts), "" if votes.score is None else f"{votes.score:.4f}"]


def _decimals(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _failures(result: TaskResult) -> Iterator[str]:
    causes = sorted(result.validity.failures, key=lambda cause: -cause.count)
    if causes:
        yield from ("## What failed", "")
        for cause in causes[:MOST_CAUSES]:
            who = "the model" if cause.is_of_the_model else f"judge {code(cause.role)}"
            yield f"- {who}: {prose(line_of(cause))}"
        yield from _more(len(causes) - MOST_CAUSES, "cause", "validity.failures")


def _notes(result: TaskResult) -> Iterator[str]:
    notes = result.validity.notes
    if notes:
        yield from ("## Notes", "")
        yield from (f"- {prose(note)}" for note in notes[:MOST_NOTES])
        yield from _more(len(notes) - MOST_NOTES, "note", "validity.notes")


def _more(count: int, word: str, where: str) -> Iterator[str]:
    if count > 0:
        yield f"- {count} more {word if count == 1 else f'{word}s'}: `{where}` in `evaluation_config.yaml`"


def _group(result: TaskResult, field: str, by_value: Mapping[str, Scores]) -> list[str]:
    """Folded; the empty lines around the table let GitHub read it as Markdown. The summary is read as HTML."""
    rows = [
        [code(value), score_text(scores[result.main_metric].value), _interval(scores[result.main_metric]),
         f"{scores[result.main_metric].stats.count:,}"]
        for value, scores in by_value.items()
        if result.main_metric in scores
    ]  # fmt: skip
    head = [code(field), "value", "95 % interval", "instances"]
    title = f"{counted(len(rows), 'group')} by <code>{escape(one_line(field))}</code>"
    return ["<details>", f"<summary>{title}</summary>", "", *table(head, rows, numbers=3), "", "</details>"]


def _provenance(result: TaskResult) -> Iterator[str]:
    record = result.provenance
    yield ", ".join(_versions(record)) + "."
    yield ""
    yield "In the folder of this result:"
    yield ""
    yield from ("```bash", "eval-factory verify .", "eval-factory reproduce . --run --output_dir ../reproduced", "```")


def _versions(record: Provenance) -> Iterator[str]:
    yield f"eval-factory {code(record.eval_factory)}"
    if record.helm is not None:
        yield f"HELM {code(record.helm)}"
    yield f"Python {code(record.python)}"
    yield f"run {code(record.run_identity)}"
    yield f"prompts {code(one_line(record.prompts_sha256)[:16])}"
    if record.ended_at is not None:
        yield f"ended {code(record.ended_at)}"
