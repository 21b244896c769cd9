"""Tests that the public functions pass their arguments to the workflows and print nothing."""

from __future__ import annotations

import copy
import io
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

import eval_factory
from builders import MINIMAL
from eval_factory import api
from eval_factory.config.evaluation import RunRequest
from eval_factory.config.suite import Suite
from eval_factory.core import errors
from eval_factory.core.errors import ConfigError, EvalFactoryError, PrerequisiteError
from eval_factory.workflows.options import Options
from eval_factory.workflows.suite.suite_report import SuiteOptions
from facts import naming, says


class Asked(Exception):
    """Ends the workflow at its start."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunRequest, Options, dict[str, Any]]]:
    """Return a list that gets the arguments of each call of the workflow."""
    found: list[tuple[RunRequest, Options, dict[str, Any]]] = []

    def workflow(request: RunRequest, options: Options, **others: Any) -> None:
        found.append((request, options, others))
        raise Asked

    monkeypatch.setattr(api, "_run", workflow)
    monkeypatch.setattr("eval_factory.workflows.dry_run.dry_run", workflow)
    return found


@pytest.mark.parametrize("name", ["evaluate", "submit", "dry_run"])
def test_everything_that_is_said_reaches_the_workflow(name: str, asked: list[Any]) -> None:
    options = Options(fresh=True)
    others = {"env": {"KEY": "v"}, "screen": io.StringIO()}
    with pytest.raises(Asked):
        getattr(api, name)("x.yml", flags={"a.b": 1}, overrides=["c=2"], options=options, **others)
    ((request, given, told),) = asked
    assert request == RunRequest(run_config=Path("x.yml"), flags={"a.b": 1}, overrides=("c=2",))
    assert given is options
    assert told.pop("wait", None) == {"evaluate": True, "submit": False}.get(name)
    assert told == others
    assert told["screen"] is others["screen"]


@pytest.mark.parametrize("name", ["evaluate", "dry_run"])
def test_what_is_not_said_is_this_process_and_no_screen(name: str, asked: list[Any]) -> None:
    with pytest.raises(Asked):
        getattr(api, name)()
    ((request, options, others),) = asked
    assert (request, options) == (RunRequest(run_config=None, flags={}, overrides=()), Options())
    assert others["env"] is os.environ
    assert others["screen"].getvalue() == ""


def test_who_evaluates_is_never_given_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    job = api.Submitted(Path("out"), "submitted")
    monkeypatch.setattr(api, "_run", lambda *_, **__: job)
    assert api.submit(flags=MINIMAL, env={}) is job
    with pytest.raises(api.InterruptedRunError, match="submitted"):
        api.evaluate(flags=MINIMAL, env={})


@pytest.mark.parametrize("executor", ["local", "slurm"])
def test_the_configuration_says_where(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "eval_factory.workflows.evaluate.evaluate",
        lambda *_, evaluation, **__: ("local", evaluation),
    )
    monkeypatch.setattr(
        "eval_factory.workflows.suite.slurm_run.run_as_job", lambda *_, wait, **__: ("slurm", wait)
    )
    place, told = api.submit(flags={**MINIMAL, "executor": executor}, env={})  # type: ignore[misc]
    assert place == executor
    assert told is False if executor == "slurm" else told.executor.name == "local"


def test_a_dry_run_returns_a_record_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yml"
    file.write_text(yaml.safe_dump({"config": {"params": {"limit_samples": 7}}}))
    screen = io.StringIO()
    flags = {
        **MINIMAL,
        "config.output_dir": str(tmp_path / "out"),
        "config.params.task": "pubmed_qa",
    }
    found = api.dry_run(
        file, flags=flags, overrides=["config.params.parallelism=2"], env={}, screen=screen
    )
    assert "limit_samples: 7" in found.text
    assert "parallelism: 2" in found.text
    assert found.would_stop == ()
    says(screen.getvalue(), "warning: ", "without an effect", "config.params: task")
    assert (capsys.readouterr().out, list(tmp_path.iterdir())) == ("", [file])
    own = {
        "config.type": "shc_bmt_med",
        "config.params.extra.data_path": str(tmp_path / "none.csv"),
    }
    other = {"config.params.extra.stop_when.differs_from": str(tmp_path / "none")}
    first, second = api.dry_run(flags={**MINIMAL, **own, **other}, env={}).would_stop
    assert second.startswith("config.params.extra.stop_when.differs_from: no finished run: ")
    assert first.startswith("config.params.extra.data_path: "), (
        "what is wrong with the user's data is told, not raised"
    )


def test_all_that_it_promises_is_there() -> None:
    assert set(api.__all__) == {
        "BatchChoice",
        "BusyError",
        "Calibrated",
        "CellReport",
        "Compared",
        "ConfigError",
        "DryRun",
        "EvalFactoryError",
        "Evaluated",
        "Finding",
        "GateResult",
        "HelmError",
        "InterruptedRunError",
        "NotReportableError",
        "Options",
        "ParameterInfo",
        "PrerequisiteError",
        "Reproduction",
        "Reran",
        "StoredResult",
        "SuiteOptions",
        "SuiteReport",
        "TaskInfo",
        "Verified",
        "calibrate",
        "cancel_batches",
        "compare",
        "dry_run",
        "estimate",
        "evaluate",
        "export_pages",
        "gate",
        "list_tasks",
        "load_result",
        "Submitted",
        "reproduce",
        "rescore",
        "run_again",
        "run_suite",
        "served_pages",
        "submit",
        "verify",
    }
    assert all(hasattr(api, name) for name in api.__all__)


def test_the_package_offers_what_is_used_most() -> None:
    names = set(eval_factory.__all__)
    assert (
        {"evaluate", "run_suite", "compare", "load_result", "list_tasks", "ConfigError"}
        < names
        < set(dir(eval_factory))
    )
    assert names - {"__version__"} <= set(api.__all__)
    for name in names:
        assert getattr(eval_factory, name) is getattr(api, name, eval_factory.__version__)
    with pytest.raises(AttributeError, match=naming("'eval_factory'", "'evaluat'")):
        _ = eval_factory.evaluat  # type: ignore[attr-defined]


def test_every_error_of_an_exit_code_can_be_caught_by_its_name() -> None:
    known = {
        name: kind
        for name, kind in vars(errors).items()
        if getattr(kind, "__module__", "") == errors.__name__
    }
    kinds = {
        name: kind
        for name, kind in known.items()
        if isinstance(kind, type) and issubclass(kind, EvalFactoryError)
    }
    offered = {getattr(api, name) for name in kinds.keys() & set(api.__all__)}
    assert {kind.exit_code for kind in offered} == {kind.exit_code for kind in kinds.values()}


DOCUMENT: dict[str, Any] = {
    "config": {"type": "pubmed_qa", "output_dir": "results/x", "params": {"limit_samples": 7}},
    "target": {
        "api_endpoint": {
            "url": "https://host.example/v1",
            "model_id": "org/model",
            "api_key_name": "MY_KEY",
        }
    },
}


def test_a_mapping_is_a_run_config_and_stays_as_it_is() -> None:
    given = copy.deepcopy(DOCUMENT)
    text = api.dry_run(given, env={}).text
    assert "limit_samples: 7" in text
    assert "api_key: MY_KEY" in text
    assert given == DOCUMENT


def test_what_is_wrong_with_a_mapping_is_said_without_a_file(tmp_path: Path) -> None:
    wrong = copy.deepcopy(DOCUMENT)
    wrong["config"]["params"] = {"limit_sample": 7, "parallelism": 0}
    with pytest.raises(ConfigError) as told:
        api.evaluate(wrong, env={})
    first, second = sorted(told.value.problems)
    assert first.startswith("config.params.parallelism: ")
    says(second, "config.params.limit_sample", "'limit_samples'?")
    with pytest.raises(ConfigError, match=r"^config.type: is missing"):
        api.evaluate({}, env={})
    with pytest.raises(PrerequisiteError):
        api.load_result(tmp_path)


@pytest.mark.parametrize("name", ["evaluate", "dry_run"])
def test_the_output_folder_is_over_file_and_flags(name: str, asked: list[Any]) -> None:
    flags = {"config.output_dir": "b", "config.params.limit_samples": 1}
    for folder in ("c", Path("c")):
        with pytest.raises(Asked):
            getattr(api, name)(DOCUMENT, output_dir=folder, flags=flags, overrides="x=1,y=2")
        request = asked.pop()[0]
        assert request.flags == {"config.output_dir": "c", "config.params.limit_samples": 1}
        assert request.document is DOCUMENT
        assert request.run_config is None
        assert request.overrides == ("x=1,y=2",)
    assert flags["config.output_dir"] == "b"


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Suite, SuiteOptions]]:
    """Return a list that gets the arguments of each call of the suite runner."""
    found: list[tuple[Suite, SuiteOptions]] = []

    def run(suite: Suite, options: SuiteOptions, **_: Any) -> None:
        found.append((suite, options))
        raise Asked

    monkeypatch.setattr("eval_factory.workflows.suite.run_suite.run_suite", run)
    return found


ENDPOINT = {"url": "https://host.example/v1", "model_id": "m", "type": "chat"}
TARGETS = [{"name": "t", "api_endpoint": ENDPOINT}]
SUITE: dict[str, Any] = {
    "suite": {"output_dir": "a", "evaluations": ["pubmed_qa", "medec"], "targets": TARGETS}
}


def test_a_suite_is_a_mapping_a_file_or_a_preset(
    suites: list[Any], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "suite.yml"
    given = copy.deepcopy(SUITE)
    texts = ("x", "y")
    file.write_text(yaml.safe_dump(SUITE))
    flags = {"suite.output_dir": "b", "suite.params.limit_samples": 3}
    for run_config in (given, file, str(file)):
        with pytest.raises(Asked):
            api.run_suite(run_config, output_dir=Path("c"), flags=flags, env={})
    with pytest.raises(Asked):
        api.run_suite(preset="smoke", output_dir="d", env={}, options=SuiteOptions(reuse=texts))  # type: ignore[arg-type]
    of_mapping, of_file, of_text, of_preset = (asked[0] for asked in suites)
    assert of_mapping.document == of_file.document == of_text.document
    assert [cell.name for cell in of_mapping.cells] == ["t/pubmed_qa", "t/medec"]
    assert (of_mapping.folder.root, of_preset.folder.root) == (tmp_path / "c", tmp_path / "d")
    assert of_mapping.cells[0].document["config"]["params"]["limit_samples"] == 3
    assert "demo_chat/sample_medical_qa" in [cell.name for cell in of_preset.cells]
    assert suites[-1][1].reuse == (Path("x"), Path("y"))
    assert (given, flags["suite.output_dir"]) == (SUITE, "b")


def test_what_is_wrong_with_a_suite_is_raised(tmp_path: Path) -> None:
    for wrong in ({}, {"suite": {"targets": {1}}}, tmp_path / "none.yml"):
        with pytest.raises(ConfigError):
            api.run_suite(wrong, env={})
    with pytest.raises(ConfigError, match=naming("'smok'", "'smoke'")):
        api.run_suite(preset="smok", output_dir="x", env={})
    with pytest.raises(ConfigError, match=naming("compare: ", "two folders")):
        api.compare("results")  # a text is one folder, not a sequence of letters


WRONG: dict[str, Any] = {
    "nothing": {},
    "no mapping in it": {"config": 7, "target": []},
    "a file that is not there": "no/such/file.yml",
    "a folder": "/",
    "an unknown task": {**DOCUMENT, "config": {"type": "no such task", "output_dir": "x"}},
    "an unknown run spec": {**DOCUMENT, "config": {"type": "helm:no_such", "output_dir": "x"}},
    "a key in the place of its name": {
        **DOCUMENT,
        "target": {
            "api_endpoint": {"url": "u", "model_id": "m", "api_key": "sk-0123456789abcdef0123"}
        },
    },
    "no key": DOCUMENT,
    "a folder that cannot be": {
        **DOCUMENT,
        "config": {**DOCUMENT["config"], "output_dir": "/proc/no/such"},
    },
    "a benchmark that is not there": {
        **DOCUMENT,
        "config": {
            "type": "custom",
            "output_dir": "x",
            "params": {"extra": {"benchmark": "no.yaml"}},
        },
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_raised_and_ends_no_process(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EvalFactoryError) as told:
        api.evaluate(WRONG[name], env={})
    assert told.value.exit_code in (2, 3)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_an_estimate_is_of_the_merged_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "eval_factory.workflows.estimate.estimate", lambda evaluation, env: (evaluation, env)
    )
    found: Any = api.estimate(flags={**MINIMAL, "config.params.limit_samples": 7}, env={"A": "b"})
    assert (found[0].run.config.params.limit_samples, found[1]) == (7, {"A": "b"})


@pytest.mark.parametrize(
    ("judge_labels", "judge"), [("a", ["x", "y"]), (["a", "b"], "x")], ids=["names", "fields"]
)
def test_calibrate_refuses_names_of_judges_that_it_would_not_use(
    judge_labels: Any, judge: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="--judge"):
        api.calibrate(tmp_path / "labels.jsonl", judge_labels=judge_labels, judge=judge)
