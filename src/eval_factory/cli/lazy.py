"""A group of commands whose module is imported when one of them is called."""

from __future__ import annotations

import importlib

import click


class LazyGroup(click.Group):
    """Stands for the group at `module:name` until it is used; its help line is given, for `eval-factory --help`."""

    def __init__(self, name: str, where: str, help_line: str) -> None:
        super().__init__(name=name, help=help_line)
        self._where = where

    def _group(self) -> click.Group:
        module, _, name = self._where.partition(":")
        group: click.Group = getattr(importlib.import_module(module), name)
        return group

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._group().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._group().get_command(ctx, cmd_name)
