"""Makes docs/reference/result.md: the fields of evaluation_config.yaml, read from its schema.

Results are checked with the same schema.
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

HIDDEN_KINDS = ("", "object")
"""The kinds that are not shown: the fields below such a field show that it is a mapping."""
Schema = Mapping[str, Any]


def schema_page() -> str:
    """Return the text of docs/reference/result.md."""
    schema = documents.read_schema(documents.EVALUATION_CONFIG_SCHEMA)
    lines = [INTRODUCTION, ""]
    for field, kind, about in _rows(schema, "", schema["$defs"], {}):
        shown_kind = "" if kind in HIDDEN_KINDS else f" {kind}"
        shown_about = f": {about}" if about else ""
        lines.append(f"- `{field}`{shown_kind}{shown_about}")
    return page("Fields of a result", lines)


def _rows(
    schema: Schema, path: str, definitions: Schema, shown: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (path, kind, description) of the fields below a path.

    Args:
        schema: the schema of the field with this path.
        path: the path; empty for the complete file.
        definitions: the schema's definitions, by name.
        shown: a dict from the name of a definition to the path of the first field with this
            definition. Only there, the definition is described; this function adds to the dict.
    """
    required = schema.get("required", ())
    children = [
        (name, field, name in required) for name, field in schema.get("properties", {}).items()
    ]
    if isinstance(schema.get("additionalProperties"), Mapping) and schema["additionalProperties"]:
        children.append(("*", schema["additionalProperties"], False))
    for name, field, always in children:
        field_path = f"{path}.{name}" if path else name
        yield from _field(field, field_path, definitions, shown, always=always)
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _below(items, f"{path}[]", definitions, shown)


def _field(
    field: Schema, path: str, definitions: Schema, shown: dict[str, str], *, always: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield the row of a field, and the rows of the fields below.

    `always` is True if the field is never absent. The other arguments are those of `_rows`.
    """
    resolved, name = _resolved(field, definitions)
    about = field.get("description") or resolved.get("description", "")
    if name in shown and _has_rows(resolved, definitions):
        about = f"{field.get('description', '')} As `{shown[name]}`.".strip()
    kind = _kind(resolved)
    has_values = kind.startswith("`")  # The kind lists the possible values.
    if about or has_values:
        yield path if always else f"{path}?", kind, about
    yield from _below(field, path, definitions, shown)


def _has_rows(schema: Schema, definitions: Schema) -> bool:
    return next(_rows(schema, "", definitions, {}), None) is not None


def _below(
    field: Schema, path: str, definitions: Schema, shown: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the fields below a field, unless its definition was shown before."""
    resolved, name = _resolved(field, definitions)
    if name not in shown:
        if name:
            shown[name] = path
        yield from _rows(resolved, path, definitions, shown)


def _resolved(field: Schema, definitions: Schema) -> tuple[Schema, str]:
    """Return (schema, name) of the definition to which a field refers.

    For a field without a reference, the field itself and an empty name are returned.
    """
    if "$ref" not in field:
        return field, ""
    name = str(field["$ref"]).rpartition("/")[2]
    return definitions[name], name


def _kind(field: Schema) -> str:
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field or "oneOf" in field:
        return " or ".join(filter(None, map(_kind, field.get("anyOf") or field["oneOf"])))
    kinds = field.get("type", "")
    return " or ".join([kinds] if isinstance(kinds, str) else kinds)
