"""`extra.sample_seed`: the instances of `limit_samples` are drawn in proportion to the groups that
they come in. With `extra.stop_when` they are the first ones of one random order of all; with
`extra.instances` those that it names.

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
from eval_factory.helm.output import SUB_SPLIT, are_few, groups_of
from eval_factory.helm_plugin.session import run_record

SHOWN = 5  # ids in a message
_Downsample = Callable[[list[Any], int, list[str]], list[Any]]


def draw_with_a_seed(downsample: _Downsample) -> _Downsample:
    """Replaces HELM's draw; where nothing is to be drawn, HELM's own function says so."""

    def drawn(instances: list[Any], max_eval_instances: int, eval_splits: list[str]) -> list[Any]:
        from helm.benchmark.scenarios.scenario import TRAIN_SPLIT
        from helm.common.hierarchical_logger import hlog

        there = [one for one in instances if one.split in eval_splits]
        settings = HelmRunSettings.from_environment(os.environ).sample
        if settings is not None and settings.ids:
            sample = named(there, settings.ids)
            how = "as extra.instances names them"
        elif settings is not None and settings.in_one_order:
            sample = in_one_order(there, settings.seed)[:max_eval_instances]
            how = f"drawn with seed {settings.seed}"
            run_record.note(drawn_sample={"asked": len(sample), "of": len(there)})
        elif settings is None or len(there) <= max_eval_instances:
            return downsample(instances, max_eval_instances, eval_splits)
        else:
            sample = stratified_sample(there, max_eval_instances, settings)
            by = stratifying_field(there, settings.source)
            how = f"drawn with seed {settings.seed}" + (f" in proportion to {by}" if by else "")
        hlog(f"{len(instances)} instances, {len(sample)}/{len(there)} eval instances, {how}")
        return [one for one in instances if one.split == TRAIN_SPLIT] + sample

    return drawn


def named(instances: Sequence[Any], ids: Sequence[str]) -> list[Any]:
    """Those of these ids, in the data's order. Raises PrerequisiteError: there is no such one."""
    known = {str(one.id): one for one in instances}
    missing = [name for name in ids if name not in known]
    if missing:
        there = f"the data have {first_of(list(known), SHOWN)}"
        raise PrerequisiteError(
            f"extra.instances: no instance is called {first_of(missing, SHOWN)}; {there}"
        )
    return [one for name, one in known.items() if name in set(ids)]


def in_one_order(instances: Sequence[Any], seed: int) -> list[Any]:
    """All, by their ranks; rows of one text have one rank: then the id decides."""
    return sorted(instances, key=lambda one: (_rank(seed, _text_of(one)), str(one.id)))


def stratified_sample(instances: Sequence[Any], size: int, settings: SampleSettings) -> list[Any]:
    """`size` of more instances, in the order of their ranks."""
    field = stratifying_field(instances, settings.source)
    ranked = in_one_order(instances, settings.seed)
    strata: dict[str, list[int]] = defaultdict(list)
    for at, one in enumerate(ranked):
        strata[groups_of(one, settings.source).get(field, "") if field else ""].append(at)
    shares = shares_of(
        {value: len(places) for value, places in strata.items()}, size, settings.seed
    )
    drawn: list[int] = []
    for value, places in strata.items():
        drawn += places[: shares[value]]
    return [ranked[at] for at in sorted(drawn)]


def stratifying_field(instances: Sequence[Any], source: str | None) -> str | None:
    """The sub-split, else the first field by name that has few values; None where there is none."""
    values: dict[str, set[str]] = defaultdict(set)
    for one in instances:
        for name, value in groups_of(one, source).items():
            values[name].add(value)
    few = [name for name, found in values.items() if are_few(len(found), len(instances))]
    return min(few, key=lambda name: (name != SUB_SPLIT, name), default=None)


def shares_of(sizes: Mapping[str, int], size: int, seed: int) -> dict[str, int]:
    """Stratum -> how many of it are drawn: proportional by largest remainders, and one at least
    where `size` allows.

    Of equal remainders the seed decides: it is not always the same stratum that goes without.
    """
    ones: set[str] = set()
    rest = dict(sizes)
    left = size
    while size >= len(sizes):
        total = sum(rest.values())
        small = {name for name, count in rest.items() if count * left < total}
        if not small:
            break
        ones |= small
        rest = {name: count for name, count in rest.items() if name not in small}
        left = left - len(small)
    total = sum(rest.values())
    parts = {name: divmod(count * left, total) for name, count in rest.items()}
    more = left - sum(whole for whole, _ in parts.values())
    by_remainder = sorted(parts, key=lambda name: (-parts[name][1], _rank(seed, name)))
    shares = dict.fromkeys(ones, 1)
    for name, (count, _) in parts.items():
        shares[name] = count
    for name in by_remainder[:more]:
        shares[name] += 1
    return shares


def _rank(seed: int, what: object) -> bytes:
    return hashlib.sha256(json.dumps([seed, what]).encode()).digest()


def _text_of(instance: Any) -> list[Any]:
    """What is asked, what is shown and what may be answered, in whatever order: HELM's ids are
    places in the data.
    """
    answers = sorted(reference.output.text for reference in instance.references)
    content = getattr(instance.input, "multimedia_content", None)
    shown = (
        [one.text or Path(one.location).name for one in content.media_objects] if content else []
    )
    return [instance.input.text, getattr(instance.input, "messages", None), answers, *shown]
