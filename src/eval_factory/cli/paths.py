"""Paths on the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from eval_factory.core.safe_files import expanded


class HomePath(click.Path):
    """A path in which `~` is a home folder: a shell leaves it as it is in `--to=~/bundle`."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            value = expanded(os.fspath(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)
