"""Formats a comparison as text, Markdown, a JSON document and an HTML page.

The page shows the instances of all results next to each other.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.analysis.comparison import compare
from eval_factory.analysis.comparison_records import (
    Compared,
    Comparison,
    comparison_record,
    difference_text,
)
from eval_factory.analysis.pairing import paired_ids
from eval_factory.core import formats
from eval_factory.core.enums import Evidence
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import InstanceRecord
from eval_factory.core.tables import Table, prose, screen_lines
from eval_factory.core.tables import markdown_lines as in_markdown
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.intervals import PROPORTION
from eval_factory.scoring.paired import ALPHA, MCNEMAR, PairedDifference

if TYPE_CHECKING:
    from eval_factory.report.drawing import Drawing

Texts = Mapping[str, Mapping[str, str]]
"""The texts of each instance, by its id and the name of the text.

The names are `prompt`, `references`, and for each answer the label of its model (such as `A`).
"""


def texts_of_flips(comparison: Comparison) -> Texts:
    """Return the texts of the instances whose values differ.

    The instances with the better value in `a` come first.

    Raises:
        PrerequisiteError: the files of instances cannot be read.
    """
    texts: dict[str, dict[str, str]] = {}
    for flip in [*comparison.flips.a_only, *comparison.flips.b_only]:
        texts[flip] = {}
    metrics = (comparison.metric, comparison.metric_of_b or comparison.metric)
    models = (comparison.a, comparison.b)
    # `ids` maps this result's ids to the first result's; None if the ids are equal.
    for model, metric, ids in zip(models, metrics, comparison.ids, strict=True):
        result = load_result(model.folder).result
        score = result.scores[metric]
        for record in result.instances:
            key: str | None = record.id
            if ids is not None:
                key = ids.get(record.id)  # None if the question is in one result only
            if key in texts and score.covers(record):
                instance_texts = texts[key]
                instance_texts.setdefault("prompt", record.prompt)
                instance_texts.setdefault("references", "; ".join(_right_references(record)))
                name = model.label
                if record.trial:
                    name += f" (trial {record.trial})"
                instance_texts[name] = record.completion or ""
    return texts


def _right_references(record: InstanceRecord) -> Iterator[str]:
    """Yield the text of each right reference."""
    for reference in record.references:
        if "correct" in reference["tags"]:
            yield reference["text"]


MAX_FLIPS = 8
"""The largest number of ids that a sentence lists; the JSON document has all ids."""
MAX_TEXT = 1_000
"""The text form shows only so many characters of a prompt or an answer, the last ones.

The JSON document has all characters.
"""
# the end of a sentence about non-inferiority or equivalence
_EVIDENCE_PHRASES = {
    Evidence.SHOWN: "is shown",
    Evidence.REFUTED: "is refuted: the complete interval is beyond the margin",
    Evidence.INCONCLUSIVE: "is not shown: the interval crosses the margin (inconclusive)",
}


def comparison_document(compared: Compared, texts: Texts | None = None) -> dict[str, Any]:
    """Return the document that `--json` prints. Differences (b - a) are in the metric's unit."""
    ranks = []
    for ranked in compared.ranks:
        model = {"folder": str(ranked.model.folder), "model": ranked.model.name}
        ranks.append({**model, "best": ranked.best, "worst": ranked.worst})
    document: dict[str, Any] = {
        "comparable": compared.comparable,
        "reasons": list(map(asdict, compared.reasons)),
        "accepted": list(map(asdict, compared.accepted)),
        "comparisons": list(map(comparison_record, compared.comparisons)),
        "ranks": ranks,
    }
    if compared.pairings:
        document["pairings"] = list(compared.pairings)
    if texts is not None:
        document["texts"] = texts
    return document


def comparison_text(compared: Compared, texts: Texts | None = None) -> str:
    """Return the comparison as a text of 80 columns, which ends with a line break.

    Args:
        compared: the comparison.
        texts: the texts of instances to show after the comparison; None for no texts.
    """
    lines = []
    for model in compared.models:
        lines.append(f"{model.label}  {one_line(model.title)}  ({model.folder})")
    if not compared.comparable:
        lines += ["", "These results cannot be compared:"]
        for reason in compared.reasons:
            lines += _wrapped(f"- {reason.name}: {one_line(reason.message)}", indent="  ")
        return "\n".join(lines) + "\n"
    lines += compared.pairings
    for reason in compared.accepted:
        text = f"accepted ({reason.name}): {one_line(reason.message)}"
        lines += _wrapped(text, indent="  ")
    if len(compared.models) > 2:
        lines += ["", *screen_lines(_table_of_pairs(compared)), ""]
        for ranked in compared.ranks:
            # `ranked` is shown as "1" or "1 to 2".
            lines.append(f"{ranked.model.label}: rank {ranked} of {len(compared.ranks)}")
    for comparison in compared.comparisons:
        lines.append("")
        first_sentence, *further_sentences = sentences(comparison)
        lines += _wrapped(first_sentence, indent="")
        for sentence in further_sentences:
            lines += _wrapped(sentence, indent="  ")
    for key, instance_texts in (texts or {}).items():
        lines += ["", key]
        for name, text in instance_texts.items():
            lines.append(f"  {name}: {_end_of(text)}")
    return "\n".join(lines) + "\n"


