"""Defines the base classes of pydantic models for files, and makes JSON Schemas of such models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A base class for immutable records, which reject unknown keys.

    A model of another program's file sets `extra="ignore"` in its class line, so that unknown keys
    are ignored.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class DescribedModel(StrictModel):
    """A base class whose JSON Schema has the docstrings of fields as their descriptions."""

    model_config = ConfigDict(use_attribute_docstrings=True)


KEYWORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""pydantic's own name of a limit -> JSON Schema's name of the limit. pydantic's schema has its own
name if a validator follows the limit in a field's annotation.
"""


def plain_schema(model: type[BaseModel], about: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of a model, without references, so that editors can use it.

    Args:
        model: the model.
        about: the title and the description of the schema.
    """
    schema = model.model_json_schema()
    plain: dict[str, Any] = _plain(schema, schema["$defs"])
    first = {"$schema": "http://json-schema.org/draft-07/schema#", **about}
    # The keys of `first` come first, and their values replace the values in `plain`.
    return first | plain | first


def _plain(schema: Any, models: Mapping[str, Any]) -> Any:
    """Return a schema with each reference replaced by the schema that it refers to.

    Each description is put on one line. Titles and null defaults are removed, which pydantic adds:
    no field of eval-factory has the name `title` or `default`.

    Args:
        schema: the schema, or a part of it.
        models: name of a model -> its schema (`$defs`).
    """
    if isinstance(schema, str):
        return " ".join(schema.split("\n"))
    if isinstance(schema, list):
        return [_plain(option, models) for option in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = {**models[schema["$ref"].rpartition("/")[2]], **schema}
    removed_keys = {"$ref", "$defs", "title"}
    if schema.get("default") is None:
        removed_keys.add("default")
    return {
        KEYWORDS.get(key, key): _plain(value, models)
        for key, value in schema.items()
        if key not in removed_keys
    }
