"""`framework.yml`, checked: where it is not as it came with the program, and to make `framework_checked.json` of it."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from pydantic import TypeAdapter

from eval_factory.core.plain_yaml import parse_own
from eval_factory.tasks.framework import Framework


def read(text: str) -> Framework:
    """
    Raises:
        YamlSyntaxError: it is no YAML.
        ValueError: it says something that nobody knows, or not what is needed (pydantic's error, with the place).
    """
    framework = _adapter().validate_python(parse_own(text))
    for task in framework.evaluations:
        if task.helm.cluster is not None:
            task.helm.cluster.check()
    return framework


def checked_copy(content: bytes) -> str:
    """What `framework_checked.json` holds of a file: what is no default, for `framework_of`."""
    framework = read(content.decode("utf-8"))
    plain: Any = _adapter().dump_python(framework, mode="json", exclude_defaults=True)
    document = {"sha256": sha256(content).hexdigest(), "framework": plain}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _adapter() -> TypeAdapter[Framework]:
    return TypeAdapter(Framework)
