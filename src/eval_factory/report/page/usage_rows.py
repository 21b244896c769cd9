"""What a result cost, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from eval_factory.core.results import Usage


def usage_rows(usage: Usage) -> Iterator[tuple[str, dict[str, Any]]]:
    """This run and all runs, each in all and, where others than the model were asked, by role."""
    for label, spent in (("this run", usage.this_run), ("all runs", usage.all_runs)):
        yield label, asdict(spent.total)
        if len(spent.roles) > 1:
            yield from ((f"{label}, {role}", asdict(one)) for role, one in spent.roles.items())
