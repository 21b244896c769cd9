"""The JSON Schemas that other programs and editors ask for, by name; docs/schemas has the same as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from eval_factory.analysis.gate_policy import gate_policy_schema
from eval_factory.config.json_schema import run_config_schema, suite_schema
from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.report import documents
from eval_factory.tasks.framework import load_framework

SCHEMAS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "run_config": lambda: run_config_schema(load_framework()),
    "evaluation_config": lambda: documents.schema(documents.EVALUATION_CONFIG_SCHEMA),
    "results": lambda: documents.schema(documents.RESULTS_SCHEMA),
    "suite_results": lambda: documents.schema(documents.SUITE_RESULTS_SCHEMA),
    "gate_policy": gate_policy_schema,
    "suite": lambda: suite_schema(load_framework()),
}
"""Name -> what makes it. docs/schemas has a file of each, which scripts/make_schemas.py writes."""


def schema_text(name: str) -> str:
    """
    Raises:
        ConfigError: there is no schema of that name.
    """
    make = SCHEMAS.get(name)
    if make is None:
        hint = did_you_mean(name, list(SCHEMAS)) or f"; there are {', '.join(SCHEMAS)}"
        raise ConfigError(f"there is no schema {name!r}{hint}")
    return json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
