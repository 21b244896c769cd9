"""Files that a configuration names: what is no regular file is neither waited for nor read."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import AfterValidator, BaseModel

from builders import MINIMAL
from eval_factory.analysis.gate_policy import PolicyFile, load_policy
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.model import RunConfig
from eval_factory.config.suite import build_suite
from eval_factory.config.suite_model import SuiteSection
from eval_factory.core import safe_files
from eval_factory.core.errors import ConfigError, EvalFactoryError
from eval_factory.core.safe_files import expand_home
from eval_factory.data.bundle import read_manifest
from eval_factory.monitor.panel import PanelSection
from eval_factory.plan import credentials
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks import custom_benchmark, own_data
from eval_factory.tasks.framework import DATA_PATH_PARAMETER, Task, load_framework
from eval_factory.workflows.stop_when import faults_of_user_files
from eval_factory.workflows.suite.planned_cells import plan_cells

TYPES = {"benchmark": "custom", "judge_passport": "healthbench"}
EXTRA = "config.params.extra."


def path_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The keys below a model whose values are paths."""
    for name, field in model.model_fields.items():
        yield from _paths_of((field.annotation, *field.metadata), f"{prefix}{name}")


def _paths_of(parts: Any, key: str) -> Iterator[str]:
    for part in parts:
        if isinstance(part, AfterValidator) and part.func is expand_home:
            yield key
        elif isinstance(part, type) and issubclass(part, BaseModel):
            yield from path_keys(part, f"{key}.")
        else:
            yield from _paths_of((*get_args(part), *getattr(part, "__metadata__", ())), key)


