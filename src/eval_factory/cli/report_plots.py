"""`eval-factory report --plots`: the plots of one result, or of several and of how they differ, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eval_factory.report.drawing import Drawing
from eval_factory.report.plot_files import write_plot_files
from eval_factory.report.plot_kinds import Estimate, difference_plot
from eval_factory.report.reader import load_result
from eval_factory.report.result_plots import plots_of

if TYPE_CHECKING:
    from eval_factory.analysis.comparison import Comparison


def write_plots(folders: Sequence[Path], target: Path) -> None:
    """Print each file that was written. Of several results, those of the first one begin with `a-`, and so on.

    Raises:
        EvalFactoryError: a folder holds no result.
    """
    for path in write_plot_files(drawings_of(folders), target):
        click.echo(str(path))


def drawings_of(folders: Sequence[Path]) -> dict[str, Drawing]:
    """Where results do not compare, the reason is on standard error, and there is no plot of how they differ.

    Raises:
        EvalFactoryError: a folder holds no result.
    """
    results = [load_result(folder).result for folder in folders]
    if len(results) == 1:
        return plots_of(results[0])
    from eval_factory import api  # imports scipy

    compared = api.compare(folders)
    if not compared.comparable:
        names = ", ".join(reason.name for reason in compared.reasons)
        more = "'eval-factory compare' with the same folders tells more"
        click.echo(f"warning: no plot of differences: the results cannot be compared ({names}); {more}", err=True)
    each = {
        f"{model.label.lower()}-{name}": drawing
        for model, result in zip(compared.models, results, strict=True)
        for name, drawing in plots_of(result).items()
    }
    return each | {f"difference-{one.a.label}-{one.b.label}".lower(): _difference(one) for one in compared.comparisons}


def _difference(one: Comparison) -> Drawing:
    found = one.paired
    names = (f"{one.a.label} ({one.a.name})", f"{one.b.label} ({one.b.name})")
    return difference_plot(
        f"{one.task}: {one.metric}, {one.b.name} minus {one.a.name}",
        [Estimate(one.metric, found.difference, found.ci_low, found.ci_high, found.n)],
        names=names, axis_label=f"{one.b.label} minus {one.a.label}", margin=one.margin,
        higher_is_better=one.higher_is_better,
    )  # fmt: skip
