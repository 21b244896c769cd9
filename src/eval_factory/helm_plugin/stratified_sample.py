"""Draws the sample of the instances, for a run that does not ask all instances.

With `extra.sample_seed`, instances are drawn in proportion to the sizes of their groups (strata).
With `extra.stop_when`, the sample is the beginning of one random order of all instances. With
`extra.instances`, the sample consists of the named instances. Without these keys, HELM draws the
sample.

Instances are ordered by their ranks. The rank of an instance is a hash of the seed and of the
instance's text. The sample therefore does not depend on the order of the data. With the same seed,
a larger sample contains a smaller sample, except for differences by rounding.
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

SHOWN = 5  # the number of ids that a message shows
_Downsample = Callable[[list[Any], int, list[str]], list[Any]]
"""HELM's function that draws a sample. Its arguments are all instances, the size of the sample, and
the splits from which the sample is drawn.
"""


def draw_with_a_seed(downsample: _Downsample) -> _Downsample:
    """Return a replacement of HELM's function that draws the instances of a run.

    `downsample` is HELM's function. The replacement calls `downsample` if the run has no settings
    for a sample, or if a stratified sample would contain all instances.
    """

    def draw(instances: list[Any], max_eval_instances: int, eval_splits: list[str]) -> list[Any]:
        from helm.benchmark.scenarios.scenario import TRAIN_SPLIT
        from helm.common.hierarchical_logger import hlog

        settings = HelmRunSettings.from_environment(os.environ).sample
        if settings is None:
            return downsample(instances, max_eval_instances, eval_splits)
        candidates = [instance for instance in instances if instance.split in eval_splits]
        if settings.ids:
            sample = instances_with_ids(candidates, settings.ids)
            manner = "as extra.instances names them"
        elif settings.in_one_order:
            sample = in_rank_order(candidates, settings.seed)[:max_eval_instances]
            manner = f"drawn with seed {settings.seed}"
            run_record.note(drawn_sample={"asked": len(sample), "of": len(candidates)})
        elif len(candidates) <= max_eval_instances:
            return downsample(instances, max_eval_instances, eval_splits)
        else:
            sample = stratified_sample(candidates, max_eval_instances, settings)
            field = stratifying_field(candidates, settings.source)
            manner = f"drawn with seed {settings.seed}"
            if field:
                manner += f" in proportion to {field}"
        hlog(
            f"{len(instances)} instances, {len(sample)}/{len(candidates)} eval instances, {manner}"
        )
        return [instance for instance in instances if instance.split == TRAIN_SPLIT] + sample

    return draw


def instances_with_ids(instances: Sequence[Any], ids: Sequence[str]) -> list[Any]:
    """Return the instances with these ids, in the order of the data.

    Raises:
        PrerequisiteError: there is an id that no instance has.
    """
    by_id = {str(instance.id): instance for instance in instances}
    unknown_ids = [instance_id for instance_id in ids if instance_id not in by_id]
    if unknown_ids:
        raise PrerequisiteError(
            f"extra.instances: no instance has the id {first_of(unknown_ids, SHOWN)}; "
            f"the data have {first_of(list(by_id), SHOWN)}"
        )
    wanted_ids = set(ids)
    return [instance for instance_id, instance in by_id.items() if instance_id in wanted_ids]


def in_rank_order(instances: Sequence[Any], seed: int) -> list[Any]:
    """Return all instances in the order of their ranks, which depend on the seed.

    Instances with equal texts have equal ranks, and are ordered by their ids.
    """
    return sorted(
        instances, key=lambda instance: (_rank(seed, _texts_of(instance)), str(instance.id))
    )


def stratified_sample(instances: Sequence[Any], size: int, settings: SampleSettings) -> list[Any]:
    """Return a sample of `size` instances, in the order of their ranks.

    Each stratum contributes in proportion to its size. `instances` must have more than `size`
    entries.
    """
    field = stratifying_field(instances, settings.source)
    ranked = in_rank_order(instances, settings.seed)
    strata: dict[str, list[int]] = defaultdict(list)  # stratum -> positions in `ranked`
    for position, instance in enumerate(ranked):
        # The stratum "" has the instances without a value. Without a field, it has all instances.
        stratum = ""
        if field:
            stratum = groups_of(instance, settings.source).get(field, "")
        strata[stratum].append(position)
    sizes = {stratum: len(positions) for stratum, positions in strata.items()}
    shares = shares_of(sizes, size, settings.seed)
    drawn_positions: list[int] = []
    for stratum, positions in strata.items():
        drawn_positions += positions[: shares[stratum]]
    return [ranked[position] for position in sorted(drawn_positions)]


def stratifying_field(instances: Sequence[Any], source: str | None) -> str | None:
    """Return the field whose values are the strata; None if no field can form groups.

    Only a field with few values, but at least two, can form groups. HELM's sub-split is preferred.
    Without a sub-split, the first suitable field in alphabetical order is chosen.

    Args:
        instances: the instances to sample.
        source: the field that names the source of an instance; several instances may share a
            source, such as a clinical note. This field never forms strata, because sources are not
            groups of the result: intervals treat them as clusters.
    """
    values: dict[str, set[str]] = defaultdict(set)
    for instance in instances:
        for name, value in groups_of(instance, source).items():
            values[name].add(value)
    suitable = []
    for name, values_of_field in values.items():
        if can_form_groups(len(values_of_field), len(instances)):
            suitable.append(name)
    # False sorts before True, so the sub-split comes first.
    return min(suitable, key=lambda name: (name != SUB_SPLIT, name), default=None)


def shares_of(sizes: Mapping[str, int], size: int, seed: int) -> dict[str, int]:
    """Return the number of instances to draw from each stratum.

    The numbers are proportional to the sizes of the strata, by the method of largest remainders.
    Each stratum gets at least one instance if `size` is large enough. If remainders are equal, the
    seed decides, so that no stratum is always preferred.

    Args:
        sizes: the number of instances of each stratum.
        size: the number of instances to draw.
        seed: the seed of the sample.
    """
    shares: dict[str, int] = {}
    large_strata = dict(sizes)  # the strata without a share
    remaining_size = size  # the number of instances to draw from `large_strata`
    each_can_have_one = size >= len(sizes)
    # Give one instance to each stratum whose proportional share is less than one instance. This
    # changes the shares of the other strata, so repeat until no such stratum is left.
    while each_can_have_one:
        total = sum(large_strata.values())
        # The proportional share is `count * remaining_size / total`; integers avoid rounding.
        small = {name for name, count in large_strata.items() if count * remaining_size < total}
        if not small:
            break
        for name in small:
            shares[name] = 1
            del large_strata[name]
        remaining_size -= len(small)
    total = sum(large_strata.values())
    remainders = {}
    for name, count in large_strata.items():
        shares[name], remainders[name] = divmod(count * remaining_size, total)
    # the number of instances that rounding down has left over
    left_over = remaining_size - sum(shares[name] for name in large_strata)
    largest_first = sorted(remainders, key=lambda name: (-remainders[name], _rank(seed, name)))
    for name in largest_first[:left_over]:
        shares[name] += 1
    return shares


def _rank(seed: int, subject: object) -> bytes:
    """Return the hash that orders instances, or strata with equal remainders.

    `subject` is the texts of an instance, or the name of a stratum.
    """
    return hashlib.sha256(json.dumps([seed, subject]).encode()).digest()


def _texts_of(instance: Any) -> list[Any]:
    """Return all texts of an instance: the question, the turns, the references, the media.

    For a picture or a sound, the file name is returned. The texts identify the instance. HELM's ids
    would not, because they are positions in the data. The references are sorted, because their
    order in the data does not matter.
    """
    answers = sorted(reference.output.text for reference in instance.references)
    content = getattr(instance.input, "multimedia_content", None)
    media = []
    if content:
        media = [medium.text or Path(medium.location).name for medium in content.media_objects]
    return [instance.input.text, getattr(instance.input, "messages", None), answers, *media]
