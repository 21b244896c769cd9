"""A command that there is none of: which may be meant."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli


@pytest.mark.parametrize(
    ("name", "meant"), [("run", "run_eval"), ("run_evl", "run_eval"), ("compair", "compare")]
)
def test_a_command_that_is_near_is_named(name: str, meant: str) -> None:
    result = CliRunner().invoke(cli, [name])
    assert result.exit_code == 2
    assert meant in result.output


def test_lists_for_programs_have_a_header_and_short_lines() -> None:
    for command, first in ((["data", "ls"], "task\t"), (["leaderboard", "ls"], "name\t")):
        lines = CliRunner().invoke(cli, command).output.splitlines()
        assert lines[0].startswith(first)
        assert {line.count("\t") for line in lines} == {lines[0].count("\t")}
        assert max(map(len, lines)) < 300
