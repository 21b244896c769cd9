"""What the user asked for, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eval_factory.config.model import Line, Parallelism, Positive, Url, VariableName
from eval_factory.errors import ConfigError


class LeaderboardRequest(BaseModel):
    """The flags of `leaderboard run`; what is None is the leaderboard's or the framework's default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Line
    model: Line
    model_url: Url
    model_type: Literal["chat", "completions"] | None = None
    api_key_name: VariableName | None = None
    conf: Path | None = None
    data_dir: Path | None = None
    output_dir: Line | None = None
    max_eval_instances: Positive | None = None
    parallelism: Parallelism | None = None
    min_coverage: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    reasoning: bool = False
    anyway: bool = False
    dry_run: bool = False
    no_preflight: bool = False
    debug: bool = False


def checked(flags: Mapping[str, Any]) -> LeaderboardRequest:
    """Raises ConfigError with all that is wrong; a value that may be a key is never shown."""
    try:
        return LeaderboardRequest.model_validate(flags)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        problems = [f"--{detail['loc'][0]}: {detail['msg'].removeprefix('Value error, ')}" for detail in found]
        raise ConfigError(problems) from None
