"""Defines the pydantic models of a suite's file, of its `slurm`, and of a target's `serve`.

A cell of a suite is one run: an evaluation with a variant of its parameters on a target (a model).

The defaults are in framework.yml, and `descriptions.yml` describes each key. A single run only
needs this module if its run config has a section `slurm`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, model_validator

from eval_factory.config.merge import with_defaults
from eval_factory.config.model import ExecutorName
from eval_factory.config.value_types import (
    Number,
    OneLineText,
    PathText,
    PositiveInteger,
    VariableName,
    editor_pattern,
)
from eval_factory.core.secrets import Redactor, looks_like_key, names_a_secret
from eval_factory.core.strict_model import StrictModel
from eval_factory.core.urls import PORT_PLACEHOLDER, REPLICA_PLACEHOLDER, served_url

_PATH = r"/[A-Za-z0-9._~/-]*"  # a pattern of the paths of URLs
# An option of sbatch in its long form: `--constraint=a100` or `--exclusive`.
_OPTION = re.compile(r"--(?P<name>[a-z][a-z-]*)(=.*)?")
# Words of a command that only a shell understands.
_SHELL_SIGNS = frozenset({";", "&", "&&", "|", "||", ">", ">>", "<", "2>&1"})
RESERVED_OPTIONS = {
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "time": "time",
    "cpus-per-task": "cpus",
    "mem": "mem",
    "gpus": "gpus",
    "gres": "gpus",
    "array": None,
    "job-name": None,
    "output": None,
    "error": None,
    "export": None,
    "export-file": None,
    "requeue": None,
    "no-requeue": None,
    "open-mode": None,
    "signal": None,
    "wrap": None,
    "parsable": None,
    "chdir": None,
    "nodes": None,
    "ntasks": None,
    "dependency": None,
    "wait": None,
    "test-only": None,
}
"""An option of sbatch that must not be written in `slurm.extra` -> the key of `slurm` to write
instead. None: eval-factory sets the option itself.
"""
LAUNCH_KEY = "launch"
"""A key that `serve` has within a job only. It holds the words of the command that starts one of
several servers as a step of the job.
"""
_MAX_NAME_LENGTH = 100  # the maximum length of a folder's name, in characters
# The first character of a folder's name, and up to 99 further characters.
_FOLDER = rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{_MAX_NAME_LENGTH - 1}}}"
NAME = re.compile(rf"^{_FOLDER}\Z")  # matches the name of a folder
SUITE_FILE_PREFIX = "suite_"
"""The beginning of the names of the suite's own files, which are next to the targets' folders."""


def _refused(is_wrong: Callable[[str], object], message: str) -> AfterValidator:
    """Return a validator that raises ValueError with this message for a text that is wrong."""

    def check(text: str) -> str:
        if is_wrong(text):
            raise ValueError(message)
        return text

    return AfterValidator(check)


def _matching(pattern: str, description: str) -> AfterValidator:
    """Return a validator that raises ValueError for a text that does not match a pattern.

    `description` is what the text must be.
    """
    return _refused(lambda text: not re.fullmatch(pattern, text), f"must be {description}")


def _option(text: str) -> str:
    """Return an option of sbatch; raise ValueError if it must not be written in `slurm.extra`."""
    option = _OPTION.fullmatch(text)
    if option is None:
        raise ValueError("must be one option of sbatch in its long form, such as --constraint=a100")
    name = option["name"]
    if name in RESERVED_OPTIONS:
        key = RESERVED_OPTIONS[name]
        advice = f"write it as `{key}`" if key else "eval-factory sets it itself"
        raise ValueError(f"--{name} is not allowed here: {advice}")
    if len(_shell_words(text)) != 1:  # sbatch interprets quotes as a shell does.
        raise ValueError(
            "has a space: give each option an entry of its own, and a value with spaces quotes: "
            '--x="a b"'
        )
    return text


def _shell_words(text: str) -> list[str]:
    """Return the words of a command, split as a shell does; raise ValueError for an open quote."""
    try:
        return shlex.split(text)
    except ValueError:
        raise ValueError("has a quote that does not end") from None


def _command_words(text: str) -> str:
    """Return a command; raise ValueError if it needs a shell or holds an API key."""
    words = _shell_words(text)
    # An API key may also be a part of a word, as in `--api-key=...`.
    parts = chain.from_iterable(re.split(r"[=:,]", word) for word in words)
    if any(map(looks_like_key, parts)):
        raise ValueError(
            "holds what looks like a key (it is not shown); "
            "name its variable in `env`, and have the server read it"
        )
    shell_signs = sorted(_SHELL_SIGNS.intersection(words))
    if shell_signs:
        raise ValueError(
            f"is started without a shell, which {shell_signs[0]} needs; write a script and "
            "name the script"
        )
    return text


def _variable(text: str) -> str:
    """Return an entry NAME or NAME=value of `env`; raise ValueError if the value is a secret."""
    name, equals, value = text.partition("=")
    if equals and names_a_secret(name):
        raise ValueError(
            f"has a value for {name}, which is the name of a secret; write the NAME alone"
        )
    if looks_like_key(value):
        raise ValueError(
            "has what looks like a key as its value (it is not shown); write the NAME alone"
        )
    return f"{_variable_name_adapter.validate_python(name)}{equals}{value}"


def _folder_name(text: str) -> str:
    if not NAME.match(text):
        raise ValueError(
            f"names a folder: letters, digits, '.', '_' and '-', {_MAX_NAME_LENGTH} at most, "
            f"the first one a letter, a digit or '_'; got {text[:_MAX_NAME_LENGTH]!r}"
        )
    return text


def _target_name(text: str) -> str:
    if text.lower().startswith(SUITE_FILE_PREFIX):
        raise ValueError(
            f"must not begin with {SUITE_FILE_PREFIX!r}, as the suite's own files do; got {text!r}"
        )
    return text


_variable_name_adapter: TypeAdapter[str] = TypeAdapter(VariableName)
_KEY_AS_NAME = "looks like a key (it is not shown), and {reason}; choose another name"
Name = Annotated[
    OneLineText, _refused(looks_like_key, _KEY_AS_NAME.format(reason="would be written into files"))
]
"""A name that the user chooses."""
FolderName = Annotated[
    OneLineText,
    _refused(looks_like_key, _KEY_AS_NAME.format(reason="names a folder")),
    AfterValidator(_folder_name),
    editor_pattern(rf"^{_FOLDER}$"),
]
TargetName = Annotated[
    FolderName, AfterValidator(_target_name), editor_pattern(rf"^(?!{SUITE_FILE_PREFIX}){_FOLDER}$")
]
# The words are separated by blanks, `=` and quotes: `--comment="TOKEN=..."` has three words.
_without_key = _refused(
    lambda text: any(map(looks_like_key, re.split(r"[\s=\"']+", text))),
    "holds what looks like a key (it is not shown); others can read a batch script: leave it out",
)
ScriptLine = Annotated[OneLineText, _without_key]  # a part of a batch script


def _number_as_text(value: Any) -> Any:
    """Return a number as a text; other values are returned unchanged.

    `mem: 500` and `time: 60` are passed to Slurm as 500 and 60, in Slurm's own units.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number:
        return str(value)
    return value


