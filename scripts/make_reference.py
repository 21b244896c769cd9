#!/usr/bin/env python3
"""Writes docs/reference/*.md from the models, click's commands and the source.

It also writes docs/README.md from the navigation. A test checks that the pages are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts import docs_navigation
from scripts.reference.command_reference import commands_page
from scripts.reference.key_reference import keys_page
from scripts.reference.page_text import GENERATED
from scripts.reference.schema_reference import schema_page
from scripts.reference.variable_reference import variables_page

FOLDER = docs_navigation.DOCS / "reference"
MAP = docs_navigation.DOCS / docs_navigation.MAP
PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "config.md": keys_page,
    "environment.md": variables_page,
    "result.md": schema_page,
}


def main() -> None:
    """Write all pages, and delete the pages that no longer exist."""
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.md"):
        if file.name not in PAGES:
            file.unlink()
    for name, text in PAGES.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")
    MAP.write_text(docs_navigation.map_page(GENERATED), encoding="utf-8")


if __name__ == "__main__":
    main()
