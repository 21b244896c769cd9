"""Commands whose module is imported when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyCommands(click.Group):
    """A group that beside its own commands has others, each at `module:name`. Its help imports all of them."""

    def __init__(self, *given: Any, later: Mapping[str, str], **named: Any) -> None:
        super().__init__(*given, **named)
        self._later = later
        for name in later:
            self.add_command(click.Command(name))  # holds its place: click looks there for names like a wrong one

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._later:
            return super().get_command(ctx, cmd_name)
        command: click.Command = _imported(self._later[cmd_name])
        return command


class LazyGroup(click.Group):
    """Stands for the group at `module:name` until it is used; its help line is given, for `eval-factory --help`."""

    def __init__(self, name: str, where: str, help_line: str) -> None:
        super().__init__(name=name, help=help_line)
        self._where = where

    def _group(self) -> click.Group:
        group: click.Group = _imported(self._where)
        return group

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._group().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._group().get_command(ctx, cmd_name)


def _imported(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)
