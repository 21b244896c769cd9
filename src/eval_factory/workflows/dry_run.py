"""What --dry_run shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from eval_factory.config.evaluation import Evaluation
from eval_factory.config.merge import Source
from eval_factory.report.documents import to_yaml


def preview(evaluation: Evaluation, argv: Sequence[str]) -> str:
    """The rendered configuration, the source of each value that is not a default, what is noted, the command."""
    lines = ["# rendered configuration"]
    lines.append(to_yaml(evaluation.as_dict()).rstrip())
    lines.append("\n# values that are not defaults")
    shown = {
        path: source for path, source in evaluation.sources.items() if source not in (Source.FRAMEWORK, Source.TASK)
    }
    values = evaluation.as_dict()
    width = max((len(path) for path in shown), default=0)
    for path, source in sorted(shown.items()):
        lines.append(f"#   {path:<{width}}  {source.value}: {_value_at(values, path)}")
    if evaluation.task.about.notes:
        lines.append("\n# notes")
        lines += [f"#   {note}" for note in evaluation.task.about.notes]
    lines.append("\n# command")
    lines.append(shlex.join(argv))
    return "\n".join(lines) + "\n"


def _value_at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
