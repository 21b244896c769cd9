"""A comparison as text, Markdown, a plain document, and as a page with the instances beside each
other.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.analysis.comparison import (
    Compared,
    Comparison,
    compare,
    comparison_record,
    difference,
)
from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.nouns import Evidence
from eval_factory.core.tables import Table, prose, screen
from eval_factory.core.tables import markdown as in_markdown
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.intervals import PROPORTION
from eval_factory.scoring.paired import ALPHA, MCNEMAR, PairedDifference

if TYPE_CHECKING:
    from eval_factory.report.drawing import Drawing

# instance id -> `prompt`, `references`, and the answers, `A` and `B`
Texts = Mapping[str, Mapping[str, str]]


def texts_of_flips(comparison: Comparison) -> Texts:
    """Of the instances that flipped: first those that are right in a alone. Raises
    PrerequisiteError.
    """
    ids = [*comparison.flips.a_only, *comparison.flips.b_only]
    found: dict[str, dict[str, str]] = {key: {} for key in ids}
    for model in (comparison.a, comparison.b):
        result = load_result(model.folder).result
        score = result.scores[comparison.metric]
        for record in result.instances:
            if record.id in found and score.is_over(record):
                texts = found[record.id]
                texts.setdefault("prompt", record.prompt)
                right = (
                    reference["text"]
                    for reference in record.references
                    if "correct" in reference["tags"]
                )
                texts.setdefault("references", "; ".join(right))
                trial = f" (trial {record.trial})" if record.trial else ""
                texts[f"{model.label}{trial}"] = record.completion or ""
    return found


MAX_FLIPS = 8  # ids of flipped instances that the text shows; JSON has all
# characters of a prompt or an answer that the text shows, its last ones; JSON has all
MAX_TEXT = 1_000
_FINDINGS = {
    Evidence.SHOWN: "is shown",
    Evidence.REFUTED: "is refuted: the whole interval is beyond the margin",
    Evidence.INCONCLUSIVE: "is not shown: the interval crosses the margin (inconclusive)",
}


def comparison_document(compared: Compared, texts: Texts | None = None) -> dict[str, Any]:
    """What `--json` prints. Differences are in the metric's own unit, b - a."""
    return {
        "comparable": compared.comparable,
        "reasons": list(map(asdict, compared.reasons)),
        "accepted": list(map(asdict, compared.accepted)),
        "comparisons": [comparison_record(one) for one in compared.comparisons],
        "ranks": [
            {
                "folder": str(ranked.model.folder),
                "model": ranked.model.name,
                "best": ranked.best,
                "worst": ranked.worst,
            }
            for ranked in compared.ranks
        ],
        **({"pairings": list(compared.pairings)} if compared.pairings else {}),
        **({} if texts is None else {"texts": texts}),
    }


def comparison_text(compared: Compared, texts: Texts | None = None) -> str:
    """For a screen of 80 columns; ends with a line break."""
    lines = [
        f"{model.label}  {one_line(model.title)}  ({model.folder})" for model in compared.models
    ]
    if not compared.comparable:
        lines += ["", "These results cannot be compared:"]
        for reason in compared.reasons:
            lines += _wrapped(f"- {reason.name}: {one_line(reason.message)}", "  ")
        return "\n".join(lines) + "\n"
    lines += compared.pairings
    for reason in compared.accepted:
        lines += _wrapped(f"accepted ({reason.name}): {one_line(reason.message)}", "  ")
    if len(compared.models) > 2:
        rows = [
            [one.pair, _number(one.paired.difference, one), _interval(one, " .. "), *_p_values(one)]
            for one in compared.comparisons
        ]
        lines += [
            "",
            *screen(Table(["pair", "difference", "95 % interval", "p", "p (Holm)"], rows, 4)),
            "",
        ]
        lines += [
            f"{ranked.model.label}: rank {ranked} of {len(compared.ranks)}"
            for ranked in compared.ranks
        ]
    for one in compared.comparisons:
        lines.append("")
        for number, sentence in enumerate(sentences(one)):
            lines += _wrapped(sentence, "  " if number else "")
    for key, of_instance in (texts or {}).items():
        lines += ["", f"{key}"]
        for (
            name,
            value,
        ) in of_instance.items():  # the question stands at the end of a prompt, after the examples
            end = one_line(value[-MAX_TEXT:], len(r"\U000e0001") * MAX_TEXT)
            lines.append(f"  {name}: {'... ' if len(value) > MAX_TEXT else ''}{end}")
    return "\n".join(lines) + "\n"


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        80,
        initial_indent=indent,
        subsequent_indent=indent or "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _interval(one: Comparison, between: str) -> str:
    found = one.paired
    return (
        "-"
        if found.ci_low is None
        else f"{_number(found.ci_low, one)}{between}{_number(found.ci_high, one)}"
    )


