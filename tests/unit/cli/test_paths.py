"""Paths as the command line takes them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from eval_factory.cli.console import HomePath


@click.command()
@click.option("--to", type=HomePath())
def command(to: Path | None) -> None:
    click.echo(f"{type(to).__name__}: {to}")


def ran(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.output


def test_a_home_folder_is_found_where_no_shell_has_replaced_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert ran("--to=~/bundle") == (0, f"{type(Path()).__name__}: /home/me/bundle\n")
    assert ran("--to=a/~b") == (0, f"{type(Path()).__name__}: a/~b\n")


def test_a_path_that_there_cannot_be_is_a_wrong_command_line() -> None:
    code, output = ran("--to", "x" * 5000)
    assert code == 2
    assert "Invalid value for '--to'" in output
