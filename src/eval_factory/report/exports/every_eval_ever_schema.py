"""What the community schema Every Eval Ever 0.3.0 demands of a record; each is checked before it is written.

`schemas/every_eval_ever.schema.json` holds the facts of the published `eval.schema.json` and
`instance_level_eval.schema.json` (github.com/evaleval/every_eval_ever, MIT) in our own words: required fields, types,
enumerations. It is narrower than they are: a field that is never written here is not allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

SCHEMA_VERSION = "0.3.0"
RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
"""Of who evaluates to the model's developer, as the schema has them."""


def check(record: Mapping[str, Any], kind: Literal["aggregate", "instance"]) -> None:
    """Raises `jsonschema.ValidationError` where a record is not what the schema demands: a defect of ours."""
    _validator(kind).validate(record)


@cache
def _validator(kind: str) -> Any:
    import jsonschema  # takes long to import

    path = resources.files("eval_factory.report.exports") / "schemas" / "every_eval_ever.schema.json"
    definitions = json.loads(path.read_text(encoding="utf-8"))["definitions"]
    return jsonschema.Draft7Validator({"$ref": f"#/definitions/{kind}", "definitions": definitions})
