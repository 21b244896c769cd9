"""Reads `errata.yml`, the known defects of published benchmarks and of HELM's code for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from pydantic import model_validator

from eval_factory.core.plain_yaml import load_packaged
from eval_factory.core.strict_model import StrictModel
from eval_factory.tasks.framework import plug_ins
from eval_factory.tasks.upstreams import HELM, Upstream

CORRECTED_SUFFIX = ".corrected"  # the end of a corrected score's name: `METRIC.corrected`


class Erratum(StrictModel):
    """One defect, with exactly one remedy: `corrected`, `patched` or `avoided`."""

    id: str
    run_specs: tuple[str, ...]
    """The run specs that have the defect."""
    arguments: dict[str, str] = {}
    """Dict from names to values of the arguments with which a run spec has the defect. If it is
    empty, a run spec has the defect with any arguments.
    """
    upstreams: tuple[Literal["helm", "medhelm"], ...] = ("helm", "medhelm")
    """The upstreams that have the defect."""
    defect: str
    """A description of the defect."""
    upstream: str | None
    """The issue that reports the defect to its authors (`owner/repository#number`); None without a
    report. Do not confuse it with `upstreams`.
    """
    metric: str | None = None
    """The metric that the defect falsifies; None if no corrected score is computed."""
    rule: str | None = None
    """The name of the rule that computes the corrected score; None if `metric` is None. A rule is a
    function of `scoring/corrections.py` or of a plug-in.
    """
    corrected: str | None = None
    """A description of the corrected score, which is reported next to HELM's score."""
    patched: str | None = None
    """A description of the patch that removes the defect while helm-run runs."""
    avoided: str | None = None
    """The reason why the defect cannot occur with eval-factory."""

    @model_validator(mode="after")
    def _one_remedy(self) -> Erratum:
        """Check that one remedy is set, and that the fields of a correction are complete."""
        remedies = (self.corrected, self.patched, self.avoided)
        if sum(remedy is not None for remedy in remedies) != 1:
            raise ValueError(f"{self.id}: one of corrected, patched and avoided is needed")
        correction = (self.metric, self.rule, self.corrected)
        is_complete = None not in correction
        is_absent = correction == (None, None, None)
        if not is_complete and not is_absent:
            raise ValueError(f"{self.id}: metric, rule and corrected belong together")
        return self

    @property
    def label(self) -> str:
        """The name of the corrected score, for an erratum whose remedy is `corrected`."""
        return f"{self.metric}{CORRECTED_SUFFIX}"


class Errata(StrictModel):
    """All known errata: the content of `errata.yml`, and those of plug-ins."""

    version: int
    """The number in `errata.yml` that goes up when a rule or the list of rules changes."""
    errata: tuple[Erratum, ...]

    def of(
        self,
        run_spec: str,
        arguments: Mapping[str, object] | None = None,
        upstream: Upstream = HELM,
    ) -> list[Erratum]:
        """Return the errata of a run spec.

        Args:
            run_spec: the name of the run spec.
            arguments: dict from names to values of a run's arguments: only the errata that apply to
                this run are returned. None: all errata of the run spec are returned.
            upstream: the HELM that runs the run spec.
        """
        matching = []
        for erratum in self.errata:
            if run_spec in erratum.run_specs and upstream.name in erratum.upstreams:
                matching.append(erratum)
        if arguments is None:
            return matching
        run_arguments = dict(arguments).items()
        # `<=`: the run has all arguments of the erratum, with the same values.
        return [erratum for erratum in matching if erratum.arguments.items() <= run_arguments]


@lru_cache(maxsize=1)
def load_errata() -> Errata:
    """Return eval-factory's errata, followed by the errata of plug-ins.

    Raises ConfigError if a plug-in cannot be read, or one of its errata is not valid.
    """
    errata = Errata.model_validate(load_packaged("tasks/errata.yml"))
    added: list[Erratum] = []
    for plug_in in plug_ins():
        try:
            added += map(Erratum.model_validate, plug_in.document.get("errata", ()))
        except ValueError as error:
            raise plug_in.rejection(f"errata: {error}") from error
    return errata.model_copy(update={"errata": (*errata.errata, *added)})