def sentences(one: Comparison) -> Iterator[str]:
    """What a comparison says, in plain words; the result first."""
    found = one.paired
    yield f"{one.task}, {one.metric}: {_result(one)}."
    rows = "instances" if found.n != 1 else "instance"
    clusters = "" if found.clusters is None else f" from {found.clusters} sources"
    values = (
        f"{one.a.label} {_number(found.value_a, one)}, {one.b.label} {_number(found.value_b, one)}"
    )
    yield f"{found.n} {rows}{clusters} with a value in both: {values}."
    if found.few_sources is not None:
        yield f"{found.few_sources[0].upper()}{found.few_sources[1:]}."
    word = "right" if one.right_or_wrong else "better"
    for model, ids in ((one.a, one.flips.a_only), (one.b, one.flips.b_only)):
        more = f", and {len(ids) - MAX_FLIPS} more" if len(ids) > MAX_FLIPS else ""
        listed = f": {', '.join(one_line(key) for key in ids[:MAX_FLIPS])}{more}" if ids else ""
        yield f"{len(ids)} {word} in {model.label}{' alone' if one.right_or_wrong else ''}{listed}."
    if one.failed.total:
        counts = (
            f"{one.failed.a_only} in {one.a.label} alone, {one.failed.b_only} in {one.b.label} "
            "alone"
        )
        bounds = ""
        if one.bounds is not None:
            low, high = (_number(limit, one) for limit in one.bounds)
            bounds = f"; whatever their values, the difference of all is from {low} to {high}"
        yield (
            f"Left out, because a value is missing: {one.failed.total} "
            f"({counts}, {one.failed.both} in both){bounds}."
        )
    if one.margin is not None and one.non_inferiority is not None and one.equivalence is not None:
        margin = _amount(one.margin, one)
        worse = f"that {one.b.label} is worse than {one.a.label} by less than {margin}"
        yield f"Non-inferiority ({worse}) {_FINDINGS[one.non_inferiority]}."
        yield f"Equivalence (that they differ by less than {margin}) {_FINDINGS[one.equivalence]}."


def _result(one: Comparison) -> str:
    """The difference with its interval and test, and what the sample could have shown."""
    found = one.paired
    a = one.a.label
    b = one.b.label
    by = _amount(abs(found.difference), one)
    if one.significant:
        text = f"{b} is {'better' if one.advantage > 0 else 'worse'} than {a} by {by}"
    elif found.difference == 0:
        text = f"no difference between {a} and {b} is shown; their values are equal"
    else:
        where = "above" if found.difference > 0 else "below"
        text = f"no difference between {a} and {b} is shown; {b} is {where} {a} by {by}"
    evidence = "too few independent instances for an interval"
    if found.ci_low is not None and found.ci_high is not None:
        p_value, p_holm = _p_values(one)
        corrected = "" if one.p_holm is None else f", {p_holm} corrected for the number of pairs"
        test = "exact McNemar" if found.method == MCNEMAR else found.method.partition(",")[0]
        evidence = (
            f"95 % interval {_interval(one, ' to ')}; {test} p = {p_value}{corrected}".replace(
                "p = < ", "p < "
            )
        )
        evidence += _deciding(found)
    power = "this sample is too small to show any difference reliably"
    if found.mde is not None:
        power = f"this sample could have shown a difference of {_amount(found.mde, one)}"
    return f"{text} ({evidence}); {power}"


def _deciding(found: PairedDifference) -> str:
    """Which of test and interval decides, where one of them alone excludes no difference."""
    if found.p_value is None or found.ci_low is None or found.ci_high is None:
        return ""
    excludes_none = found.ci_low * found.ci_high > 0
    rejects = found.p_value < ALPHA
    if excludes_none == rejects:
        return ""
    if rejects:
        return ": the interval decides"
    if found.method == MCNEMAR:
        return ": the exact test decides"
    return ": the test decides"


def _number(value: float | None, one: Comparison) -> str:
    """A share as points of 100, anything else in its own unit."""
    return "-" if value is None else difference(value, one.scale)


