"""Several results on one page: what `compare` says of them, and their instances beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from eval_factory.analysis.comparison import Compared, compare
from eval_factory.analysis.comparison_report import sentences
from eval_factory.core.foreign_text import one_line
from eval_factory.report.drawing import svg
from eval_factory.report.page.document import Beside, page, shown_of
from eval_factory.report.plot_kinds import PlottedValue, difference_plot, dot_plot
from eval_factory.report.reader import StoredResult, load_result


def page_of_several(folders: Sequence[Path], *, with_texts: bool = True) -> str:
    """The page of two output folders or more. Results that cannot be compared are shown with the reasons.

    Raises:
        ConfigError, PrerequisiteError: what `compare` raises.
    """
    compared = compare(folders)
    stored = [load_result(folder) for folder in folders]
    shown = shown_of(stored, [model.label for model in compared.models], with_texts=with_texts)
    return page(shown, beside=_beside(compared, stored), with_texts=with_texts)


def _beside(compared: Compared, stored: Sequence[StoredResult]) -> Beside:
    tasks = list(dict.fromkeys(one.result.task for one in stored))
    names = [f"{model.label}, {one_line(model.name)}" for model in compared.models]
    return Beside(
        title=f"{', '.join(names[:-1])} and {names[-1]}, on {', '.join(tasks)}",
        plots=[Markup(drawing) for drawing in _plots(compared, stored)],  # noqa: S704 - SVG of ours, which escapes
        sentences=[list(sentences(one)) for one in compared.comparisons],
        reasons=[reason.message for reason in compared.reasons],
        accepted=[reason.message for reason in compared.accepted],
    )


def _plots(compared: Compared, stored: Sequence[StoredResult]) -> list[str]:
    """The scores, and the differences between them."""
    metric = stored[0].result.main_metric
    rows, scale = [], None
    for model, one in zip(compared.models, stored, strict=True):
        score = one.result.scores.get(metric)
        if score is not None:
            scale = score.scale
            label = f"{model.label} {model.name}"
            rows.append(PlottedValue(label, score.value, score.stats.ci_low, score.stats.ci_high, score.stats.count))
    found = [dot_plot(f"{metric} of each result", rows, axis_label=metric, scale=scale)] if rows else []
    for pair in compared.comparisons:
        row = PlottedValue(pair.pair, pair.paired.difference, pair.paired.ci_low, pair.paired.ci_high, pair.paired.n)
        found.append(
            difference_plot(
                f"Difference in {pair.metric}, {pair.pair}",
                [row],
                names=(f"{pair.a.label} {pair.a.name}", f"{pair.b.label} {pair.b.name}"),
                axis_label=f"difference in {pair.metric}",
                higher_is_better=pair.higher_is_better,
            )
        )
    return [svg(drawing) for drawing in found]
