#!/usr/bin/env python3
"""Writes the JSON Schemas into docs/schemas/.

Some schemas are made from the models of files; others are files of the package. A test checks that
docs/schemas/ is up to date.
"""

from __future__ import annotations

from pathlib import Path

from eval_factory.cli.task_listing import SCHEMAS, schema_text

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"
ENDING = ".schema.json"


def main() -> None:
    """Write all files, and delete the files of schemas that no longer exist."""
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob(f"*{ENDING}"):
        if file.name.removesuffix(ENDING) not in SCHEMAS:
            file.unlink()
    for name in SCHEMAS:
        (FOLDER / f"{name}{ENDING}").write_text(schema_text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
