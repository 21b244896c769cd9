"""The program for other programs: what it is asked becomes a request of the workflow, and nothing is printed."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory import api
from eval_factory.config.evaluation import Request
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.workflows.options import Options
from unit.builders import MINIMAL


class Asked(Exception):
    """Ends the workflow where it begins."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Request, Options, dict[str, Any]]]:
    """What the workflow was asked."""
    found: list[tuple[Request, Options, dict[str, Any]]] = []

    def workflow(request: Request, options: Options, **others: Any) -> None:
        found.append((request, options, others))
        raise Asked

    monkeypatch.setattr("eval_factory.workflows.evaluate.evaluate", workflow)
    monkeypatch.setattr("eval_factory.workflows.dry_run.dry_run", workflow)
    return found


@pytest.mark.parametrize("name", ["evaluate", "dry_run"])
def test_everything_that_is_said_reaches_the_workflow(name: str, asked: list[Any]) -> None:
    screen, options = io.StringIO(), Options(fresh=True)
    with pytest.raises(Asked):
        getattr(api, name)(
            "x.yml", flags={"a.b": 1}, overrides=["c=2"], options=options, env={"KEY": "v"}, screen=screen
        )
    ((request, given, others),) = asked
    assert request == Request(run_config=Path("x.yml"), flags={"a.b": 1}, overrides=("c=2",))
    assert given is options
    assert others == {"env": {"KEY": "v"}, "screen": screen}
    assert others["screen"] is screen


@pytest.mark.parametrize("name", ["evaluate", "dry_run"])
def test_what_is_not_said_is_this_process_and_no_screen(name: str, asked: list[Any]) -> None:
    with pytest.raises(Asked):
        getattr(api, name)()
    ((request, options, others),) = asked
    assert request == Request(run_config=None, flags={}, overrides=())
    assert options == Options()
    assert others["env"] is os.environ
    assert others["screen"].getvalue() == ""


def test_an_empty_environment_is_not_this_processes(asked: list[Any]) -> None:
    with pytest.raises(Asked):
        api.evaluate(env={})
    assert asked[0][2]["env"] == {}


def test_a_dry_run_returns_a_record_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yml"
    file.write_text(yaml.safe_dump({"config": {"params": {"limit_samples": 7}}}))
    screen = io.StringIO()
    flags = {**MINIMAL, "config.output_dir": str(tmp_path / "out"), "config.params.task": "pubmed_qa"}
    found = api.dry_run(file, flags=flags, overrides=["config.params.parallelism=2"], env={}, screen=screen)
    assert "limit_samples: 7" in found.text
    assert "parallelism: 2" in found.text
    assert found.would_stop == ()
    assert screen.getvalue() == "warning: keys without an effect here: config.params: task\n"
    assert (capsys.readouterr().out, list(tmp_path.iterdir())) == ("", [file])


def test_what_is_wrong_with_the_users_data_is_told_and_not_raised(tmp_path: Path) -> None:
    flags = {**MINIMAL, "config.type": "shc_bmt_med", "config.params.extra.data_path": str(tmp_path / "none.csv")}
    first, *_ = api.dry_run(flags=flags, env={}).would_stop
    assert first.startswith("config.params.extra.data_path: ")


def test_errors_are_the_programs_with_its_exit_codes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        api.evaluate(flags={**MINIMAL, "config.params.limit_samples": 0}, env={})
    assert isinstance(wrong.value, api.EvalFactoryError)
    assert wrong.value.exit_code == 2
    with pytest.raises(PrerequisiteError) as missing:
        api.load_result(tmp_path)
    assert missing.value.exit_code == 3


def test_all_that_it_promises_is_there() -> None:
    assert set(api.__all__) == {
        "Compared", "DryRun", "EvalFactoryError", "Evaluated", "Finding", "GateResult", "Options", "Reproduction", "Reran",
        "StoredResult", "Verified", "compare", "dry_run", "estimate", "evaluate", "export_pages", "gate", "load_result",
        "reproduce", "run_again", "served_pages", "verify",
    }  # fmt: skip
    assert all(hasattr(api, name) for name in api.__all__)


def test_an_estimate_is_of_the_merged_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    from eval_factory.workflows import estimate as workflow

    seen: list[Any] = []
    monkeypatch.setattr(workflow, "estimate", lambda evaluation, env: seen.append((evaluation, env)))
    api.estimate(flags={**MINIMAL, "config.params.limit_samples": 7}, env={"A": "b"})
    ((evaluation, env),) = seen
    assert evaluation.run.config.params.limit_samples == 7
    assert env == {"A": "b"}
