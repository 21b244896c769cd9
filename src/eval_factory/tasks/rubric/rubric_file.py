"""Files of rubric cases, JSON lines: our own form and HealthBench's, checked with line and field.

Messages name the field and never quote what it holds: it may be a patient's. Of published data only that is refused
without which no score can be computed; in a file of the user's own whatever looks like a slip, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from eval_factory.tasks.file_problems import not_utf8, other_kind, shortened
from eval_factory.tasks.message_fields import (
    message_problems,
    name_problems,
    object_in,
    text_problems,
    unknown_fields,
)
from eval_factory.tasks.rubric.rubric_case import Criterion, RubricCase, positive_points

Form = Literal["rubric", "healthbench"]
OWN: Form = "rubric"
HEALTHBENCH: Form = "healthbench"

_ID = {OWN: "id", HEALTHBENCH: "prompt_id"}
_MESSAGES = {OWN: "messages", HEALTHBENCH: "prompt"}
_TAGS = {OWN: "tags", HEALTHBENCH: "example_tags"}
_CRITERION_KEYS = ("criterion", "points", "tags")
LARGEST_POINTS = 1_000_000
LONGEST_ID, LONGEST_TAG = 200, 200


@dataclass
class RubricFile:
    """The cases of a file, and what is wrong with it: each problem with its line."""

    cases: list[RubricCase] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def has_clusters(self) -> bool:
        return any(case.cluster is not None for case in self.cases)


def read_rubric_file(path: Path, form: Form) -> RubricFile:
    """All cases, and every mistake: `line 3: rubrics.0.points: ...`. Empty lines are no cases.

    Raises:
        OSError: it cannot be read.
    """
    found = RubricFile()
    kind = other_kind(path)
    if kind is not None:
        found.problems.append(kind)
        return found
    first: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    _add_line(found, line, number, form, first)
    except UnicodeDecodeError:
        found.problems += [problem.removeprefix(f"{path}: ") for problem in not_utf8(path).problems]
        return found
    if not found.cases and not found.problems:
        found.problems.append("has no cases; each line is a JSON object")
    clusters = sum(case.cluster is not None for case in found.cases)
    if 0 < clusters < len(found.cases):
        without = next(case for case in found.cases if case.cluster is None)
        found.problems.append(
            f"line {first[without.id]}: cluster: is missing, and {clusters} other cases have one; a case that shares"
            " nothing gets a name of its own"
        )
    return found


def faults_of(path: Path, form: Form) -> list[str]:
    """The first mistakes, and how many more there are."""
    problems = read_rubric_file(path, form).problems
    return shortened(problems)


def _add_line(found: RubricFile, line: str, number: int, form: Form, first: dict[str, int]) -> None:
    where = f"line {number}"
    row = object_in(line, _ID[form])
    if isinstance(row, str):
        found.problems.append(f"{where}: {row}")
        return
    problems = list(_problems_of(row, form))
    name = row.get(_ID[form])
    if isinstance(name, str) and name in first:
        problems.append(f"{_ID[form]}: is the same as in line {first[name]}; it names the case in the results")
    elif isinstance(name, str):
        first[name] = number
    found.problems += [f"{where}: {problem}" for problem in problems]
    if not problems:
        found.cases.append(_case(row, form))


def _case(row: Mapping[str, Any], form: Form) -> RubricCase:
    criteria = tuple(Criterion(one["criterion"], one["points"], tuple(one.get("tags") or ())) for one in row["rubrics"])
    messages = tuple({"role": one["role"], "content": one["content"]} for one in row[_MESSAGES[form]])
    own = form == OWN
    canary = row.get("canary")
    return RubricCase(
        row[_ID[form]],
        messages,
        criteria,
        reference=row.get("reference") if own else None,
        cluster=row.get("cluster") if own else None,
        tags=tuple(row.get(_TAGS[form]) or ()),
        canary=canary if isinstance(canary, str) else None,
    )


def _problems_of(row: Mapping[str, Any], form: Form) -> Iterator[str]:
    yield from name_problems(_ID[form], row.get(_ID[form]), LONGEST_ID)
    yield from message_problems(_MESSAGES[form], row.get(_MESSAGES[form]), own=form == OWN)
    yield from _rubric_problems(row.get("rubrics"), own=form == OWN)
    yield from _tag_problems(_TAGS[form], row.get(_TAGS[form]))
    if form == OWN:
        yield from unknown_fields(row, ("id", "messages", "rubrics", "reference", "cluster", "tags", "canary"))
        if row.get("reference") is not None:
            yield from text_problems("reference", row["reference"])
        if row.get("cluster") is not None:
            yield from name_problems("cluster", row["cluster"], LONGEST_ID)


def _rubric_problems(value: Any, *, own: bool) -> Iterator[str]:
    if not isinstance(value, list) or not value:
        yield 'rubrics: must be a list of criteria such as [{"criterion": "...", "points": 5, "tags": []}]'
        return
    whole = True
    for number, one in enumerate(value):
        where = f"rubrics.{number}"
        problems = list(_criterion_problems(where, one, own=own))
        whole = whole and not problems
        yield from problems
    if whole and positive_points(Criterion("", one["points"]) for one in value) <= 0:
        yield "rubrics: no criterion has positive points, so no score can be computed"


def _criterion_problems(where: str, one: Any, *, own: bool) -> Iterator[str]:
    if not isinstance(one, dict):
        yield f"{where}: must be an object with criterion and points"
        return
    yield from text_problems(f"{where}.criterion", one.get("criterion"))
    points = one.get("points")
    if points is None:
        yield f"{where}.points: is missing"
    elif isinstance(points, bool) or not isinstance(points, (int, float)):
        yield f"{where}.points: must be a number; negative points are for what an answer should not do"
    elif abs(points) > LARGEST_POINTS or (own and points == 0):
        yield f"{where}.points: must not be 0, nor beyond {LARGEST_POINTS}"
    yield from _tag_problems(f"{where}.tags", one.get("tags"))
    if own:
        yield from unknown_fields(one, _CRITERION_KEYS, f"{where}.")


def _tag_problems(where: str, value: Any) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, list):
        yield f'{where}: must be a list of texts such as ["axis:accuracy"]'
        return
    for number, tag in enumerate(value):
        yield from name_problems(f"{where}.{number}", tag, LONGEST_TAG)
