"""The fields of an instance, HELM's or a stored one, by which scores are shown apart and a sample is drawn."""

from __future__ import annotations

from typing import Any

from eval_factory.tasks.rubric_case import ANSWER, SAMPLE

MAX_CATEGORY = 80
MAX_GROUPS = 60
SUB_SPLIT = "sub_split"


def categories_of(instance: Any) -> dict[str, Any]:
    """Short texts and numbers that a scenario keeps beside an instance."""
    return {
        name: value
        for name, value in (instance.extra_data or {}).items()
        if name not in (ANSWER, SAMPLE)
        and (isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= MAX_CATEGORY))
    }


def groups_of(instance: Any, source: str | None = None) -> dict[str, str]:
    """Field -> the instance's value, of those that may sort instances into groups; `source` names another's origin."""
    fields = {name: value for name, value in categories_of(instance).items() if isinstance(value, str)}
    if instance.sub_split:
        fields[SUB_SPLIT] = instance.sub_split
    fields.pop(source or "", None)
    return fields


def are_few(values: int, instances: int) -> bool:
    """Whether a field with so many values sorts so many instances into groups."""
    return 2 <= values <= min(MAX_GROUPS, instances // 2)
