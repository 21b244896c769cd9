"""What the folders of a suite are called: of an evaluation that has no name of its own, and of its variants."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from eval_factory.tasks.framework import Framework

DEFAULT_VARIANT = "default"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LENGTH = 60


def name_of_type(task_type: str, framework: Framework) -> str:
    """`pubmed_qa` of `helm.pubmed_qa`, `helm-mmlu-subject-anatomy` of `helm:mmlu:subject=anatomy`."""
    slug = _UNSAFE.sub("-", task_type.removeprefix(f"{framework.framework.name}.")).strip("-.")
    if 0 < len(slug) <= _LENGTH:
        return slug
    return f"{slug[:_LENGTH]}-{hashlib.sha256(task_type.encode()).hexdigest()[:8]}".strip("-.")


def name_with_variant(evaluation: str, variant: Mapping[str, Any]) -> str:
    """The name of the evaluation's cells."""
    plain = variant["name"] == DEFAULT_VARIANT or not variant.get("params")
    return evaluation if plain else f"{evaluation}_{variant['name']}"
