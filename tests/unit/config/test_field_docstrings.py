"""Descriptions of fields, from the source."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from eval_factory.config.model import describe_fields, docstrings_of


class _Inner(BaseModel):
    """Has a text of its own, which is no field's."""

    model_config = ConfigDict(json_schema_extra=describe_fields)

    first: int = 1
    """The first.

    In two parts.
    """
    bare: str
    second: str | None = None
    """The second."""

    def method(self) -> str:
        """Of no field."""
        return self.bare


class _Outer(BaseModel):
    model_config = ConfigDict(json_schema_extra=describe_fields)

    inner: _Inner
    """What is inside."""


def test_a_text_belongs_to_the_field_above_it() -> None:
    assert docstrings_of(_Inner) == {"first": "The first.\n\nIn two parts.", "second": "The second."}


def test_the_schema_of_a_model_has_them_at_every_level() -> None:
    schema = _Outer.model_json_schema()
    assert schema["properties"]["inner"]["description"] == "What is inside."
    inner = schema["$defs"]["_Inner"]["properties"]
    assert {name: told.get("description") for name, told in inner.items()} == {
        "first": "The first.\n\nIn two parts.",
        "bare": None,
        "second": "The second.",
    }


def test_the_module_is_not_parsed_before_a_schema_is_made() -> None:
    assert all(field.description is None for field in _Inner.model_fields.values())
