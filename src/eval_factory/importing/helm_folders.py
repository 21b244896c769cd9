"""Reads the folders of runs that `helm-run` (of crfm-helm or medhelm) made without eval-factory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from eval_factory.core.errors import HelmError
from eval_factory.helm import output
from eval_factory.helm.metric_facts import metric_facts_of
from eval_factory.importing.data_age import HELM_PREFIX
from eval_factory.importing.foreign_run import ForeignRun, ForeignSample, ReportedValue
from eval_factory.importing.sources import SourceError, checked_id, count_or_none, digest_of
from eval_factory.scoring.scores import metric_values_of

PROGRAM = "helm"
_FILES = ("run_spec.json", "scenario_state.json", "per_instance_stats.json", "stats.json")
_MAIN_METRICS = ("exact_match", "quasi_exact_match", "quasi_prefix_exact_match", "f1_score")
"""The main metric of a run is the first of these metrics that the run has."""


def is_run(folder: Path) -> bool:
    """Return True if a folder has the files of one run of helm-run."""
    return all((folder / name).is_file() for name in _FILES)


def runs_below(folder: Path) -> list[Path]:
    """Return the folders of all runs of helm-run in a folder.

    The folder may be the folder of one run, of a suite, or helm-run's output path.
    """
    runs = []
    for path in sorted(folder.rglob("run_spec.json")):
        if is_run(path.parent):
            runs.append(path.parent)
    return runs


def read(folder: Path) -> ForeignRun:
    """Read one run. The answers are read each time a caller iterates over the samples.

    Raises:
        SourceError: a file is missing or cannot be read, or the run has no scores.
    """
    try:
        run = output.read_run(folder)
        split = run.main_split()
        metrics = metric_values_of(run, split)
    except HelmError as error:
        raise SourceError(str(error)) from None
    reported = {}
    values_by_metric = {}
    for metric in metrics:
        # only values of the main split's unperturbed instances are imported
        if metric.perturbation is not None or metric.split != split:
            continue
        if metric.helm_mean is None or not metric.values:
            continue
        # `name` is the metric alone; `label` is unique, and may have the split: `f1@test`.
        higher_is_better = metric_facts_of(metric.name).higher_is_better
        reported[metric.label] = ReportedValue(metric.helm_mean, higher_is_better=higher_is_better)
        values_by_metric[metric.label] = metric.values
    if not reported:
        raise SourceError(f"{folder}: has no scores of its instances")
    adapter = run.run_spec.adapter_spec
    task = run.run_spec.name.partition(":")[0]
    # A scenario with one of these arguments reads the user's files instead of a public data set.
    arguments = run.run_spec.scenario_spec.args
    reads_user_files = bool(arguments.get("data_path") or arguments.get("dataset_file"))
    return ForeignRun(
        program=PROGRAM,
        version="unknown",
        task=task,
        model=adapter.model or "unknown",
        main_metric=_main_metric(list(reported)),
        reported=reported,
        samples=partial(_samples, folder, split, values_by_metric),
        files={name: digest_of(folder / name) for name in _FILES},
        dataset=None if reads_user_files else f"{HELM_PREFIX}{task}",
        settings={
            "run_spec": run.run_spec.name,
            "method": adapter.method,
            "max_tokens": adapter.max_tokens,
            "temperature": adapter.temperature,
            "few_shot": adapter.max_train_instances,
        },
        unknown=("version of HELM", "tokens", "seconds of an answer", "cost"),
    )


def _main_metric(names: list[str]) -> str:
    """Return the main metric; the first of `names` if the run has none of `_MAIN_METRICS`."""
    for metric in _MAIN_METRICS:
        if metric in names:
            return metric
    return names[0]


def _samples(
    folder: Path, split: str | None, values_by_metric: dict[str, Any]
) -> Iterator[ForeignSample]:
    """Yield the unperturbed answers of a split; `values_by_metric` is that of `sample_of`."""
    run = output.read_run(folder)
    try:
        for state in run.request_states():
            if state.instance.perturbation is None and state.instance.split == split:
                yield sample_of(state, values_by_metric, str(folder))
    except HelmError as error:
        raise SourceError(str(error)) from None


def options_shown_to_model(output_mapping: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options in the order of their letters, as HELM's adapter wrote them in the prompt.

    The tuple is empty if the prompt has no options. The references of an instance are not used as
    options: many scenarios list the right reference first, or have references that are not in the
    prompt.

    Args:
        output_mapping: dict from letter to option; other adapters write other keys.
    """
    letters = sorted(output_mapping)
    if len(letters) < 2 or letters != list(ascii_uppercase[: len(letters)]):
        return ()
    return tuple(output_mapping[letter] for letter in letters)


def sample_of(
    state: output.RequestState, values_by_metric: dict[str, Any], location: str
) -> ForeignSample:
    """Return the sample of an answer, with its values.

    Args:
        state: the request with its answer.
        values_by_metric: dict from metric to a dict from the key of an instance to its value.
        location: names the run in error messages.
    """
    instance = state.instance
    key = (instance.id, state.train_trial_index, None)  # None: not perturbed
    values = {}
    for metric, value_of in values_by_metric.items():
        if key in value_of:
            values[metric] = value_of[key]
    right_answers = []
    for reference in instance.references:
        if "correct" in reference.tags:
            right_answers.append(reference.output.text)
    options = options_shown_to_model(state.output_mapping or {})
    right_options = []
    for index, option in enumerate(options):
        if option in right_answers:
            right_options.append(index)
    completion = None
    finish_reason = None
    error = None
    if state.result is None:
        error = "helm-run wrote no result"
    elif not state.result.success:
        error = state.result.error or "the request failed"
    elif state.result.completions:
        completion = state.result.completions[0].text
        finish_reason = (state.result.completions[0].finish_reason or {}).get("reason")
    return ForeignSample(
        id=checked_id(instance.id, location),
        repeat=count_or_none(state.train_trial_index) or 0,
        prompt=str(state.request.get("prompt") or ""),
        question=instance.input.text,
        options=options,
        right_options=tuple(right_options),
        # If no shown option is right, the right answers are texts.
        right_answers=() if right_options else tuple(right_answers),
        completion=completion,
        values={} if error else values,
        error=error,
        finish_reason=finish_reason,
    )