_Word = Annotated[  # `4:00:00`, `a100:2` or `user@project`, but no `--option`
    OneLineText,
    _matching(
        r"[A-Za-z0-9_.,:@+][A-Za-z0-9_.,:@+-]*",
        "one word that Slurm accepts, of letters, digits and _.,:@+-",
    ),
    _without_key,
]
CommandWords = Annotated[OneLineText, AfterValidator(_command_words)]
Health = Annotated[
    OneLineText,
    _matching(
        rf"{_PATH}|http://(127\.0\.0\.1|localhost):\{{port\}}(/[^\s]*)?",
        f"a path, such as /health, or a URL such as http://127.0.0.1:{PORT_PLACEHOLDER}/health",
    ),
]
BasePath = Annotated[
    OneLineText,
    _matching(_PATH, "a path, such as /v1"),
    AfterValidator(lambda text: text.rstrip("/")),
]
UpToAWeek = Annotated[Number, Field(gt=0.0, le=7 * 24 * 3600.0)]  # in seconds
UpToAYear = Annotated[Number, Field(gt=0.0, le=366 * 24 * 3600.0)]  # in seconds
_Tree = dict[str, Any]


class SlurmSection(StrictModel):
    """The section `slurm` of the suite or of a target. The target's keys are the stronger ones."""

    account: _Word | None = None
    partition: _Word | None = None
    qos: _Word | None = None
    time: Annotated[_Word, BeforeValidator(_number_as_text)] | None = None
    cpus: Annotated[PositiveInteger, Field(le=4096)] | None = None
    mem: Annotated[_Word, BeforeValidator(_number_as_text)] | None = None
    gpus: _Word | None = None
    extra: list[Annotated[ScriptLine, AfterValidator(_option)]] | None = None
    prologue: list[ScriptLine] | None = None
    container: ScriptLine | None = None
    python: ScriptLine | None = None
    tasks_at_once: Annotated[PositiveInteger, Field(le=10_000)] | None = None


