from __future__ import annotations

import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.cli.task_listing import SCHEMAS, schema_text
from eval_factory.core.errors import ConfigError


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_command_prints_a_schema_as_it_stands_in_the_docs(name: str) -> None:
    result = CliRunner().invoke(cli, ["schema", name], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, schema_text(name))
    assert result.output.endswith("}\n")


def test_a_name_that_there_is_not_is_said_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="there is no schema 'run_confg', did you mean 'run_config'"):
        schema_text("run_confg")
    with pytest.raises(
        ConfigError,
        match=r"no schema 'zzz'; there are run_config, evaluation_config, results, suite_results, gate_policy, suite$",
    ):
        schema_text("zzz")
