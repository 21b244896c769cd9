"""Reads `picture_metrics.yml`, the table of HELM's metrics of pictures.

The table lists each metric's run specs, and the packages and weights that the metric loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from eval_factory.core.plain_yaml import load_packaged

CLASSES = "helm.benchmark.metrics.image_generation."
"""The package of the metrics' classes, with a dot at the end."""


@dataclass(frozen=True)
class Weights:
    """A model's weights, which a metric loads from a file."""

    name: str
    size: str  # such as `1.7 GB`
    source: str  # the URL of the download
    file: str
    """`PLACE:path`, such as `home:.cache/clip/ViT-L-14.pt`; the path may contain `*`. The places
    (hub, torch, home, heim) are explained in the YAML file.
    """

    def __str__(self) -> str:
        return f"{self.name} ({self.size}, {self.source})"


@dataclass(frozen=True)
class PictureMetric:
    """One of HELM's metrics of pictures."""

    shown: str  # the metric's name in reports
    class_name: str  # the import path of the metric's class, as run specs name it
    packages: tuple[str, ...] = ()  # the modules that the metric imports
    weights: tuple[Weights, ...] = ()
    run_specs: frozenset[str] | None = None  # None: all run specs whose answers are pictures
    # the argument of the run entry that must be true; None: the metric needs no argument
    argument: str | None = None
    alone: bool = False  # True if the metric replaces all metrics that are not `alone`
    people: bool = False  # True if human raters score the pictures

    def is_asked_for(self, run_spec: str, arguments: Mapping[str, str | int]) -> bool:
        """Return True if the run spec and its arguments ask for this metric.

        A metric that is `alone` may still replace this metric.
        """
        if self.run_specs is not None and run_spec not in self.run_specs:
            return False
        return self.argument is None or is_true(arguments.get(self.argument))


def is_true(value: str | int | None) -> bool:
    """Return True if HELM reads this argument of a run entry as true.

    `value`: the argument; None if the run entry does not set the argument.
    """
    return str(value).lower() in ("true", "1")


@lru_cache(maxsize=1)
def picture_metrics() -> tuple[PictureMetric, ...]:
    """Return all metrics of the table."""
    table = load_packaged("tasks/picture_metrics.yml")
    weights = {}
    for name, record in table["weights"].items():
        weights[name] = Weights(**record)
    metrics = []
    for record in table["metrics"]:
        run_specs = record.get("run_specs")
        metrics.append(
            PictureMetric(
                shown=record["shown"],
                class_name=f"{CLASSES}{record['class']}",
                packages=tuple(record.get("packages", ())),
                weights=tuple(weights[name] for name in record.get("weights", ())),
                run_specs=None if run_specs is None else frozenset(run_specs),
                argument=record.get("argument"),
                alone=record.get("alone", False),
                people=record.get("people", False),
            )
        )
    return tuple(metrics)


def metrics_of(run_spec: str, arguments: Mapping[str, str | int]) -> list[PictureMetric]:
    """Return the metrics that HELM computes in a run whose answers are pictures.

    If the run asks for metrics that are `alone`, only these metrics are returned.

    Args:
        run_spec: the name of the run spec.
        arguments: a dict from the names of the run entry's arguments to their values.
    """
    requested = []
    for metric in picture_metrics():
        if metric.is_asked_for(run_spec, arguments):
            requested.append(metric)
    requested_alone = [metric for metric in requested if metric.alone]
    return requested_alone or requested
