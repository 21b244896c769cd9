"""What a program gives in place of a command line, in the shape that the configuration takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from eval_factory.config.evaluation import Request
from eval_factory.config.given_mapping import plain_document

_Given = TypeVar("_Given")


def request_of(
    run_config: Path | str | Mapping[str, Any] | None,
    output_dir: Path | str | None,
    flags: Mapping[str, Any] | None,
    overrides: Iterable[str],
) -> Request:
    """Arguments as of `eval_factory.evaluate`.

    Raises:
        ConfigError: a flag is a value that no file could hold.
    """
    given = plain_document(flags or {})
    if output_dir is not None:
        given["config.output_dir"] = os.fspath(output_dir)
    texts = several(overrides)
    if isinstance(run_config, Mapping):
        return Request(document=run_config, flags=given, overrides=texts)
    return Request(run_config=None if run_config is None else Path(run_config), flags=given, overrides=texts)


def several(given: Iterable[_Given]) -> tuple[_Given, ...]:
    """One text or path alone is a list of one, and not of its letters."""
    if isinstance(given, (str, Path)):
        alone: Any = given
        return (alone,)
    return tuple(given)
