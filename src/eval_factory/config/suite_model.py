"""The shape of a suite's file. Nothing here has a default: those stand in framework.yml."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from eval_factory.config.field_docstrings import describe_fields
from eval_factory.config.model import Line, Number, PathText, Positive
from eval_factory.config.serve_model import ServeSection
from eval_factory.config.slurm_model import SlurmSection
from eval_factory.core.rundir import RESERVED_NAMES
from eval_factory.core.secrets import looks_like_key
from eval_factory.core.strict_model import StrictModel

LONGEST_NAME = 100
NAME = re.compile(rf"^[A-Za-z0-9_][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}\Z")
OF_THE_SUITE = "suite_"
"""What the suite's own files beside the targets' folders begin with."""

MOST_PROCESSES = 256
MOST_ATTEMPTS = 100
MOST_TOKENS = 10**12


def _folder_name(text: str) -> str:
    if looks_like_key(text):
        raise ValueError("looks like a key (it is not shown), and names a folder; choose another name")
    if not NAME.match(text):
        raise ValueError(
            f"names a folder: letters, digits, '.', '_' and '-', {LONGEST_NAME} at most, the first one a letter,"
            f" a digit or '_'; got {text[:LONGEST_NAME]!r}"
        )
    return text


def _target_name(text: str) -> str:
    if text.lower() in RESERVED_NAMES or text.lower().startswith(OF_THE_SUITE):
        raise ValueError(f"must not begin with {OF_THE_SUITE!r}, as the suite's own files do; got {text!r}")
    return text


def _no_key(text: str) -> str:
    if looks_like_key(text):
        raise ValueError("looks like a key (it is not shown), and would be written into files; choose another name")
    return text


Name = Annotated[Line, AfterValidator(_no_key)]
"""Of what may be called as one likes."""
FolderName = Annotated[Line, AfterValidator(_folder_name)]
TargetName = Annotated[FolderName, AfterValidator(_target_name)]
Tree = dict[str, Any]


class _Described(StrictModel):
    """A field's docstring is its description in the JSON Schema."""

    model_config = ConfigDict(json_schema_extra=describe_fields)


class Selection(_Described):
    """Tasks of framework.yml by what is known of them; 'eval-factory ls --json' shows it."""

    access: Literal["public", "gated", "private"] | None = None
    """Who can get the data."""
    tags: list[Line] = []
    """A task needs all of these tags."""
    not_tags: list[Line] = []
    """And none of these."""
    without: list[Line] = []
    """Names of tasks that are left out."""


class EvaluationEntry(_Described):
    """One of `evaluations`."""

    type: Line | None = None
    """The task ('eval-factory ls' lists them), or helm:RUN_ENTRY for any of HELM's."""
    select: Selection | None = None
    """In the place of `type`: many tasks at once."""
    name: FolderName | None = None
    """What its folders and its column in the table are called; made of `type` if not given."""
    params: Tree | None = None
    """As config.params of a run config; they beat the suite's."""

    @model_validator(mode="after")
    def _one_or_many(self) -> EvaluationEntry:
        if self.select is not None and (self.type is not None or self.name is not None):
            raise ValueError("`select` stands for many tasks: it goes without `type` and `name`")
        if self.select is None and self.type is None and self.name is None:
            raise ValueError("needs `type`, the task ('eval-factory ls' lists them)")
        return self


class TargetEntry(_Described):
    """One of `targets`."""

    name: TargetName
    """What its folder and its row in the table are called."""
    api_endpoint: Tree | None = None
    """As target.api_endpoint of a run config."""
    params: Tree | None = None
    """As config.params of a run config; they beat the suite's and the evaluation's."""
    limit_group: Name | None = None
    """Targets with the same group share their limits; targets with the same URL share them if this is not given."""
    slurm: SlurmSection | None = None
    """As suite.slurm, which it stands over key by key: what the cells of this target ask of Slurm."""
    serve: ServeSection | None = None
    """A server that is started for the cells of this target, and ended after them; in place of api_endpoint.url."""


class VariantEntry(_Described):
    """One of `variants`."""

    name: FolderName
    """Is put behind the evaluation's name; `default`, and a variant without params, keep the plain name."""
    params: Tree | None = None
    """As config.params of a run config; they beat the suite's, the evaluation's and the target's."""


class CellPattern(_Described):
    """One of `include` or `exclude`: the cells that all its patterns fit. `*`, `?` and `[...]` stand for characters."""

    evaluation: Name | None = None
    """The evaluation's name, with its variant's or without it."""
    target: Name | None = None
    """The target's name."""
    variant: Name | None = None
    """The variant's name; `default` where there are no variants."""

    @model_validator(mode="after")
    def _says_something(self) -> CellPattern:
        if self.evaluation is None and self.target is None and self.variant is None:
            raise ValueError("needs `evaluation`, `target` or `variant`")
        return self


def _entry(value: object) -> object:
    """The name of a task alone is an evaluation of it."""
    return {"type": value} if isinstance(value, str) else value


Cost = Annotated[Number, Field(gt=0.0)]
Seconds = Annotated[Number, Field(gt=0.0, le=366 * 24 * 3600.0)]


class SuiteSection(_Described):
    """`suite`, as one file says it: all of it may stand elsewhere."""

    output_dir: PathText | None = None
    """Folder for the cells' folders and the table; made if it is not there. Flag: --output_dir."""
    preset: Line | None = None
    """A suite that comes with eval-factory, as the base of this one. Flag: --preset."""
    extends: PathText | None = None
    """Another suite's file, beside this one, as the base of this one."""
    params: Tree | None = None
    """As config.params of a run config; of every cell."""
    evaluations: list[Annotated[EvaluationEntry, BeforeValidator(_entry)]] | None = None
    """What is evaluated: names of tasks, or mappings."""
    targets: list[TargetEntry] | None = None
    """The models that are evaluated."""
    variants: list[VariantEntry] | None = None
    """Each evaluation is done once with the params of each variant."""
    include: list[CellPattern] | None = None
    """Only these cells; all if not given."""
    exclude: list[CellPattern] | None = None
    """Not these cells, whatever `include` says."""
    judges: list[Any] | None = None
    """A jury, as config.params.extra.judges of a run config; of the cells whose task has a jury."""
    prices: list[Any] | None = None
    """What models cost, as config.params.extra.prices of a run config; of every cell."""
    executor: Literal["local", "slurm"] | None = None
    """Where the cells run: on this machine, or as jobs of Slurm. Flag: --executor."""
    slurm: SlurmSection | None = None
    """What the jobs ask of Slurm; with executor slurm."""
    max_processes: Annotated[Positive, Field(le=MOST_PROCESSES)] | None = None
    """Cells that run at once; twice as many as this machine has cores, 8 at most, if not given."""
    max_attempts: Annotated[Positive, Field(le=MOST_ATTEMPTS)] | None = None
    """How often a cell is begun in one invocation where another attempt can help."""
    max_outage_s: Seconds | None = None
    """Seconds for which the cells of an endpoint that is gone wait for it."""
    max_cost: Cost | None = None
    """US dollars that all cells together may cost."""
    max_requests: Positive | None = None
    """Requests that all cells together may send."""
    max_tokens_total: Annotated[int, Field(strict=True, ge=1, le=MOST_TOKENS)] | None = None
    """Tokens of prompts and answers of all cells together."""
    max_wall_s: Seconds | None = None
    """Seconds after which one invocation stops."""
