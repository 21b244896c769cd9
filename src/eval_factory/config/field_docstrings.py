"""What stands under a model's fields, as their descriptions in a JSON Schema: read from the source when one is made.

pydantic's `use_attribute_docstrings` parses the source whenever the module is imported, which took a tenth of a dry run
of a suite.
"""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent
from typing import Any

from pydantic import BaseModel


def docstrings_of(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the text under it, of those that have one."""
    (definition,) = ast.parse(dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - the source of a class
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def describe_fields(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Put them into the schema of a model: for `json_schema_extra` of its configuration."""
    for name, text in docstrings_of(model).items():
        schema["properties"][name]["description"] = text
