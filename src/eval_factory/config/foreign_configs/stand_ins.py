"""The check of what is written by our own loader, which wants values where `${NAME}` stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.config.model import Params
from eval_factory.config.suite import build_suite
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import Framework, Task

_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w*\}")
"""One without a default: with one, the loader takes the default."""
_NUMBERS = frozenset({*Params.model_fields, "num_output_tokens", "max_length", "num_train_trials"})
_SAMPLES: Mapping[str, Any] = {"url": "http://127.0.0.1/v1", "type": "chat", "use_nvcf": False}


def check(document: Mapping[str, Any], task: Task, framework: Framework, path: Path) -> None:
    """Load a run config as a run would, whatever its variables hold.

    Raises:
        ConfigError: with everything that is wrong with it.
    """
    with _told_of(path):
        build_evaluation(Request(document=with_stand_ins(document, task)), framework, {})


def check_suite(document: Mapping[str, Any], path: Path) -> None:
    """The same of a suite, whose runs were checked already."""
    with _told_of(path):
        build_suite(None, document=with_stand_ins(document, None), env={})


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        told = [f"  {problem}" for problem in error.problems]
        raise ConfigError([f"{path}: cannot be run here as it is; change it there, and try again:", *told]) from None


def with_stand_ins(tree: Any, task: Task | None, name: str = "") -> Any:
    """The tree with a value in the place of each variable: one that is valid where it stands."""
    if isinstance(tree, Mapping):
        return {key: with_stand_ins(value, task, str(key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [with_stand_ins(value, task, name) for value in tree]
    if not isinstance(tree, str):
        return tree
    if _VARIABLE.fullmatch(tree):
        return _sample(name, task)
    return _VARIABLE.sub("x", tree)


def _sample(name: str, task: Task | None) -> Any:
    if name in _NUMBERS:
        return 1
    rule = task.helm.parameters.get(name) if task is not None else None
    allowed = rule.allowed if rule is not None else None
    return allowed[0] if allowed else _SAMPLES.get(name, "STANDIN")
