"""The shape of `suite.slurm`: what the jobs of a suite ask of Slurm. Nothing here has a default: see framework.yml."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from eval_factory.config.field_docstrings import describe_fields
from eval_factory.config.model import Line, Positive
from eval_factory.config.run_executor import Executor
from eval_factory.core.secrets import looks_like_key
from eval_factory.core.strict_model import StrictModel

MOST_CPUS = 4096
MOST_AT_ONCE = 10_000
_WORD = re.compile(r"[A-Za-z0-9_.,:@+][A-Za-z0-9_.,:@+-]*")
_TIME = re.compile(r"\d+|\d+:\d\d|\d+:\d\d:\d\d|\d+-\d+(:\d\d){0,2}")
_MEMORY = re.compile(r"\d+[KMGT]?")
_GPUS = re.compile(r"([A-Za-z0-9_.-]+:)?\d+")
_OPTION = re.compile(r"--([a-z][a-z-]*)(=.*)?")
OWN_OPTIONS = {
    "account": "account", "partition": "partition", "qos": "qos", "time": "time", "cpus-per-task": "cpus",
    "mem": "mem", "gpus": "gpus", "gres": "gpus",
    "array": None, "job-name": None, "output": None, "error": None, "export": None, "export-file": None,
    "requeue": None, "no-requeue": None, "open-mode": None, "signal": None, "wrap": None, "parsable": None,
    "chdir": None, "nodes": None, "ntasks": None, "dependency": None, "wait": None, "test-only": None,
}  # fmt: skip
"""Options of sbatch that do not go into `extra`, and the key that says the same; None: eval-factory decides itself."""


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError("must be a name as Slurm has it: letters, digits and _.,:@+-")
    return text


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError(
            "must be a time as Slurm has it, in quotes: 'minutes', 'hours:minutes:seconds' or 'days-hours:minutes'"
        )
    return text


def _memory(text: str) -> str:
    if not _MEMORY.fullmatch(text):
        raise ValueError("must be a number with K, M, G or T behind it, such as 8G")
    return text


def _gpus(text: str) -> str:
    if not _GPUS.fullmatch(text):
        raise ValueError("must be a number of GPUs in quotes, or kind:number, such as a100:2")
    return text


def _no_key(text: str) -> str:
    if any(looks_like_key(word) for word in re.split(r"[\s=\"']+", text)):
        raise ValueError("holds what looks like a key (it is not shown); a batch script is no place for one")
    return text


def _option(text: str) -> str:
    found = _OPTION.fullmatch(text)
    if found is None:
        raise ValueError("must be one option of sbatch in its long form, such as --constraint=a100")
    name = found[1]
    if name in OWN_OPTIONS:
        key = OWN_OPTIONS[name]
        instead = f"say it as `{key}`" if key else "eval-factory sets it itself"
        raise ValueError(f"--{name} does not go here: {instead}")
    try:
        many = len(shlex.split(text)) != 1  # sbatch reads quotes in the same way
    except ValueError:
        raise ValueError("has a quote that does not end") from None
    if many:
        raise ValueError('has a space: give each option an entry of its own, and a value with spaces quotes: --x="a b"')
    return text


Word = Annotated[Line, AfterValidator(_word), AfterValidator(_no_key)]
ScriptLine = Annotated[Line, AfterValidator(_no_key)]


class SlurmSection(StrictModel):
    """`suite.slurm`, or a target's `slurm`, which stands over it key by key."""

    model_config = ConfigDict(json_schema_extra=describe_fields)

    account: Word | None = None
    """Who pays for the jobs; as sbatch --account."""
    partition: Word | None = None
    """Where they run; as sbatch --partition."""
    qos: Word | None = None
    """As sbatch --qos."""
    time: Annotated[Line, AfterValidator(_time)] | None = None
    """How long one cell may take, such as '2:00:00'; the partition's own limit if not given."""
    cpus: Annotated[Positive, Field(le=MOST_CPUS)] | None = None
    """Cores for each cell."""
    mem: Annotated[Line, AfterValidator(_memory)] | None = None
    """Memory for each cell, such as 8G; the partition's own if not given."""
    gpus: Annotated[Line, AfterValidator(_gpus)] | None = None
    """GPUs for each cell: '1', or 'a100:2'; none if not given."""
    extra: list[Annotated[ScriptLine, AfterValidator(_option)]] | None = None
    """Further options of sbatch, one each, such as --constraint=a100."""
    prologue: list[ScriptLine] | None = None
    """Lines of bash that come before the evaluation, such as module load python."""
    container: ScriptLine | None = None
    """A command that the evaluation is started with, such as: apptainer exec image.sif."""
    python: ScriptLine | None = None
    """The Python that has eval-factory, where the jobs run; that of the command itself if not given."""
    tasks_at_once: Annotated[Positive, Field(le=MOST_AT_ONCE)] | None = None
    """Cells of one endpoint that run at once. Each gets its part of the endpoint's limits."""


class RunExecutorSection(StrictModel):
    """`executor` and `slurm` at the top of a run config, for the JSON Schema."""

    model_config = ConfigDict(json_schema_extra=describe_fields)

    executor: Executor
    """Where the run happens: on this machine, or as a job of Slurm. Flag: --executor."""
    slurm: SlurmSection
    """What the job asks of Slurm; with executor slurm."""
