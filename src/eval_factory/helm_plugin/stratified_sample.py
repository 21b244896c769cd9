"""Draws the instances of `limit_samples`. With `extra.sample_seed` they are drawn in proportion to
the groups that they come in. With `extra.stop_when` they are the first ones of one random order of
all; with `extra.instances` those that it names.

An instance's rank is a hash of the seed and its text: the order of the data does not matter, and a
greater sample holds the smaller one, but for rounding.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.formats import first_of
from eval_factory.core.helm_run_settings import HelmRunSettings, SampleSettings
from eval_factory.helm.output import SUB_SPLIT, can_form_groups, groups_of
from eval_factory.helm_plugin.session import run_record

SHOWN = 5  # ids in a message
_Downsample = Callable[[list[Any], int, list[str]], list[Any]]


def draw_with_a_seed(downsample: _Downsample) -> _Downsample:
    """Replaces HELM's draw; where nothing is to be drawn, HELM's own function says so."""

    def drawn(instances: list[Any], max_eval_instances: int, eval_splits: list[str]) -> list[Any]:
        from helm.benchmark.scenarios.scenario import TRAIN_SPLIT
        from helm.common.hierarchical_logger import hlog

        candidates = [instance for instance in instances if instance.split in eval_splits]
        settings = HelmRunSettings.from_environment(os.environ).sample
        if settings is not None and settings.ids:
            sample = named(candidates, settings.ids)
            manner = "as extra.instances names them"
        elif settings is not None and settings.in_one_order:
            sample = in_one_order(candidates, settings.seed)[:max_eval_instances]
            manner = f"drawn with seed {settings.seed}"
            run_record.note(drawn_sample={"asked": len(sample), "of": len(candidates)})
        elif settings is None or len(candidates) <= max_eval_instances:
            return downsample(instances, max_eval_instances, eval_splits)
        else:
            sample = stratified_sample(candidates, max_eval_instances, settings)
            by = stratifying_field(candidates, settings.source)
            manner = f"drawn with seed {settings.seed}" + (f" in proportion to {by}" if by else "")
        hlog(
            f"{len(instances)} instances, {len(sample)}/{len(candidates)} eval instances, {manner}"
        )
        return [instance for instance in instances if instance.split == TRAIN_SPLIT] + sample

    return drawn


def named(instances: Sequence[Any], ids: Sequence[str]) -> list[Any]:
    """The instances of these ids, in the data's order. Raises PrerequisiteError: one is missing."""
    by_id = {str(instance.id): instance for instance in instances}
    missing = [name for name in ids if name not in by_id]
    if missing:
        hint = f"the data have {first_of(list(by_id), SHOWN)}"
        raise PrerequisiteError(
            f"extra.instances: no instance is called {first_of(missing, SHOWN)}; {hint}"
        )
    named_instances = []
    for name, instance in by_id.items():
        if name in set(ids):
            named_instances.append(instance)
    return named_instances


def in_one_order(instances: Sequence[Any], seed: int) -> list[Any]:
    """All, by their ranks; rows of one text have one rank: then the id decides."""
    return sorted(
        instances, key=lambda instance: (_rank(seed, _text_of(instance)), str(instance.id))
    )


def stratified_sample(instances: Sequence[Any], size: int, settings: SampleSettings) -> list[Any]:
    """Return `size` of more instances, in the order of their ranks."""
    field = stratifying_field(instances, settings.source)
    ranked = in_one_order(instances, settings.seed)
    strata: dict[str, list[int]] = defaultdict(list)
    for rank, instance in enumerate(ranked):
        value = ""
        if field:
            value = groups_of(instance, settings.source).get(field, "")
        strata[value].append(rank)
    sizes = {value: len(ranks) for value, ranks in strata.items()}
    shares = shares_of(sizes, size, settings.seed)
    drawn: list[int] = []
    for value, ranks in strata.items():
        drawn += ranks[: shares[value]]
    return [ranked[rank] for rank in sorted(drawn)]


def stratifying_field(instances: Sequence[Any], source: str | None) -> str | None:
    """The sub-split, else the first field by name that has few values; None if there is none."""
    values: dict[str, set[str]] = defaultdict(set)
    for instance in instances:
        for name, value in groups_of(instance, source).items():
            values[name].add(value)
    few = [
        name for name, present in values.items() if can_form_groups(len(present), len(instances))
    ]
    return min(few, key=lambda name: (name != SUB_SPLIT, name), default=None)


def shares_of(sizes: Mapping[str, int], size: int, seed: int) -> dict[str, int]:
    """Return the number of instances to draw from each stratum: proportional by largest remainders,
    and at least one if `size` allows.

    Of equal remainders the seed decides: it is not always the same stratum that goes without.
    """
    shares: dict[str, int] = {}
    rest = dict(sizes)
    left = size
    while size >= len(sizes):
        total = sum(rest.values())
        small = {name for name, count in rest.items() if count * left < total}
        if not small:
            break
        for name in small:
            shares[name] = 1
            del rest[name]
        left -= len(small)
    total = sum(rest.values())
    remainders = {}
    for name, count in rest.items():
        shares[name], remainders[name] = divmod(count * left, total)
    missing = left - sum(shares[name] for name in rest)
    by_remainder = sorted(remainders, key=lambda name: (-remainders[name], _rank(seed, name)))
    for name in by_remainder[:missing]:
        shares[name] += 1
    return shares


def _rank(seed: int, subject: object) -> bytes:
    return hashlib.sha256(json.dumps([seed, subject]).encode()).digest()


def _text_of(instance: Any) -> list[Any]:
    """Return the question, what is shown and what may be answered, in any order: HELM's ids are
    places in the data.
    """
    answers = sorted(reference.output.text for reference in instance.references)
    content = getattr(instance.input, "multimedia_content", None)
    shown = []
    if content:
        shown = [medium.text or Path(medium.location).name for medium in content.media_objects]
    return [instance.input.text, getattr(instance.input, "messages", None), answers, *shown]
