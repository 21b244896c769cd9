"""The page of the fields of evaluation_config.yaml, read from the schema that results are
checked with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scripts.reference.page_text import page

from eval_factory.report import documents

INTRODUCTION = """\
Fields of `evaluation_config.yaml`, which [Reading a result](../results.md) explains. `*` stands for
a name (of a task, a metric, a judge), `[]` for the elements of a list. A field with a `?` may be
absent. Fields whose names say all are left out: `eval-factory schema evaluation_config` has every
one. Fields of the same kind are described once: `as` names where."""

BELOW = ("", "object")
"""Kinds of fields that hold others: the names below them say so."""
Schema = Mapping[str, Any]


def schema_page() -> str:
    """docs/reference/result.md."""
    schema = documents.read_schema(documents.EVALUATION_CONFIG_SCHEMA)
    rows = list(_rows(schema, "", schema["$defs"], {}))
    lines = [INTRODUCTION, ""]
    lines += [
        f"- `{field}`{f' {kind}' if kind not in BELOW else ''}{f': {about}' if about else ''}"
        for field, kind, about in rows
    ]
    return page("Fields of a result", lines)


def _rows(
    schema: Schema, path: str, known: Schema, shown: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the fields below a path; `shown` has the first field of each definition, where alone
    the definition is described.
    """
    required = schema.get("required", ())
    children = [
        (name, field, name in required) for name, field in schema.get("properties", {}).items()
    ]
    if isinstance(schema.get("additionalProperties"), Mapping) and schema["additionalProperties"]:
        children.append(("*", schema["additionalProperties"], False))
    for name, field, always in children:
        yield from _field(field, f"{path}.{name}" if path else name, known, shown, always=always)
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _below(items, f"{path}[]", known, shown)


def _field(
    field: Schema, where: str, known: Schema, shown: dict[str, str], *, always: bool
) -> Iterator[tuple[str, str, str]]:
    whole, name = _resolved(field, known)
    about = field.get("description") or whole.get("description", "")
    if name in shown and _has_rows(whole, known):
        about = f"{field.get('description', '')} As `{shown[name]}`.".strip()
    kind = _kind(whole)
    if about or kind.startswith("`"):
        yield where if always else f"{where}?", kind, about
    yield from _below(field, where, known, shown)


def _has_rows(schema: Schema, known: Schema) -> bool:
    return next(_rows(schema, "", known, {}), None) is not None


def _below(
    field: Schema, where: str, known: Schema, shown: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    whole, name = _resolved(field, known)
    if name not in shown:
        if name:
            shown[name] = where
        yield from _rows(whole, where, known, shown)


def _resolved(field: Schema, known: Schema) -> tuple[Schema, str]:
    """Return what a reference leads to, and its name; a field that is not one, and no name."""
    if "$ref" not in field:
        return field, ""
    name = str(field["$ref"]).rpartition("/")[2]
    return known[name], name


def _kind(field: Schema) -> str:
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field or "oneOf" in field:
        return " or ".join(filter(None, map(_kind, field.get("anyOf") or field["oneOf"])))
    kinds = field.get("type", "")
    return " or ".join([kinds] if isinstance(kinds, str) else kinds)
