"""The shape of a suite's file. Nothing here has a default: those stand in framework.yml.

The shape of `suite.slurm`: what the jobs of a suite ask of Slurm. Nothing here has a default: see framework.yml.

The shape of a target's `serve`: the server that is started for its cells. The defaults stand in framework.yml.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

from eval_factory.config.model import Executor, Line, Number, PathText, Positive, VariableName, describe_fields
from eval_factory.core.rundir import RESERVED_NAMES
from eval_factory.core.secrets import Redactor, looks_like_key, names_a_secret
from eval_factory.core.strict_model import StrictModel
from eval_factory.core.urls import PORT, REPLICA, served_url

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


def _no_key_of_slurm_model(text: str) -> str:
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


Word = Annotated[Line, AfterValidator(_word), AfterValidator(_no_key_of_slurm_model)]
ScriptLine = Annotated[Line, AfterValidator(_no_key_of_slurm_model)]


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


MOST_RESTARTS = 100
MOST_REPLICAS = 64
LAUNCH = "launch"
"""Beside the keys of a `serve` that a job has: words that start one of several servers as a step of it."""
_OF_A_SHELL = frozenset({";", "&", "&&", "|", "||", ">", ">>", "<", "2>&1"})
_PATH = re.compile(r"/[A-Za-z0-9._~/-]*")
_URL = re.compile(r"http://(127\.0\.0\.1|localhost):\{port\}(/[^\s]*)?")


def _words(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        raise ValueError("has a quote that does not end") from None
    if any(looks_like_key(part) for word in words for part in re.split(r"[=:,]", word)):
        raise ValueError(
            "holds what looks like a key (it is not shown); name its variable in `env`, and have the server read it"
        )
    found = sorted(_OF_A_SHELL.intersection(words))
    if found:
        raise ValueError(f"is started without a shell, and {found[0]} means nothing then; write a script and name it")
    return text


def _health(text: str) -> str:
    if not _PATH.fullmatch(text) and not _URL.fullmatch(text):
        raise ValueError(f"must be a path, such as /health, or a URL such as http://127.0.0.1:{PORT}/health")
    return text


def _base_path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise ValueError("must be a path, such as /v1")
    return text.rstrip("/")


def _variable(text: str) -> str:
    name, given, value = text.partition("=")
    if given and names_a_secret(name):
        raise ValueError(f"has a value for {name}, which names a secret; write the NAME alone")
    if looks_like_key(value):
        raise ValueError("has what looks like a key as its value (it is not shown); write the NAME alone")
    return f"{_name.validate_python(name)}{given}{value}"


_name: TypeAdapter[str] = TypeAdapter(VariableName)
Words = Annotated[Line, AfterValidator(_words)]
Seconds_of_serve_model = Annotated[Number, Field(gt=0.0, le=7 * 24 * 3600.0)]


class ServeSection(StrictModel):
    """A target's `serve`."""

    model_config = ConfigDict(json_schema_extra=describe_fields)

    command: Words | None = None
    """Starts the server, such as: vllm serve my/model --port {port}. {port} is a free port, another one each time.
    Another command is another run: its answers are not those of this one."""
    replicas: Annotated[int, Field(strict=True, ge=1, le=MOST_REPLICAS)] | None = None
    """How many such servers are started; requests go to the one with the fewest under way."""
    machine_options: Words | None = None
    """Further words of the command that change how fast it answers and not what, such as: --tensor-parallel-size 2."""
    health: Annotated[Line, AfterValidator(_health)] | None = None
    """What answers with 200 when the server is ready: a path, or a URL with {port}."""
    base_path: Annotated[Line, AfterValidator(_base_path)] | None = None
    """Where the OpenAI-compatible API is under the server's address."""
    start_time_limit_s: Seconds_of_serve_model | None = None
    """Seconds within which the server has to be ready; to load a large model takes long."""
    hang_time_limit_s: Seconds_of_serve_model | None = None
    """Seconds without an answer of `health` after which the server is ended and started again."""
    stop_grace_s: Seconds_of_serve_model | None = None
    """Seconds between asking the server to end (SIGTERM) and making it (SIGKILL)."""
    max_restarts: Annotated[int, Field(strict=True, ge=0, le=MOST_RESTARTS)] | None = None
    """How often a server that was ready, and then ended or hung, is started again in one invocation."""
    env: list[Annotated[Line, AfterValidator(_variable)]] | None = None
    """Variables that the server gets, beside those by which it finds programs and GPUs: NAMES, such as HF_TOKEN, or
    NAME=value, such as CUDA_VISIBLE_DEVICES={replica}. {replica} is the server's number among the replicas, from 0."""


def serve_of(defaults: Mapping[str, Any], section: Mapping[str, Any]) -> dict[str, Any]:
    """Every key with its value. A null leaves the default."""
    return {**defaults, **{key: value for key, value in section.items() if value is not None}}


def problems_of_serve(target: Mapping[str, Any], where: str, env: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a target that is served, when all files are merged."""
    serve = target["serve"]
    if serve.get("command") is None:
        yield f"{where} has no serve.command, which starts its server: vllm serve my/model --port {PORT}"
    elif not any(PORT in (serve.get(key) or "") for key in ("command", "machine_options")):
        yield f"{where}: serve.command says nowhere which port: write {PORT}, and a free one is put in its place"
    if Redactor.from_environment(env, filter(names_a_secret, env)).tree(serve, known_only=True) != serve:
        yield (
            f"{where}: `serve` holds the value of a variable that is a secret (it is not shown), and everybody on the"
            " machine can read a command; name the variable in serve.env, and have the server read it"
        )
    if (target.get("api_endpoint") or {}).get("url") is not None:
        yield f"{where} has both `serve` and api_endpoint.url; leave the URL out: the server's own is used"


def served_target(target: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The target with the URL of what its command serves; another target as it is."""
    if not target.get("serve"):
        return dict(target)
    serve = serve_of(defaults, target["serve"])
    endpoint = {"api_key": None, **(target.get("api_endpoint") or {})}  # it gets a key only where one is named
    endpoint["url"] = served_url(serve["command"], serve["base_path"].rstrip("/"))
    return {**target, "api_endpoint": endpoint}


def words_of(serve: Mapping[str, Any]) -> tuple[str, ...]:
    """Of the command; `{port}` and `{replica}` stand in them."""
    return tuple(shlex.split(_command(serve)))


def health_url(serve: Mapping[str, Any]) -> str:
    """`{port}` stands in it."""
    said = str(serve["health"])
    return said if said.startswith("http") else f"http://127.0.0.1:{PORT}{said}"


def variables_of(serve: Mapping[str, Any]) -> list[str]:
    """Names of the variables that a server gets from who starts it."""
    return [entry for entry in serve["env"] if "=" not in entry]


def settings_of(serve: Mapping[str, Any]) -> dict[str, str]:
    """Variables that a server gets with the values that `serve` says."""
    return dict(entry.split("=", 1) for entry in serve["env"] if "=" in entry)


def _command(serve: Mapping[str, Any]) -> str:
    return " ".join(part for part in (serve["command"], serve["machine_options"]) if part)


def served_lines(served: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What a dry run says of servers. `served`: target -> every key of its `serve`."""
    if served:
        yield "\n# servers; each is started for all cells of its target, and ended after them"
    for target, serve in served.items():
        many = "" if serve["replicas"] == 1 else f"{serve['replicas']} servers, {REPLICA}: its number; "
        told = f"({many}{PORT}: one that is free; ready when {serve['health']} answers with 200)"
        yield f"#   {target}: {_command(serve)}  {told}"


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
