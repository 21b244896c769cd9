"""Every run config that we ship: the valid ones validate, the invalid ones say what their first lines expect."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator
from scripts.make_test_cases import PREFIX, run_configs

from eval_factory.analysis.gate_policy import load_policy
from eval_factory.cli.main import cli
from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.config.suite import build_suite
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.suite.planned_cells import checked_cells, refuse_wrong

FOLDER = Path(__file__).resolve().parents[1] / "test_cases"
MARK = "# expect: "
SCHEMA = FOLDER.parent / "docs" / "schemas" / "run_config.schema.json"
SCHEMA_OF_RUN_CONFIGS = Draft7Validator(json.loads(SCHEMA.read_text("utf-8")))

GATE = FOLDER / "gate"
POLICY_SCHEMA = FOLDER.parent / "docs" / "schemas" / "gate_policy.schema.json"
SCHEMA_OF_POLICIES = Draft7Validator(json.loads(POLICY_SCHEMA.read_text("utf-8")))

SUITES = FOLDER / "suites"
SUITE_SCHEMA = FOLDER.parent / "docs" / "schemas" / "suite.schema.json"
SCHEMA_OF_SUITES = Draft7Validator(json.loads(SUITE_SCHEMA.read_text("utf-8")))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_valid(path: Path) -> None:
    found = build_evaluation(Request(run_config=path), load_framework(), {})
    if path.stem.startswith(PREFIX):
        assert found.run.config.type == path.stem.removeprefix(PREFIX)


TO_RUN = [*sorted(FOLDER.glob("*.yml")), *sorted(SUITES.glob("*.yml"))]


@pytest.mark.parametrize("path", TO_RUN, ids=lambda path: path.stem)
def test_its_dry_run_succeeds_without_keys_and_network(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user tries it first: what a run checks beyond the shape (prices of a budget, say) is checked, too."""

    def refuse(*_: object) -> None:
        raise AssertionError("a dry run asks nobody")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.chdir(FOLDER.parent)
    for name in [name for name in os.environ if name.endswith("_KEY")]:
        monkeypatch.delenv(name)
    command = "run_suite" if SUITES in path.parents else "run_eval"
    outcome = CliRunner().invoke(cli, [command, "--run_config", str(path), "--dry_run"], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    assert "command" in outcome.output


MADE = run_configs(load_framework())


def test_there_is_one_per_task() -> None:
    assert {path.name for path in FOLDER.glob("test_case_*.yml")} == set(MADE)
    assert {name.removeprefix(PREFIX).removesuffix(".yml") for name in MADE} == set(load_framework().names())


@pytest.mark.parametrize("name", MADE)
def test_those_of_the_tasks_are_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == MADE[name], "run scripts/make_test_cases.py"


EVERY = sorted(FOLDER.rglob("*.yml"))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_its_first_line_leads_an_editor_to_the_schema(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    named = POLICY_SCHEMA if GATE in path.parents else SUITE_SCHEMA if SUITES in path.parents else SCHEMA
    assert (path.parent / first.partition("=")[2]).resolve() == named
    assert named.is_file()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.stem)
def test_the_schema_takes_what_is_valid(path: Path) -> None:
    assert list(SCHEMA_OF_RUN_CONFIGS.iter_errors(yaml.safe_load(path.read_text("utf-8")))) == []


NOT_A_MATTER_OF_SHAPE = {
    "benchmark_of_another_task": "which parameters a task has",
    "broken_yaml": "no YAML at all",
    "custom_benchmark_broken": "another file",
    "custom_benchmark_nowhere": "another file",
    "custom_judges_without_jury": "another file",
    "custom_without_benchmark": "which parameters a task needs",
    "judge_name_twice": "one judge beside another",
    "judge_signs_in_twice": "one value beside another",
    "judges_without_jury": "which tasks have judges",
    "key_twice": "no YAML that every reader takes",
    "missing_data_path": "which parameters a task needs",
    "missing_parameter": "which parameters a task needs",
    "no_config": "what a flag may give",
    "parameter_of_another_task": "which parameters a task has",
    "subset_contradicts_task": "which parameters a task has",
    "two_key_names": "one value beside another",
    "two_token_limits": "one value beside another",
    "unknown_language": "what a task's parameter may be",
    "unknown_subject": "what a task's parameter may be",
    "unset_variable": "the environment",
}
"""Invalid run configs that the schema takes, and what it would have to know."""


@pytest.mark.parametrize("path", sorted((FOLDER / "invalid").glob("*.yml")), ids=lambda path: path.stem)
def test_the_schema_refuses_what_is_of_another_shape(path: Path) -> None:
    if path.stem == "broken_yaml":
        with pytest.raises(yaml.YAMLError):
            yaml.safe_load(path.read_text("utf-8"))
        return
    errors = list(SCHEMA_OF_RUN_CONFIGS.iter_errors(yaml.safe_load(path.read_text("utf-8"))))
    assert bool(errors) is (path.stem not in NOT_A_MATTER_OF_SHAPE), errors


@pytest.mark.parametrize("path", sorted((FOLDER / "invalid").glob("*.yml")), ids=lambda path: path.stem)
def test_invalid(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    expected = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    assert expected
    with pytest.raises(ConfigError) as raised:
        build_evaluation(Request(run_config=path), load_framework(), {})
    for text in expected:
        assert text in str(raised.value)
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize("path", sorted(GATE.glob("*.yml")), ids=lambda path: path.stem)
def test_a_policy_is_taken_by_the_program_and_by_the_schema(path: Path) -> None:
    assert load_policy(path).benchmarks
    assert list(SCHEMA_OF_POLICIES.iter_errors(yaml.safe_load(path.read_text("utf-8")))) == []


POLICIES_OF_SOUND_SHAPE = {
    "least_where_lower_is_better": "one value beside another",
    "no_limit": "what stands in the defaults",
}
"""Wrong policies that the schema takes, and what it would have to know."""


@pytest.mark.parametrize("path", sorted((GATE / "invalid").glob("*.yml")), ids=lambda path: path.stem)
def test_a_wrong_policy_is_refused_by_the_program_and_by_the_schema(path: Path) -> None:
    (expected,) = (line.removeprefix(MARK) for line in path.read_text("utf-8").splitlines() if line.startswith(MARK))
    with pytest.raises(ConfigError) as raised:
        load_policy(path)
    assert str(raised.value).startswith(f"{path}: {expected}")
    errors = list(SCHEMA_OF_POLICIES.iter_errors(yaml.safe_load(path.read_text("utf-8"))))
    assert bool(errors) is (path.stem not in POLICIES_OF_SOUND_SHAPE), errors


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yml")), ids=lambda path: path.stem)
def test_a_suite_is_taken_by_the_program_and_by_the_schema(path: Path) -> None:
    suite = build_suite(path, env={})
    assert len(suite.cells) > 1
    refuse_wrong(checked_cells(suite, {}))
    assert list(SCHEMA_OF_SUITES.iter_errors(yaml.safe_load(path.read_text("utf-8")))) == []


SUITES_OF_SOUND_SHAPE = {
    "extends_itself": "other files",
    "extends_nothing": "other files",
    "name_twice": "one name beside another",
    "no_targets": "what a flag may give",
    "nothing_left": "one value beside another",
    "pattern_fits_nothing": "one value beside another",
    "same_folder": "one name beside another",
    "two_key_names": "one value beside another",
    "unset_variable": "the environment",
}
"""Wrong suites that the schema takes, and what it would have to know."""


@pytest.mark.parametrize("path", sorted((SUITES / "invalid").glob("*.yml")), ids=lambda path: path.stem)
def test_a_wrong_suite_is_refused_by_the_program_and_by_the_schema(path: Path) -> None:
    (expected,) = (line.removeprefix(MARK) for line in path.read_text("utf-8").splitlines() if line.startswith(MARK))
    with pytest.raises(ConfigError) as raised:
        build_suite(path, env={})
    assert f"{path}: {expected}" in str(raised.value)
    assert "canary" not in str(raised.value)
    errors = list(SCHEMA_OF_SUITES.iter_errors(yaml.safe_load(path.read_text("utf-8"))))
    assert bool(errors) is (path.stem not in SUITES_OF_SOUND_SHAPE), errors
