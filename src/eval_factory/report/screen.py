"""The summary that a run ends with on the screen."""

from __future__ import annotations

from eval_factory.results import TaskResult
from eval_factory.rundir import RunDir


def summary(result: TaskResult, rundir: RunDir) -> str:
    """The main score, how sure it is, what went wrong, where the rest is."""
    counts = result.validity.instances
    lines = []
    score = result.scores.get(result.main_metric)
    if score is None:
        lines.append(f"{result.task}: {result.main_metric} could not be computed")
    else:
        sure = ""
        if score.stats.ci_low is not None and score.stats.ci_high is not None:
            sure = f"  (95 % interval {score.stats.ci_low:.4f} .. {score.stats.ci_high:.4f})"
        part = f" over {score.stats.count}" if score.stats.count != counts.scored else ""  # the rest: other splits
        lines.append(f"{result.task}: {result.main_metric} = {score.value:.4f}{part}{sure}")
    lines.append(
        f"  instances: {counts.scored} of {counts.requested} scored; {counts.failed} failed,"
        f" {counts.empty} empty, {counts.truncated} cut off, {counts.filtered} filtered"
        + (f", {counts.unjudged} unjudged" if result.validity.judges else "")
    )
    jury = result.validity.jury
    if jury is not None and jury.means:
        means = ", ".join(f"{judge} {mean:.2f}" for judge, mean in jury.means.items())
        alpha = "not defined" if jury.krippendorff_alpha is None else f"{jury.krippendorff_alpha:.3f}"
        lines.append(f"  judges' mean ratings: {means}; agreement (Krippendorff's alpha): {alpha}")
    usage = result.usage
    tokens = (
        f"; {usage.prompt_tokens} prompt and {usage.completion_tokens} completion tokens"
        if usage.prompt_tokens is not None
        else ""
    )
    lines.append(f"  requests: {usage.requests} sent, {usage.cached} from the cache, {usage.retries} retries{tokens}")
    lines += [f"  note: {note}" for note in result.validity.notes]
    lines.append(f"  results: {rundir.evaluation_config}")
    return "\n".join(lines)
