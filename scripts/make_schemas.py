#!/usr/bin/env python3
"""Writes the JSON Schemas into docs/schemas/, made of the models and of the package's own; a
test checks them.
"""

from __future__ import annotations

from pathlib import Path

from eval_factory.cli.task_listing import SCHEMAS, schema_text

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"
ENDING = ".schema.json"


def main() -> None:
    """Write the files anew, and remove those that are no more."""
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob(f"*{ENDING}"):
        if file.name.removesuffix(ENDING) not in SCHEMAS:
            file.unlink()
    for name in SCHEMAS:
        (FOLDER / f"{name}{ENDING}").write_text(schema_text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
