"""Tells which of HELM's metrics of pictures this machine can compute, before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from eval_factory.helm.environments import Environment, environment_of_plan, home_of
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.picture_metrics import PictureMetric, Weights, metrics_of
from eval_factory.tasks.upstreams import HEIM


def weights_folder() -> Path:
    """Return the folder of the weights that HELM keeps itself. HELM has one in each output folder:
    each run would need them again.
    """
    return home_of(HEIM).parent / "heim-weights"


def path_of(weights: Weights, env: Mapping[str, str]) -> Path:
    """Return the path at which the metric looks for its file in helm-run; it may have a `*`."""
    place, _, path = weights.file.partition(":")
    home = Path.home()
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    hub = env.get("HF_HUB_CACHE") or Path(env.get("HF_HOME") or cache / "huggingface") / "hub"
    places = {
        "hub": Path(hub),
        "torch": cache / "torch" / "hub" / "checkpoints",
        "home": home,
        "heim": weights_folder(),
    }
    return places[place] / path


def are_present(weights: Weights, env: Mapping[str, str]) -> bool:
    """Tell whether a file is there."""
    place = path_of(weights, env)
    return any(path.is_file() for path in Path(place.anchor).glob(str(place)[1:]))


def reason_not_computed(
    metric: PictureMetric, environment: Environment, env: Mapping[str, str]
) -> str | None:
    """Say why a metric cannot be computed here; None if it can."""
    if metric.people:
        return "it asks people, and eval-factory asks none"
    lacking = []
    for module in metric.packages:
        if not environment.has_module(module):
            lacking.append(module)
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    absent = []
    for weights in metric.weights:
        if not are_present(weights, env):
            absent.append(f"{weights}, looked for at {path_of(weights, env)}")
    if absent:
        return f"weights are not here: {'; '.join(absent)}"
    return None


def uncomputed(plan: Plan, env: Mapping[str, str]) -> dict[PictureMetric, str]:
    """Metrics of a run that cannot be computed here, with the reason of each; none of a run whose
    answers are no pictures, or are only to be made.
    """
    helm = plan.evaluation.task.helm
    if not helm.makes_images or plan.evaluation.run.config.params.extra.only_generate:
        return {}
    environment = environment_of_plan(plan)
    reasons = {}
    for metric in metrics_of(helm.run_spec, arguments_of(plan)):
        reason = reason_not_computed(metric, environment, env)
        if reason is not None:
            reasons[metric] = reason
    return reasons


def arguments_of(plan: Plan) -> dict[str, str | int]:
    """The run spec's arguments, as its run entry has them."""
    return {**plan.evaluation.task.helm.arguments, **plan.scenario_arguments}


def classes_of(metrics: Iterable[PictureMetric]) -> tuple[str, ...]:
    """Their classes, in one order."""
    return tuple(sorted(metric.class_name for metric in metrics))


def lines_about(plans: Iterable[Plan], env: Mapping[str, str]) -> list[str]:
    """A line for each metric that is left out of any of these runs, and what can be done."""
    lines: dict[str, None] = {}
    for plan in plans:
        for metric, reason in uncomputed(plan, env).items():
            lines[f"not computed: {metric.shown}: {reason}"] = None
    if lines:
        lines["the same command computes them when they can be, and asks for no picture"] = None
    return list(lines)
