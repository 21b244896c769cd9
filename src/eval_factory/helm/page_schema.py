"""Makes the schema from which helm-summarize makes HELM's web pages.

On the pages, MedHELM's tasks have HELM's titles and descriptions; all other tasks have those of
eval-factory. HELM's `schema_medhelm.yaml` alone is not enough: it has a column for each of its
scenarios, even for scenarios that were not run, and shows no other tasks.

HELM renders names of metrics as Mako templates, which can execute code, and uses names of groups
as file names. The names come from files that another person may have written. Therefore only plain
names are used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from eval_factory.helm.metric_facts import metric_facts_of
from eval_factory.helm.names import model_entry

SCHEMA_FILE = "schema_medhelm.yaml"
_MAIN = "main_metric"  # the name of the table with the main metrics
ALL_METRICS_OF = "all_metrics_of_"  # the beginning of the names of the tables with all metrics
_OTHER_EVALUATIONS = "other_evaluations"
"""The name of the group that contains every group that HELM's schema lacks."""

_PLAIN = re.compile(r"[\w.@+:,=() -]+", re.ASCII)  # "NDCG@10", but not "${...}"
# a character that a file's name must not have: "/", ":", " "
_NOT_IN_A_FILE_NAME = re.compile(r"[^\w.@+,=-]", re.ASCII)
_MAX_NAME = 80  # characters


@dataclass(frozen=True)
class PageRun:
    """The facts about a run that the schema needs."""

    task: str  # eval-factory's name of the task
    groups: tuple[str, ...]  # the `safe_name` of each of HELM's groups, the most general first
    metrics: tuple[str, ...]  # the names of all scores
    main_metric: str
    main_split: str  # the split of HELM's instances whose scores count, most often `test`


def is_safe_metric_name(metric: str) -> bool:
    """Return True if it is safe that HELM renders this name of a metric."""
    return _PLAIN.fullmatch(metric) is not None


def safe_name(name: str, longest: int = _MAX_NAME) -> str:
    """Return a name that is safe in file names, on every system, and in templates.

    All characters that are not safe become `_`; dots at the beginning are removed. The result is
    never empty.

    Args:
        name: any text.
        longest: the maximum length of the result, in characters.
    """
    return _NOT_IN_A_FILE_NAME.sub("_", name).lstrip(".")[:longest] or "_"


