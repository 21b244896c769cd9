"""Flags of `run_eval` that stand for a value of the run config."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.config.model import NO_SHARDS
from eval_factory.core.errors import ConfigError

FLAGS = {
    "limit_samples": (7, "config.params.limit_samples"), "parallelism": (3, "config.params.parallelism"),
    "max_new_tokens": (99, "config.params.max_new_tokens"), "max_retries": (2, "config.params.max_retries"),
    "request_timeout": (7.5, "config.params.request_timeout"), "temperature": (0.25, "config.params.temperature"),
    "top_p": (0.5, "config.params.top_p"),
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "x.yml"
    params = dict.fromkeys(FLAGS, 1)
    document = {
        "config": {"type": "pubmed_qa", "output_dir": "o", "params": params},
        "target": {"api_endpoint": {"url": "https://h/v1", "model_id": "m"}},
    }
    file.write_text(yaml.safe_dump(document))
    return file


def shown(config: Path, *arguments: str) -> str:
    result = CliRunner().invoke(cli, ["run_eval", "--run_config", str(config), "--dry_run", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_beats_the_file_and_overrides_beat_the_flag(name: str, config: Path) -> None:
    value, path = FLAGS[name]
    for spelling in (name, name.replace("_", "-")):
        lines = [line.split() for line in shown(config, f"--{spelling}", str(value)).splitlines()]
        assert ["#", path, "flag:", str(value)] in lines
    both = [line.split() for line in shown(config, f"--{name}", str(value), "--overrides", f"{path}=1").splitlines()]
    assert ["#", path, "--overrides:", str(type(value)(1))] in both


@pytest.mark.parametrize(
    ("name", "value"), [("limit_samples", "ten"), ("limit_samples", "0"), ("top_p", "1.5"), ("parallelism", "1.5")]
)
def test_a_value_that_is_none_is_a_mistake(name: str, value: str, config: Path) -> None:
    result = CliRunner().invoke(cli, ["run_eval", "--run_config", str(config), "--dry_run", f"--{name}", value])
    assert result.exit_code != 0
    assert name in f"{result.output}{result.exception}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run-eval", "--run-config"], ["new-benchmark", "--help"], ["data", "ls", "--data-dir"],
        ["data", "unpack", "--max-bytes"], ["leaderboard", "run", "--allow-code-execution", "--max-eval-instances"],
    ],
)  # fmt: skip
def test_hyphens_stand_for_underscores_in_every_command(arguments: list[str]) -> None:
    underscored = [word[:2] + word[2:].replace("-", "_") for word in arguments]
    results = [CliRunner().invoke(cli, words) for words in (arguments, underscored)]
    assert results[0].output == results[1].output
    assert results[0].exit_code == results[1].exit_code
    assert "No such" not in results[0].output
    assert ("requires an argument" in results[0].output) is (arguments[-1] != "--help")


@pytest.mark.parametrize("given", [("--shards", "4"), ("--overrides", "config.params.extra.shards=4")])
def test_shards_are_told_what_to_write_now(given: tuple[str, str], config: Path) -> None:
    result = CliRunner().invoke(cli, ["run_eval", "--run_config", str(config), "--dry_run", *given])
    assert isinstance(result.exception, ConfigError)
    assert NO_SHARDS in str(result.exception)
    assert "--shards" not in CliRunner().invoke(cli, ["run_eval", "--help"]).output
