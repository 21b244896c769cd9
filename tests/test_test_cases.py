"""Every run config, policy and suite that we ship: valid ones are taken, invalid ones say what their first lines expect."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator
from scripts.make_test_cases import PREFIX, run_configs

from eval_factory.analysis.gate_policy import load_policy
from eval_factory.cli.main import cli
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.suite import build_suite
from eval_factory.core.errors import ConfigError
from eval_factory.monitor.panel import load_panel
from eval_factory.tasks.framework import load_framework

FOLDER = Path(__file__).resolve().parents[1] / "test_cases"
GATE = FOLDER / "gate"
SUITES = FOLDER / "suites"
MONITOR = FOLDER / "monitor"
MARK = "# expect: "
READERS: dict[Path, tuple[str, Callable[[Path], object]]] = {
    FOLDER: (
        "run_config",
        lambda path: build_evaluation(RunRequest(run_config=path), load_framework(), {}),
    ),
    GATE: ("gate_policy", load_policy),
    SUITES: ("suite", lambda path: build_suite(path, env={})),
    MONITOR: ("monitor", lambda path: load_panel(path, {})),
}
"""Folder -> the schema of its files, and what reads one of them."""
MADE = run_configs(load_framework())


def name_of(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


VALID = list(chain.from_iterable(sorted(folder.glob("*.yml")) for folder in READERS))
INVALID = list(
    chain.from_iterable(sorted((folder / "invalid").glob("*.yml")) for folder in READERS)
)
of_valid = pytest.mark.parametrize("path", VALID, ids=name_of)
of_invalid = pytest.mark.parametrize("path", INVALID, ids=name_of)


def reader(path: Path) -> tuple[Path, Callable[[Path], object]]:
    """The schema's file, and the program's own reader."""
    schema, read = READERS[path.parent.parent if path.parent.name == "invalid" else path.parent]
    return FOLDER.parent / "docs" / "schemas" / f"{schema}.schema.json", read


def errors_of(path: Path) -> list[object]:
    """Return what the schema says against it."""
    schema = json.loads(reader(path)[0].read_text("utf-8"))
    return list(Draft7Validator(schema).iter_errors(yaml.safe_load(path.read_text("utf-8"))))


@of_valid
def test_what_is_valid_is_taken_without_keys_and_network(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user tries it first: what a run checks beyond the shape (prices of a budget, say) is checked, too."""

    def refuse(*_: object) -> None:
        raise AssertionError("a dry run asks nobody")

    assert errors_of(path) == []
    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.chdir(FOLDER.parent)
    for name in [name for name in os.environ if name.endswith("_KEY")]:
        monkeypatch.delenv(name)
    if path.parent == GATE:
        assert load_policy(path).benchmarks
        return
    command = ["run_suite" if path.parent == SUITES else "run_eval", "--run_config"]
    words = [*(["monitor"] if path.parent == MONITOR else command), str(path), "--dry_run"]
    outcome = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    assert "command" in outcome.output


def test_there_is_one_per_task() -> None:
    assert {path.name for path in FOLDER.glob("test_case_*.yml")} == set(MADE)
    assert {name.removeprefix(PREFIX).removesuffix(".yml") for name in MADE} == set(
        load_framework().names()
    )


@pytest.mark.parametrize("name", MADE)
def test_those_of_the_tasks_are_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == MADE[name], "run scripts/make_test_cases.py"


@pytest.mark.parametrize("path", [*VALID, *INVALID], ids=name_of)
def test_its_first_line_leads_an_editor_to_the_schema(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    named, _ = reader(path)
    assert (path.parent / first.partition("=")[2]).resolve() == named
    assert named.is_file()


def test_no_file_is_left_out() -> None:
    assert sorted(FOLDER.rglob("*.yml")) == sorted([*VALID, *INVALID])


NOT_A_MATTER_OF_SHAPE = {
    "which parameters a task has": [
        "invalid/benchmark_of_another_task",
        "invalid/parameter_of_another_task",
        "invalid/subset_contradicts_task",
    ],
    "the right file": [
        "invalid/custom_benchmark_broken",
        "invalid/custom_benchmark_nowhere",
        "invalid/custom_judges_without_jury",
    ],
    "which parameters a task needs": [
        "invalid/custom_without_benchmark",
        "invalid/missing_data_path",
        "invalid/missing_parameter",
    ],
    "one judge beside another": ["invalid/judge_name_twice"],
    "one value beside another": [
        "invalid/judge_signs_in_twice",
        "invalid/two_key_names",
        "invalid/two_token_limits",
        "gate/invalid/least_where_lower_is_better",
        "suites/invalid/nothing_left",
        "suites/invalid/pattern_fits_nothing",
        "suites/invalid/two_key_names",
    ],
    "which tasks have judges": ["invalid/judges_without_jury"],
    "no YAML that every reader takes": ["invalid/key_twice"],
    "what a flag may give": ["invalid/no_config", "suites/invalid/no_targets"],
    "what a task's parameter may be": ["invalid/unknown_language", "invalid/unknown_subject"],
    "the environment": ["invalid/unset_variable", "suites/invalid/unset_variable"],
    "what stands in the defaults": ["gate/invalid/no_limit"],
    "other files": ["suites/invalid/extends_itself", "suites/invalid/extends_nothing"],
    "one name beside another": ["suites/invalid/name_twice", "suites/invalid/same_folder"],
}
"""What a schema would have to know -> wrong files that it takes."""


@of_invalid
def test_what_is_wrong_is_refused_by_the_program_and_by_the_schema(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    expected = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    assert expected
    with pytest.raises(ConfigError) as raised:
        reader(path)[1](path)
    # a run config may be wrong in another file
    place = "" if path.parent == FOLDER / "invalid" else f"{path}: "
    assert [text for text in expected if f"{place}{text}" not in str(raised.value)] == []
    assert "canary" not in str(raised.value)
    taken = any(
        name_of(path).removesuffix(".yml") in names for names in NOT_A_MATTER_OF_SHAPE.values()
    )
    if path.stem == "broken_yaml":
        with pytest.raises(yaml.YAMLError):
            errors_of(path)
    else:
        assert bool(errors_of(path)) is not taken
