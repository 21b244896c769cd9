"""Finds, before a run, which of HELM's metrics of pictures this machine can compute.

HEIM is the separate environment with the packages for benchmarks whose answers are pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from eval_factory.helm.environments import Environment, environment_folder_of, environment_of_plan
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.picture_metrics import PictureMetric, Weights, metrics_of
from eval_factory.tasks.upstreams import HEIM


def weights_folder() -> Path:
    """Return the folder of the weights that HELM's own code downloads.

    Without this folder, HELM would use a folder in each output folder, and download the weights for
    each run again.
    """
    return environment_folder_of(HEIM).parent / "heim-weights"


def path_of(weights: Weights, env: Mapping[str, str]) -> Path:
    """Return the path at which helm-run looks for a file of weights; the path may hold a `*`."""
    root, _, path = weights.file.partition(":")  # such as `torch:NAME`; `roots` has each root
    home = Path.home()
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    hugging_face_home = Path(env.get("HF_HOME") or cache / "huggingface")
    roots = {
        "hub": Path(env.get("HF_HUB_CACHE") or hugging_face_home / "hub"),
        "torch": cache / "torch" / "hub" / "checkpoints",
        "home": home,
        "heim": weights_folder(),
    }
    return roots[root] / path


def are_present(weights: Weights, env: Mapping[str, str]) -> bool:
    """Return True if the file of these weights exists."""
    pattern = path_of(weights, env)
    relative_pattern = str(pattern)[1:]  # `glob` accepts no absolute pattern
    return any(path.is_file() for path in Path(pattern.anchor).glob(relative_pattern))


def reason_not_computed(
    metric: PictureMetric, environment: Environment, env: Mapping[str, str]
) -> str | None:
    """Return why a metric cannot be computed on this machine; None if it can be computed."""
    if metric.people:
        return "it asks people, and eval-factory asks none"
    missing_modules = []
    for module in metric.packages:
        if not environment.has_module(module):
            missing_modules.append(module)
    if missing_modules:
        return f"not installed: {', '.join(missing_modules)}"
    missing_weights = []
    for weights in metric.weights:
        if not are_present(weights, env):
            missing_weights.append(f"{weights}, looked for at {path_of(weights, env)}")
    if missing_weights:
        return f"weights are not here: {'; '.join(missing_weights)}"
    return None


def uncomputed_metrics(plan: Plan, env: Mapping[str, str]) -> dict[PictureMetric, str]:
    """Return the metrics that this machine cannot compute for a run, each with the reason.

    The result is empty if the answers are not pictures, or if the pictures are not to be scored.
    """
    helm = plan.evaluation.task.helm
    if not helm.makes_images or plan.evaluation.run.config.params.extra.only_generate:
        return {}
    environment = environment_of_plan(plan)
    reasons = {}
    for metric in metrics_of(helm.run_spec, plan.scenario_arguments):
        reason = reason_not_computed(metric, environment, env)
        if reason is not None:
            reasons[metric] = reason
    return reasons


def class_names_of(metrics: Iterable[PictureMetric]) -> tuple[str, ...]:
    """Return the class names of metrics, sorted."""
    return tuple(sorted(metric.class_name for metric in metrics))


def uncomputed_metric_lines(plans: Iterable[Plan], env: Mapping[str, str]) -> list[str]:
    """Return a line for each metric that any of these runs leaves out, and a line with advice."""
    lines: dict[str, None] = {}  # a dict, because several runs may leave out the same metric
    for plan in plans:
        for metric, reason in uncomputed_metrics(plan, env).items():
            lines[f"not computed: {metric.shown}: {reason}"] = None
    if lines:
        lines["the same command computes them when they can be, and asks for no picture"] = None
    return list(lines)
