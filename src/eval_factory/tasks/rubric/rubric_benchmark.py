"""`kind: rubric` in a benchmark's YAML: a file of cases with criteria takes the place of prompt and table."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from eval_factory.core.errors import ConfigError, did_you_mean, expectation
from eval_factory.core.rundir import sha256_of
from eval_factory.core.strict_model import StrictModel
from eval_factory.tasks.custom.definition import NAME, Benchmark
from eval_factory.tasks.file_problems import shortened, unreadable
from eval_factory.tasks.rubric.rubric_case import RUBRIC_METRIC
from eval_factory.tasks.rubric.rubric_file import OWN, RubricFile, read_rubric_file

RUBRIC = "rubric"

_Text = Annotated[str, StringConstraints(strict=True, min_length=1)]


class _File(StrictModel):
    kind: Literal["rubric"]
    name: Annotated[_Text, Field(pattern=re.compile(rf"\A{NAME.pattern}"))]
    description: _Text
    dataset_file: _Text
    max_tokens: Annotated[int, Field(strict=True, ge=1)] | None = None


def load_rubric_benchmark(path: Path, document: Mapping[str, Any]) -> Benchmark:
    """The benchmark that a YAML file with `kind: rubric` tells of.

    Raises:
        ConfigError: with every mistake that was found in it and in the file of cases.
    """
    problems: list[str] = []
    shape = None
    try:
        shape = _File.model_validate(document)
    except ValidationError as error:
        problems += [_explained(path, detail) for detail in error.errors(include_url=False)]
    name = document.get("dataset_file")
    read, file = RubricFile(), path
    if isinstance(name, str) and name:
        file = Path(os.path.abspath(path.parent / os.path.expanduser(name)))
        try:
            read = read_rubric_file(file, OWN)
        except OSError as error:
            problems += unreadable(file, error, "dataset_file", path).problems
    problems += [f"{file}: {problem}" for problem in shortened(read.problems)]
    if problems or shape is None:
        raise ConfigError(problems)
    return Benchmark(
        path=path,
        name=shape.name,
        description=shape.description,
        prompt_file=file,
        dataset_file=file,
        max_tokens=shape.max_tokens,
        metrics=(RUBRIC_METRIC,),
        judge_prompt_file=None,
        instances=len(read.cases),
        sha256={Path(os.path.relpath(one, path.parent)).as_posix(): sha256_of(one) for one in (path, file)},
        notes=(),
        has_clusters=read.has_clusters,
        is_rubric=True,
    )


def _explained(path: Path, detail: Any) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        known = sorted(_File.model_fields)
        hint = did_you_mean(where, known) or f"; a benchmark of kind rubric has {', '.join(known)}"
        return f"{path}: unknown key {where}{hint}"
    if detail["type"] == "missing":
        return f"{path}: {where}: is missing"
    if detail["type"] == "string_too_short":
        return f"{path}: {where}: must not be empty"
    if detail["type"] == "string_pattern_mismatch":
        return f"{path}: {where}: must be letters, digits, - _ and . (it names folders), at most 80"
    return f"{path}: {where}: {expectation(detail)}"
