"""The shape of a target's `serve`: the server that is started for its cells. The defaults stand in framework.yml."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from eval_factory.config.field_docstrings import describe_fields
from eval_factory.config.model import Line, Number, VariableName
from eval_factory.core.secrets import Redactor, looks_like_key, names_a_secret
from eval_factory.core.strict_model import StrictModel
from eval_factory.core.urls import PORT, REPLICA, served_url

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
Seconds = Annotated[Number, Field(gt=0.0, le=7 * 24 * 3600.0)]


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
    start_time_limit_s: Seconds | None = None
    """Seconds within which the server has to be ready; to load a large model takes long."""
    hang_time_limit_s: Seconds | None = None
    """Seconds without an answer of `health` after which the server is ended and started again."""
    stop_grace_s: Seconds | None = None
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