def files_of(benchmark: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The keys of a custom benchmark's schema that name files."""
    for name, value in benchmark.items():
        if name.endswith("_file"):
            yield f"{prefix}{name}"
        elif isinstance(value, list):
            yield from files_of(value[0], f"{prefix}{name}.0.")


class WaitedForFileError(BaseException):
    """A file that is no file was waited for; nothing that handles errors takes it for one."""


@pytest.fixture
def _no_waiting() -> Iterator[None]:
    def end(*_: object) -> None:
        raise WaitedForFileError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(17 << 30)  # takes no block of the disk


NO_FILES: list[Callable[[Path], None]] = [fifo, device, large]
NAMES_IN_FOLDERS = {
    EXTRA + "judge_passport": "judge_passport.yaml",
    EXTRA + "data_dir": "manifest.json",
    EXTRA + "stop_when.differs_from": "evaluation_config.yaml",
}
"""Key of a folder -> the file in it that is read first."""


def looked_at(flags: Mapping[str, Any]) -> list[str]:
    """Return what is wrong, as a dry run and then a run say it."""
    problems: list[str] = []
    with suppress(TimeoutError):
        try:
            request = RunRequest(flags={**MINIMAL, **flags})
            plan = make_plan(build_evaluation(request, load_framework(), {"OPENAI_API_KEY": "x"}))
            problems += map(str, faults_of_user_files(plan))
            if (data_dir := plan.evaluation.run.config.params.extra.data_dir) is not None:
                read_manifest(Path(data_dir))
        except EvalFactoryError as error:
            problems.append(str(error))
        return problems
    raise AssertionError(f"waited: {flags}")


KEYS = sorted(set(path_keys(RunConfig)) - {"config.output_dir", EXTRA + DATA_PATH_PARAMETER})


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("made", NO_FILES)
@pytest.mark.parametrize("key", KEYS)
def test_each_path_of_a_run_config(key: str, made: Callable[[Path], None], tmp_path: Path) -> None:
    name = key.rpartition(".")[2]
    file = tmp_path / NAMES_IN_FOLDERS.get(key, "named")
    made(file)
    value = str(tmp_path if key in NAMES_IN_FOLDERS else file)
    flags = {"config.type": TYPES.get(name, "pubmed_qa"), key: value}
    (problem, *_) = looked_at(flags)
    assert str(file) in problem or file.name in problem


TASKS = [
    task for task in load_framework().evaluations if DATA_PATH_PARAMETER in task.helm.parameters
]


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("made", NO_FILES)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_each_file_of_data_path(task: Task, made: Callable[[Path], None], tmp_path: Path) -> None:
    """Those of all tasks, by their layouts: each format has a reader of its own."""
    rule = task.helm.parameters[DATA_PATH_PARAMETER]
    values = {"subject": "x", "condition": "no_context", "subset": "x"}
    names = [entry.with_values(values).file for entry in rule.layout]
    if names[0] is None:
        made(tmp_path / "named")
        assert own_data.problems_of_data(rule.layout, tmp_path / "named", values)
        return
    for name in names:
        file = tmp_path / str(name).replace("*", "1")
        file.parent.mkdir(parents=True, exist_ok=True)
        made(file)
    assert own_data.problems_of_data(rule.layout, tmp_path, values)


def test_all_paths_are_walked() -> None:
    assert {"config.params.extra.benchmark", *NAMES_IN_FOLDERS} == set(KEYS)


TABLE = {
    "name": "mine",
    "description": "d",
    "prompt_file": "prompt.txt",
    "dataset_file": "data.csv",
    "metrics": [{"name": "jury_score", "prompt_file": "judge.txt"}, {"name": "exact_match"}],
}
CONVERSATIONS = {
    "name": "mine",
    "description": "d",
    "dataset_file": "data.jsonl",
    "metrics": [{"name": "exact_match"}],
}
RUBRIC = {"kind": "rubric", "name": "mine", "description": "d", "dataset_file": "cases.jsonl"}
CASES: list[tuple[Any, Any]] = []
for _document in (TABLE, CONVERSATIONS, RUBRIC):
    CASES += [(_document, key) for key in files_of(_document)]


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("made", NO_FILES)
@pytest.mark.parametrize(("document", "key"), CASES)
def test_each_file_of_a_custom_benchmark(
    document: dict[str, Any], key: str, made: Callable[[Path], None], tmp_path: Path
) -> None:
    texts = {
        "prompt.txt": "{question}\n",
        "data.csv": "question,correct_answer\nOne?,A\n",
        "judge.txt": 'Rate {RESPONSE} {QUESTION} {GOLD_RESPONSE}\n{"accuracy": {"score": 3}}\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bench.yaml").write_text(yaml.safe_dump(document))
    value: Any = document
    for part in key.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    (tmp_path / value).unlink(missing_ok=True)
    made(tmp_path / value)
    with pytest.raises(EvalFactoryError, match=str(value)):
        custom_benchmark.load_benchmark(tmp_path / "bench.yaml")


def test_the_schema_of_a_custom_benchmark_names_no_other_file() -> None:
    names = set()
    for model in (
        custom_benchmark._TableFile,
        custom_benchmark._RubricFile,
        custom_benchmark._Metric,
    ):
        names |= {name for name in model.model_fields if "file" in name}
    assert names == {"prompt_file", "dataset_file"}
    assert {key.rpartition(".")[2] for _, key in CASES} == names


SUITE_KEYS = {"output_dir", "extends", "reuse.folder"}
PANEL_KEYS = {"output_dir", "change.policy"}
"""The output folder is ours, a reused result is read as each result is; the others as below."""


def test_all_paths_of_suites_panels_and_policies_are_walked() -> None:
    """`params` of suites and panels are those of a run config, and read as those are."""
    assert set(path_keys(SuiteSection)) == SUITE_KEYS
    assert set(path_keys(PanelSection)) == PANEL_KEYS
    assert set(path_keys(PolicyFile)) == set()


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("made", NO_FILES)
def test_a_suite_that_extends_no_file(made: Callable[[Path], None], tmp_path: Path) -> None:
    made(tmp_path / "base.yml")
    file = tmp_path / "suite.yml"
    file.write_text("suite: {extends: base.yml}\n")
    with pytest.raises(ConfigError, match=r"base\.yml"):
        build_suite(file, env={})


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("made", NO_FILES)
@pytest.mark.parametrize("key", sorted(set(KEYS) - set(NAMES_IN_FOLDERS)))
def test_each_path_of_a_suites_params(
    key: str, made: Callable[[Path], None], tmp_path: Path
) -> None:
    name = key.rpartition(".")[2]
    made(tmp_path / "named")
    endpoint = {"url": "http://127.0.0.1:1/v1", "model_id": "m", "type": "chat", "api_key": None}
    section = {
        "output_dir": str(tmp_path / "out"),
        "evaluations": [
            {"type": TYPES[name], "params": {"extra": {name: str(tmp_path / "named")}}}
        ],
        "targets": [{"name": "a", "api_endpoint": endpoint}],
    }
    with pytest.raises(EvalFactoryError, match="named"):
        plan_cells(build_suite(None, document={"suite": section}, env={}), {})


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("made", NO_FILES)
@pytest.mark.parametrize("name", ["policy.yml", "policy.yml.lock"])
def test_a_gates_policy_and_its_lock(
    name: str, made: Callable[[Path], None], tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yml"
    if name != policy.name:
        policy.write_text("version: 1\nbenchmarks: {pubmed_qa: {min: 0.5}}\n")
    made(tmp_path / name)
    with pytest.raises(ConfigError, match=name):
        load_policy(policy)


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("made", NO_FILES)
def test_helms_credentials_beside_a_command(
    made: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "credentials.conf")
    if (tmp_path / "credentials.conf").is_file():
        with pytest.raises(ConfigError, match=r"credentials\.conf"):
            credentials._read_helm_credentials({})
    else:  # a FIFO or a device is no such file
        assert credentials._read_helm_credentials({}) == ("", {})


def test_a_text_has_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("12345")
    assert safe_files.read_text(file, max_size=5) == "12345"
    with pytest.raises(OSError, match="larger"):
        safe_files.read_text(file, max_size=4)