def _table_of_pairs(compared: Compared) -> Table:
    """Return the table of pairs for the text of a comparison of three results or more."""
    rows = []
    for comparison in compared.comparisons:
        difference = _number(comparison.paired.difference, comparison)
        interval = _interval(comparison, between=" .. ")
        rows.append([comparison.pair_label, difference, interval, *_p_values(comparison)])
    header = ["pair", "difference", "95 % interval", "p", "p (Holm)"]
    return Table(header, rows, number_columns=4)  # the last four columns have numbers


def _end_of(text: str) -> str:
    """Return the end of a text on one line: a prompt ends with its question, after the examples."""
    # `one_line` may write a character as an escape of ten characters, such as \U000e0001. The limit
    # is so high that no escape is cut.
    end = one_line(text[-MAX_TEXT:], limit=len(r"\U000e0001") * MAX_TEXT)
    if len(text) > MAX_TEXT:
        return f"... {end}"
    return end


def _wrapped(text: str, *, indent: str) -> list[str]:
    """Return a text wrapped to lines of at most 80 columns.

    Args:
        text: the text.
        indent: the indent of all lines; if empty, the lines after the first have two spaces.
    """
    return textwrap.wrap(
        text,
        width=80,
        initial_indent=indent,
        subsequent_indent=indent or "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _interval(comparison: Comparison, *, between: str) -> str:
    """Return the interval of the difference; `-` if there is no interval.

    Args:
        comparison: the comparison.
        between: the text between the two ends.
    """
    low = comparison.paired.ci_low
    high = comparison.paired.ci_high
    if low is None:
        return "-"
    return f"{_number(low, comparison)}{between}{_number(high, comparison)}"


def sentences(comparison: Comparison) -> Iterator[str]:
    """Yield the sentences that report a comparison, the result first."""
    yield f"{comparison.task}, {comparison.metric_names}: {_result(comparison)}."
    yield _sentence_of_pairs(comparison)
    few_sources = comparison.paired.few_sources  # a sentence on too few sources of instances
    if few_sources is not None:
        yield f"{few_sources[0].upper()}{few_sources[1:]}."
    for model, ids in (
        (comparison.a, comparison.flips.a_only),
        (comparison.b, comparison.flips.b_only),
    ):
        if comparison.right_or_wrong:
            yield f"{len(ids)} right in {model.label} alone{_listed_ids(ids)}."
        else:
            yield f"{len(ids)} better in {model.label}{_listed_ids(ids)}."
    if comparison.failed.total:
        yield _sentence_of_failed(comparison)
    margin = comparison.margin
    if margin is None or comparison.non_inferiority is None or comparison.equivalence is None:
        return
    amount = _amount(margin, comparison)
    worse = f"that {comparison.b.label} is worse than {comparison.a.label} by less than {amount}"
    yield f"Non-inferiority ({worse}) {_EVIDENCE_PHRASES[comparison.non_inferiority]}."
    equivalence = _EVIDENCE_PHRASES[comparison.equivalence]
    yield f"Equivalence (that they differ by less than {amount}) {equivalence}."


def _sentence_of_pairs(comparison: Comparison) -> str:
    """Return the sentence on the number of instances and on the values of a and b."""
    difference = comparison.paired
    instances = f"{difference.n} instances"
    if difference.n == 1:
        instances = "1 instance"
    if difference.clusters is not None:
        instances += f" from {difference.clusters} sources"
    value_a = f"{comparison.a.label} {_number(difference.value_a, comparison)}"
    value_b = f"{comparison.b.label} {_number(difference.value_b, comparison)}"
    return f"{instances} with a value in both: {value_a}, {value_b}."


def _listed_ids(ids: Sequence[str]) -> str:
    """Return the first `MAX_FLIPS` ids, as `: id, id`, and the number of further ids."""
    if not ids:
        return ""
    listed = ", ".join(map(one_line, ids[:MAX_FLIPS]))
    if len(ids) > MAX_FLIPS:
        return f": {listed}, and {len(ids) - MAX_FLIPS} more"
    return f": {listed}"


def _sentence_of_failed(comparison: Comparison) -> str:
    """Return the sentence on the instances without a value.

    The sentence has the bounds of the difference that the missing values allow, if these are known.
    """
    failed = comparison.failed
    counts = (
        f"{failed.a_only} in {comparison.a.label} alone, "
        f"{failed.b_only} in {comparison.b.label} alone, {failed.both} in both"
    )
    bounds = ""
    if comparison.bounds is not None:
        low, high = comparison.bounds
        between = f"{_number(low, comparison)} to {_number(high, comparison)}"
        bounds = f"; whatever their values are, the difference over all instances is from {between}"
    return f"{failed.total} instances are left out, because a value is missing ({counts}){bounds}."


def _result(comparison: Comparison) -> str:
    """Return the difference with its interval and test, and the smallest detectable difference."""
    difference = comparison.paired
    uncertainty = "too few independent instances for an interval"
    if difference.ci_low is not None and difference.ci_high is not None:
        uncertainty = _interval_and_test(comparison)
    power = "this sample is too small to show any difference reliably"
    if difference.mde is not None:
        detectable = _amount(difference.mde, comparison)
        power = f"this sample could have shown a difference of {detectable}"
    return f"{_finding(comparison)} ({uncertainty}); {power}"


def _finding(comparison: Comparison) -> str:
    """Return a phrase that says which model is better, or that no difference is shown."""
    a = comparison.a.label
    b = comparison.b.label
    difference = comparison.paired.difference
    amount = _amount(abs(difference), comparison)
    if comparison.significant:
        better_or_worse = "worse"
        if comparison.advantage > 0:
            better_or_worse = "better"
        return f"{b} is {better_or_worse} than {a} by {amount}"
    none_shown = f"no difference between {a} and {b} is shown"
    if difference == 0:
        return f"{none_shown}; their values are equal"
    if difference > 0:
        return f"{none_shown}; {b} is above {a} by {amount}"
    return f"{none_shown}; {b} is below {a} by {amount}"


def _interval_and_test(comparison: Comparison) -> str:
    """Return a phrase with the interval and the test of a difference.

    If the interval and the test disagree, the phrase also says which of them decides.
    """
    difference = comparison.paired
    p_value, p_holm = _p_values(comparison)
    test = difference.method.partition(",")[0]
    if difference.method == MCNEMAR:
        test = "exact McNemar"
    interval = _interval(comparison, between=" to ")
    phrase = f"95 % interval {interval}; {test} p = {p_value}"
    if comparison.p_holm is not None:
        phrase += f", {p_holm} corrected for the number of pairs"
    # The text of a very small p value begins with "< ".
    return phrase.replace("p = < ", "p < ") + _which_decides(difference)


def _which_decides(difference: PairedDifference) -> str:
    """Return a phrase that says whether the test or the interval decides.

    A difference counts as shown only if both the test and the interval show it. If only one shows
    it, the other decides. The phrase is empty if the test and the interval agree, or if one of them
    is missing.
    """
    if difference.p_value is None or difference.ci_low is None or difference.ci_high is None:
        return ""
    # The product is positive if both ends are above 0, or both are below 0.
    is_shown_by_interval = difference.ci_low * difference.ci_high > 0
    is_shown_by_test = difference.p_value < ALPHA
    if is_shown_by_interval == is_shown_by_test:
        return ""
    if is_shown_by_test:
        return ": the interval decides"
    if difference.method == MCNEMAR:
        return ": the exact test decides"
    return ": the test decides"


def _number(value: float | None, comparison: Comparison) -> str:
    """Return a value as a text, a share in percentage points; `-` for None."""
    if value is None:
        return "-"
    return difference_text(value, comparison.scale)


def _amount(value: float, comparison: Comparison) -> str:
    """Return a difference with its unit: percentage points, or the scale of the metric."""
    scale = comparison.scale
    if scale == PROPORTION:
        return f"{formats.points(value)} points"
    if scale is None:
        return difference_text(value, scale)
    return f"{difference_text(value, scale)} on the scale of {scale[0]:g} to {scale[1]:g}"


def _p_values(comparison: Comparison) -> list[str]:
    """Return the p value, and the p value corrected for the number of pairs, as texts."""
    p_value = formats.p_value(comparison.paired.p_value, missing="-")
    return [p_value, formats.p_value(comparison.p_holm, missing="-")]


def comparison_markdown(compared: Compared) -> str:
    """Return the comparison as Markdown, for an issue or the summary of a CI job."""
    models = []
    for model in compared.models:
        models.append([model.label, model.title, str(model.folder)])
    lines = [*in_markdown(Table(["", "model", "folder"], models)), ""]
    if not compared.comparable:
        lines += ["These results cannot be compared:", ""]
        for reason in compared.reasons:
            lines.append(f"- **{reason.name}**: {prose(reason.message)}")
        return "\n".join(lines) + "\n"
    lines += in_markdown(_markdown_table(compared.comparisons))
    if compared.ranks:
        ranks = []
        for ranked in compared.ranks:
            ranks.append([ranked.model.label, f"{ranked.best} to {ranked.worst}"])
        lines += ["", *in_markdown(Table(["model", "rank"], ranks, number_columns=1))]
    for comparison in compared.comparisons:
        lines.append("")
        for sentence in sentences(comparison):
            lines.append(f"- {prose(sentence)}")
    for pairing in compared.pairings:
        lines.append(f"- {pairing}")
    for reason in compared.accepted:
        lines.append(f"- accepted ({reason.name}): {prose(reason.message)}")
    return "\n".join(lines) + "\n"


def _markdown_table(comparisons: Sequence[Comparison]) -> Table:
    """Return a table with a row for each pair."""
    header = [
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
    for comparison in comparisons:
        rows.append(
            [
                comparison.task,
                comparison.metric_names,
                comparison.pair_label,
                str(comparison.paired.n),
                _number(comparison.paired.difference, comparison),
                _interval(comparison, between=" to "),
                *_p_values(comparison),
                _number(comparison.paired.mde, comparison),
            ]
        )
    return Table(header, rows, number_columns=6)


def page_of_several_results(folders: Sequence[Path], *, with_texts: bool = True) -> str:
    """Return the HTML page that compares two output folders or more.

    If the results cannot be compared, the page shows the reasons.

    Args:
        folders: the output folders.
        with_texts: True if the page has the texts of prompts and answers.
    """
    # The modules of the page are imported here because a comparison as text does not need them.
    from markupsafe import Markup

    from eval_factory.report.page.document import PageComparison, results_page, shown_results

    compared = compare(folders)
    stored_results = [load_result(folder) for folder in folders]
    labels = [model.label for model in compared.models]
    shown = shown_results(
        stored_results, labels, with_texts=with_texts, pairs=paired_ids(stored_results)
    )
    names = [f"{model.label}, {one_line(model.name)}" for model in compared.models]
    tasks = ", ".join(dict.fromkeys(stored.result.task for stored in stored_results))
    comparison = PageComparison(
        title=f"{', '.join(names[:-1])} and {names[-1]}, on {tasks}",
        # The SVG comes from this program, which has escaped all texts.
        plots=[Markup(plot) for plot in _plots(compared, stored_results)],  # noqa: S704
        sentences=[list(sentences(comparison)) for comparison in compared.comparisons],
        reasons=[reason.message for reason in compared.reasons],
    )
    return results_page(shown, comparison=comparison, with_texts=with_texts)


def _plots(compared: Compared, stored_results: Sequence[StoredResult]) -> Iterator[str]:
    """Yield the SVG plot of the scores, and then the plot of each difference between scores."""
    from eval_factory.report.drawing import svg
    from eval_factory.report.plots import dot_plot, plotted_score

    metrics = [stored.result.main_metric for stored in stored_results]
    title = metrics[0] if len(set(metrics)) == 1 else "main metric"
    rows = []
    scale = None
    for model, stored, metric in zip(compared.models, stored_results, metrics, strict=True):
        score = stored.result.scores.get(metric)
        if score is not None:
            scale = score.scale  # The plot has one axis: the scale of the last result is used.
            rows.append(plotted_score(f"{model.label} {model.name}", score))
    if rows:
        yield svg(dot_plot(f"{title} of each result", rows, axis_label=title, scale=scale))
    for comparison in compared.comparisons:
        yield svg(plot_of_difference(comparison))


def plot_of_difference(comparison: Comparison) -> Drawing:
    """Return the plot of a difference with its interval."""
    from eval_factory.report.plots import PlottedValue, difference_plot

    difference = comparison.paired
    metric = comparison.metric_names
    row = PlottedValue(
        comparison.pair_label,
        difference.difference,
        low=difference.ci_low,
        high=difference.ci_high,
        count=difference.n,
    )
    name_a = f"{comparison.a.label} {comparison.a.name}"
    name_b = f"{comparison.b.label} {comparison.b.name}"
    return difference_plot(
        f"Difference in {metric}, {comparison.pair_label}",
        row,
        names=(name_a, name_b),
        axis_label=f"difference in {metric}",
        higher_is_better=comparison.higher_is_better,
    )