class ServeSection(StrictModel):
    """The section `serve` of a target: a server that the suite starts."""

    command: CommandWords | None = None
    replicas: Annotated[int, Field(strict=True, ge=1, le=64)] | None = None
    machine_options: CommandWords | None = None
    health: Health | None = None
    base_path: BasePath | None = None
    start_time_limit_s: UpToAWeek | None = None
    hang_time_limit_s: UpToAWeek | None = None
    stop_grace_s: UpToAWeek | None = None
    max_restarts: Annotated[int, Field(strict=True, ge=0, le=100)] | None = None
    env: list[Annotated[OneLineText, AfterValidator(_variable)]] | None = None


class Selection(StrictModel):
    """The section `select` of an evaluation, which selects tasks of framework.yml.

    'eval-factory ls --json' shows the access and the tags of each task.
    """

    access: Literal["public", "gated", "private"] | None = None
    tags: list[OneLineText] = []
    not_tags: list[OneLineText] = []
    without: list[OneLineText] = []


class EvaluationEntry(StrictModel):
    """An entry of `evaluations`: one task, or a selection of tasks."""

    type: OneLineText | None = None
    select: Selection | None = None
    name: FolderName | None = None
    params: _Tree | None = None

    @model_validator(mode="after")
    def _check_select(self) -> EvaluationEntry:
        if self.select is not None and (self.type is not None or self.name is not None):
            raise ValueError("`select` selects many tasks: leave out `type` and `name`")
        if self.select is None and self.type is None and self.name is None:
            raise ValueError("needs `type`, the task ('eval-factory ls' lists them)")
        return self


class TargetEntry(StrictModel):
    """An entry of `targets`: a model."""

    name: TargetName
    api_endpoint: _Tree | None = None
    params: _Tree | None = None
    limit_group: Name | None = None
    slurm: SlurmSection | None = None
    serve: ServeSection | None = None


class VariantEntry(StrictModel):
    """An entry of `variants`: parameters with which every evaluation is run."""

    name: FolderName
    params: _Tree | None = None


class CellPattern(StrictModel):
    """An entry of `include` or `exclude`, which selects the cells that match all its keys.

    In the value of a key, `*`, `?` and `[...]` match characters.
    """

    evaluation: Name | None = None
    target: Name | None = None
    variant: Name | None = None

    @model_validator(mode="after")
    def _check_not_empty(self) -> CellPattern:
        if self.evaluation is None and self.target is None and self.variant is None:
            raise ValueError("needs `evaluation`, `target` or `variant`")
        return self


class ReusedEntry(StrictModel):
    """An entry of `reuse`: a finished result that the suite's table shows like one of its runs."""

    target: TargetName
    evaluation: FolderName
    folder: PathText


# The name of a task is a short form of an entry with this `type`.
_TextAsTask = BeforeValidator(lambda value: {"type": value} if isinstance(value, str) else value)