def _amount(value: float, one: Comparison) -> str:
    if one.scale == PROPORTION:
        return f"{formats.points(value)} points"
    on = "" if one.scale is None else f" on the scale of {one.scale[0]:g} to {one.scale[1]:g}"
    return f"{difference(value, one.scale)}{on}"


def _p_values(one: Comparison) -> list[str]:
    """Of the test, and corrected for the number of pairs."""
    return [formats.p_value(value, missing="-") for value in (one.paired.p_value, one.p_holm)]


def comparison_markdown(compared: Compared) -> str:
    """A table with a row a pair, for an issue or a job's summary."""
    models = [[model.label, model.title, str(model.folder)] for model in compared.models]
    lines = [*in_markdown(Table(["", "model", "folder"], models)), ""]
    if not compared.comparable:
        lines += ["These results cannot be compared:", ""]
        lines += [f"- **{reason.name}**: {prose(reason.message)}" for reason in compared.reasons]
        return "\n".join(lines) + "\n"
    head = [
        "task",
        "metric",
        "pair",
        "n",
        "difference",
        "95 % interval",
        "p",
        "p (Holm)",
        "detectable",
    ]
    rows = []
    for one in compared.comparisons:
        found = [_number(one.paired.difference, one), _interval(one, " to "), *_p_values(one)]
        rows.append(
            [
                one.task,
                one.metric,
                one.pair,
                str(one.paired.n),
                *found,
                _number(one.paired.mde, one),
            ]
        )
    lines += in_markdown(Table(head, rows, 6))
    if compared.ranks:
        ranks = [
            [ranked.model.label, f"{ranked.best} to {ranked.worst}"] for ranked in compared.ranks
        ]
        lines += ["", *in_markdown(Table(["model", "rank"], ranks, 1))]
    for one in compared.comparisons:
        lines += ["", *(f"- {prose(sentence)}" for sentence in sentences(one))]
    lines += [f"- {pairing}" for pairing in compared.pairings]
    lines += [
        f"- accepted ({reason.name}): {prose(reason.message)}" for reason in compared.accepted
    ]
    return "\n".join(lines) + "\n"


def page_of_several(folders: Sequence[Path], *, with_texts: bool = True) -> str:
    """The page of two output folders or more, with the reasons where they cannot be compared.
    Raises as `compare`.
    """
    from markupsafe import (
        Markup,
    )  # imported here, as the rest of the page: a comparison as text needs none of it

    from eval_factory.report.page.document import Beside, page, shown_of

    compared = compare(folders)
    stored = [load_result(folder) for folder in folders]
    shown = shown_of(stored, [model.label for model in compared.models], with_texts=with_texts)
    tasks = list(dict.fromkeys(one.result.task for one in stored))
    names = [f"{model.label}, {one_line(model.name)}" for model in compared.models]
    beside = Beside(
        title=f"{', '.join(names[:-1])} and {names[-1]}, on {', '.join(tasks)}",
        plots=[Markup(drawing) for drawing in _plots(compared, stored)],  # noqa: S704 - SVG of ours, which escapes
        sentences=[list(sentences(one)) for one in compared.comparisons],
        reasons=[reason.message for reason in compared.reasons],
    )
    return page(shown, beside=beside, with_texts=with_texts)


def _plots(compared: Compared, stored: Sequence[StoredResult]) -> list[str]:
    """The scores, and the differences between them."""
    from eval_factory.report.drawing import svg
    from eval_factory.report.plots import dot_plot, plotted

    metric = stored[0].result.main_metric
    rows = []
    scale = None
    for model, one in zip(compared.models, stored, strict=True):
        score = one.result.scores.get(metric)
        if score is not None:
            scale = score.scale
            rows.append(plotted(f"{model.label} {model.name}", score))
    found = (
        [dot_plot(f"{metric} of each result", rows, axis_label=metric, scale=scale)] if rows else []
    )
    return [svg(drawing) for drawing in [*found, *map(plot_of_difference, compared.comparisons)]]


def plot_of_difference(one: Comparison) -> Drawing:
    from eval_factory.report.plots import PlottedValue, difference_plot

    row = PlottedValue(
        one.pair, one.paired.difference, one.paired.ci_low, one.paired.ci_high, one.paired.n
    )
    names = (f"{one.a.label} {one.a.name}", f"{one.b.label} {one.b.name}")
    title = f"Difference in {one.metric}, {one.pair}"
    axis = f"difference in {one.metric}"
    return difference_plot(
        title, row, names=names, axis_label=axis, higher_is_better=one.higher_is_better
    )
