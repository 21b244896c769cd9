#!/usr/bin/env python3
"""Writes framework_checked.json: framework.yml, read and checked, for quick commands; a test checks it."""

from __future__ import annotations

from eval_factory.tasks.framework import CHECKED, framework_path
from eval_factory.tasks.framework_file import checked_copy


def main() -> None:
    """Write the file anew."""
    CHECKED.write_text(checked_copy(framework_path().read_bytes()), encoding="utf-8")


if __name__ == "__main__":
    main()
