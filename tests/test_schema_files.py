"""docs/schemas holds the JSON Schemas that the program prints, and those that it checks its own results with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema.validators import validator_for

from eval_factory.cli.task_listing import SCHEMAS, schema_text

OF_RESULTS = ("evaluation_config", "results", "suite_results")


@pytest.mark.parametrize("name", SCHEMAS)
def test_they_are_up_to_date(name: str, root: Path) -> None:
    text = (root / "docs" / "schemas" / f"{name}.schema.json").read_text("utf-8")
    assert text == schema_text(name), "run scripts/make_schemas.py"
    schema = json.loads(text)
    validator_for(schema).check_schema(schema)


@pytest.mark.parametrize("name", OF_RESULTS)
def test_those_of_results_are_those_that_results_are_checked_with(name: str, root: Path) -> None:
    file = f"{name}.schema.json"
    ours = root / "src" / "eval_factory" / "report" / "schemas" / file
    assert json.loads((root / "docs" / "schemas" / file).read_text("utf-8")) == json.loads(
        ours.read_text("utf-8")
    )


def test_there_are_no_others_and_the_page_lists_them(root: Path) -> None:
    files = {file.name for file in (root / "docs" / "schemas").glob("*.json")}
    assert files == {f"{name}.schema.json" for name in SCHEMAS}
    page = (root / "docs" / "schemas" / "README.md").read_text("utf-8")
    assert all(f"| `{file}` |" in page for file in files)
