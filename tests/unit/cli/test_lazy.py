"""A group of commands that is imported when it is used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from eval_factory.cli.main import LazyCommands

MODULE = "commands_of_a_test"
SOURCE = """
import click

@click.command()
def alone(): "Does it alone."; click.echo("alone")

@click.group()
def tools(): "All the tools."

@tools.command()
def first(): click.echo("the first")

@tools.command()
def second(): click.echo("the second")

other = None
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[click.Group]:
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    program = LazyCommands("program", later={"alone": MODULE, "tools": MODULE})
    program.add_command(click.Command("own", callback=lambda: click.echo("its own")))
    yield program
    sys.modules.pop(MODULE, None)


def test_its_commands_are_the_modules(program: click.Group) -> None:
    told = CliRunner().invoke(program, ["tools", "--help"])
    assert told.exit_code == 0
    assert told.output.index("first") < told.output.index("second")
    assert CliRunner().invoke(program, ["tools", "second"]).output == "the second\n"
    assert MODULE in sys.modules


def test_a_later_command_is_imported_when_it_is_called(program: click.Group) -> None:
    assert CliRunner().invoke(program, ["own"]).output == "its own\n"
    assert MODULE not in sys.modules
    assert CliRunner().invoke(program, ["alone"]).output == "alone\n"
    assert MODULE in sys.modules


def test_the_help_has_what_later_commands_say_of_themselves(program: click.Group) -> None:
    told = CliRunner().invoke(program, ["--help"]).output
    assert "alone  Does it alone." in told
    assert told.index("alone") < told.index("own") < told.index("tools")


def test_a_later_command_is_found_by_a_name_like_its_own(program: click.Group) -> None:
    told = CliRunner().invoke(program, ["alonee"])
    assert told.exit_code == 2
    assert "Did you mean 'alone'?" in told.output
    assert MODULE not in sys.modules