class SuiteSection(StrictModel):
    """The section `suite` of one layer.

    All keys are optional, because another layer may have them.
    """

    output_dir: PathText | None = None
    preset: OneLineText | None = None
    extends: PathText | None = None
    params: _Tree | None = None
    evaluations: list[Annotated[EvaluationEntry, _TextAsTask]] | None = None
    targets: list[TargetEntry] | None = None
    variants: list[VariantEntry] | None = None
    include: list[CellPattern] | None = None
    exclude: list[CellPattern] | None = None
    reuse: list[ReusedEntry] | None = None
    judges: list[Any] | None = None
    prices: list[Any] | None = None
    executor: ExecutorName | None = None
    slurm: SlurmSection | None = None
    max_processes: Annotated[PositiveInteger, Field(le=256)] | None = None
    max_attempts: Annotated[PositiveInteger, Field(le=100)] | None = None
    max_outage_s: UpToAYear | None = None
    max_cost: Annotated[Number, Field(gt=0.0)] | None = None
    max_requests: PositiveInteger | None = None
    max_tokens_total: Annotated[int, Field(strict=True, ge=1, le=10**12)] | None = None
    max_wall_s: UpToAYear | None = None


def problems_of_serve(
    target: Mapping[str, Any], path: str, env: Mapping[str, str]
) -> Iterator[str]:
    """Yield the problems of a target whose server the suite starts, after all files are merged.

    Args:
        target: the target's entry.
        path: the target's description at the beginning of each message.
        env: the environment variables.
    """
    serve = target["serve"]
    if serve.get("command") is None:
        yield (
            f"{path} has no serve.command, which starts its server: "
            f"vllm serve my/model --port {PORT_PLACEHOLDER}"
        )
    elif PORT_PLACEHOLDER not in f"{serve['command']} {serve.get('machine_options') or ''}":
        yield (
            f"{path}: serve.command does not name the port: write {PORT_PLACEHOLDER}, which "
            "eval-factory replaces by a free port"
        )
    redactor = Redactor.from_environment(env, filter(names_a_secret, env))
    if redactor.redact_tree(serve, known_only=True) != serve:
        yield (
            f"{path}: `serve` holds the value of a variable that is a secret (it is not shown), "
            "and everybody on the"
            " machine can read a command; name the variable in serve.env, "
            "and have the server read it"
        )
    if (target.get("api_endpoint") or {}).get("url") is not None:
        yield (
            f"{path} has both `serve` and api_endpoint.url; leave the URL out: "
            "the server's own is used"
        )


def served_target(target: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target with the URL of its server; a target without `serve` is not changed.

    The URL (`served://...`) is made from the command, because the server has no port yet.
    """
    if not target.get("serve"):
        return dict(target)
    serve = with_defaults(defaults, target["serve"])
    # The user's server gets no API key by default, unlike other endpoints.
    endpoint = {"api_key": None, **(target.get("api_endpoint") or {})}
    endpoint["url"] = served_url(serve["command"], serve["base_path"].rstrip("/"))
    return {**target, "api_endpoint": endpoint}


def command_words(serve: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of the server's command, with `{port}` and `{replica}` not yet replaced."""
    return tuple(shlex.split(_command(serve)))


def health_url(serve: Mapping[str, Any]) -> str:
    """Return the URL that shows whether a server is ready, in which `{port}` is not replaced."""
    health = str(serve["health"])
    if health.startswith("http"):
        return health
    return f"http://127.0.0.1:{PORT_PLACEHOLDER}{health}"


def inherited_variables(serve: Mapping[str, Any]) -> list[str]:
    """Return the names of the variables that a server inherits from the user's environment."""
    return [entry for entry in serve["env"] if "=" not in entry]


def stated_variables(serve: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that a server gets with the values that `serve` states."""
    return dict(entry.split("=", 1) for entry in serve["env"] if "=" in entry)


def _command(serve: Mapping[str, Any]) -> str:
    """Return the command of a server together with its `machine_options`."""
    return " ".join(part for part in (serve["command"], serve["machine_options"]) if part)


def server_lines(served: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines by which a dry run shows the servers.

    `served` is a dict from the name of a target to its section `serve` with all defaults.
    """
    if served:
        yield "\n# servers; each is started for all cells of its target, and ended after them"
    for target, serve in served.items():
        replicas = ""
        if serve["replicas"] != 1:
            replicas = f"{serve['replicas']} servers, {REPLICA_PLACEHOLDER}: its number; "
        port = f"{PORT_PLACEHOLDER}: a free port"
        state = f"({replicas}{port}; ready when {serve['health']} answers with 200)"
        yield f"#   {target}: {_command(serve)}  {state}"