def page_schema(runs: Sequence[PageRun], helm_schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema for helm-summarize's option `--schema-path`.

    Args:
        runs: the runs that the pages show.
        helm_schema: HELM's schema for MedHELM; empty if the installed HELM has none.
    """
    scenario_groups = set()  # all of HELM's groups, without the groups of groups
    for group in helm_schema.get("run_groups", ()):
        if not group.get("subgroups"):
            scenario_groups.add(group["name"])
    helm_groups = scenario_groups & set(chain.from_iterable(run.groups for run in runs))
    by_group = _runs_by_group(runs, helm_groups)
    metrics = _metrics(runs, helm_schema.get("metrics", ()))
    _drop_repeated_short_names(metrics, by_group.values())
    shown_groups = _shown_groups(helm_schema.get("run_groups", ()), helm_groups)
    metric_groups: list[dict[str, Any]] = []
    run_groups: list[dict[str, Any]] = []
    if by_group:
        metric_groups, run_groups = _groups_of(by_group)
    return {
        "metrics": metrics,
        "perturbations": list(helm_schema.get("perturbations", ())),
        "metric_groups": [*helm_schema.get("metric_groups", ()), *metric_groups],
        "run_groups": [*shown_groups, *run_groups],
    }


def _runs_by_group(runs: Sequence[PageRun], helm_groups: set[str]) -> dict[str, PageRun]:
    """Return the run that stands for each group that HELM's schema lacks, by the group's name.

    A run belongs to the last of its groups, which is the most specific one. If several runs belong
    to a group, the last run stands for the group, with the metrics of all these runs. Runs without
    a group are left out. Runs with a group in `helm_groups` are left out too, because HELM's own
    groups show them.

    Args:
        runs: the runs of the pages.
        helm_groups: the groups of HELM's schema that the runs have.
    """
    by_group: dict[str, PageRun] = {}
    for run in runs:
        if not run.groups or helm_groups & set(run.groups):
            continue
        group = run.groups[-1]
        metrics = dict.fromkeys(run.metrics)
        if group in by_group:
            metrics = dict.fromkeys([*by_group[group].metrics, *run.metrics])
        by_group[group] = replace(run, metrics=tuple(metrics))
    return by_group


def _drop_repeated_short_names(metrics: Sequence[dict[str, Any]], runs: Iterable[PageRun]) -> None:
    """Drop short names that would be the heading of several columns of a table.

    HELM's short name of both exact match and quasi-exact match is EM.
    """
    shown_together = set(chain.from_iterable(run.metrics for run in runs))
    # Metrics without a short name are counted under None, and stay as they are.
    uses_of_short_name: Counter[Any] = Counter()
    for metric in metrics:
        if metric["name"] in shown_together:
            uses_of_short_name[metric.get("short_display_name")] += 1
    for metric in metrics:
        if uses_of_short_name[metric.get("short_display_name")] > 1:
            metric.pop("short_display_name", None)


def page_models(display_names: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of model_metadata.yaml, which states the models' names on the pages.

    `display_names` has the name of each model on the pages, by HELM's name of the model.
    """
    return {"models": [model_entry(name, shown, shown) for name, shown in display_names.items()]}


def _shown_groups(
    groups: Iterable[Mapping[str, Any]], helm_groups: set[str]
) -> list[dict[str, Any]]:
    """Return those of HELM's groups that the pages show, in HELM's order.

    These are the groups in `helm_groups`, and the groups of groups with such a member. A group of
    groups lists only members that the pages show.
    """
    groups = list(groups)
    names = set(helm_groups)  # the names of the groups to show
    # Repeat, because a group of groups may come before or after its members.
    for _ in groups:
        names |= {group["name"] for group in groups if names & set(group.get("subgroups") or ())}
    shown = []
    for group in groups:
        if group["name"] in names:
            shown_group = dict(group)
            if "subgroups" in group:
                shown_group["subgroups"] = [name for name in group["subgroups"] if name in names]
            shown.append(shown_group)
    return shown


def _metrics(runs: Sequence[PageRun], defined: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return HELM's definitions of metrics, and a definition of each other metric of the runs."""
    by_name = {metric["name"]: dict(metric) for metric in defined}
    for run in runs:
        for name in run.metrics:
            if name not in by_name:
                readable = name.replace("_", " ")
                by_name[name] = {"name": name, "display_name": readable[:1].upper() + readable[1:]}
                higher_is_better = metric_facts_of(name).higher_is_better
                if higher_is_better is not None:
                    by_name[name]["lower_is_better"] = not higher_is_better
    return list(by_name.values())


def _groups_of(
    by_group: Mapping[str, PageRun],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (`metric_groups`, `run_groups`) for the runs of `_runs_by_group`.

    HELM's metric groups are tables. The first table compares the main metrics; each group also has
    a table of all its metrics. The tables have no win rates: a win rate only makes sense for a set
    of benchmarks that was composed on purpose.
    """
    # From the name of each table to (title, metrics). HELM fills in `${...}` from the `environment`
    # of a group.
    contents: dict[str, tuple[str, tuple[str, ...]]] = {_MAIN: ("Main metric", ("${main_name}",))}
    for group, run in by_group.items():
        contents[f"{ALL_METRICS_OF}{group}"] = (f"All metrics of {run.task}", run.metrics)
    tables = []
    for name, (title, metrics) in contents.items():
        tables.append(
            {
                "name": name,
                "display_name": title,
                "aggregation_strategies": [],
                "metrics": [{"name": metric, "split": "${main_split}"} for metric in metrics],
            }
        )
    groups = []
    for group, run in by_group.items():
        groups.append(
            {
                "name": group,
                "display_name": run.task,
                "description": f"{run.task}: its scores as HELM computes them",
                "metric_groups": [_MAIN, f"{ALL_METRICS_OF}{group}"],
                "environment": {"main_name": run.main_metric, "main_split": run.main_split},
                "category": "Evaluations",
            }
        )
    group_of_groups = {
        "name": _OTHER_EVALUATIONS,
        "display_name": "Evaluations",
        "description": "Benchmarks of this run that are not part of MedHELM's leaderboard",
        "category": "Evaluations",
        "subgroups": list(by_group),
    }
    return tables, [group_of_groups, *groups]
