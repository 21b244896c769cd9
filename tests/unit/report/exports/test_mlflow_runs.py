"""A stored result -> a run of MLflow. MLflow is not installed here: a client that writes down what it is asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.report.exports.mlflow_runs import ENVIRONMENT, log_mlflow_run, mlflow_client
from eval_factory.report.exports.tracked_runs import tracked_run
from eval_factory.report.inner_hosts import files_without_hosts, inner_hosts
from eval_factory.report.reader import load_result
from facts import naming
from unit.report.exports.test_stored_facts import (
    folder_of,
    imported_of,
    not_reportable,
    stored_of,
    with_scores,
)


class ServerError(Exception):
    """What MLflow raises."""


@dataclass
class Client:
    """A server's runs, and each call."""

    uri: str = ""
    fails_at: str = ""
    error: type[Exception] = ServerError
    experiments: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(run_id: str, *values: Any) -> None:
            if name == self.fails_at:
                raise self.error("no")
            self.runs[int(run_id)].setdefault(name, []).append(values)

        return call

    def get_experiment_by_name(self, name: str) -> Any:
        return (
            SimpleNamespace(experiment_id=self.experiments[name])
            if name in self.experiments
            else None
        )

    def create_experiment(self, name: str) -> str:
        self.experiments[name] = f"of {name}"
        return self.experiments[name]

    def search_runs(
        self, experiments: list[str], filter_string: str, max_results: int
    ) -> list[Any]:
        def fits(run: dict[str, Any]) -> bool:
            of_result = f"tags.`eval_factory.result` = '{run['tags']['eval_factory.result']}'"
            asked = f"{of_result} and attributes.status = '{run.get('status')}'"
            return (experiments, filter_string) == ([run["experiment"]], asked)

        numbers = [str(number) for number, run in enumerate(self.runs) if fits(run)]
        return [SimpleNamespace(info=SimpleNamespace(run_id=number)) for number in numbers][
            :max_results
        ]

    def create_run(self, experiment_id: str, tags: dict[str, str], run_name: str) -> Any:
        self.runs.append({"experiment": experiment_id, "tags": tags, "name": run_name})
        return SimpleNamespace(info=SimpleNamespace(run_id=str(len(self.runs) - 1)))

    def set_terminated(self, run_id: str, status: str) -> None:
        self.runs[int(run_id)]["status"] = status


@pytest.fixture(autouse=True)
def mlflow(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package: Any = ModuleType("mlflow")
    package.MlflowClient = lambda tracking_uri: Client(tracking_uri)
    package.exceptions = ModuleType("mlflow.exceptions")
    package.exceptions.MlflowException = ServerError
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", package.exceptions)
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    found: ModuleType = package
    return found


def test_what_a_run_says_and_whether_it_may_be_reported() -> None:
    stored = stored_of("pubmed_qa", extra={"subject": "s" * 900})
    run = tracked_run(stored, with_texts=False)
    assert run.name == "pubmed_qa org/model"
    stats = stored.result.scores["exact_match"].stats
    assert run.metrics == {
        "exact_match": 0.5,
        "exact_match.ci_low": stats.ci_low,
        "exact_match.ci_high": stats.ci_high,
        "exact_match.count": 4.0,
        "instances.requested": 4.0,
        "instances.scored": 4.0,
        "instances.failed": 0.0,
    }
    told = {
        "task": "pubmed_qa",
        "model": "org/model",
        "params.parallelism": "4",
    }
    assert run.params.items() >= {**told, "params.extra.subject": "s" * 500}.items()
    assert "params.limit_samples" not in run.params  # null
    provenance = stored.result.provenance
    assert run.tags["eval_factory.run_identity"] == provenance.run_identity
    assert (run.tags["eval_factory.version"], run.tags["helm.version"]) == (
        provenance.eval_factory,
        "0.5.16",
    )
    assert run.tags["helm.package"] == "crfm-helm"
    assert (run.tags["eval_factory.reportable"], run.tags["eval_factory.data_access"]) == (
        "true",
        "public",
    )
    assert "eval_factory.not_reportable" not in run.tags
    assert "eval_factory.imported_from" not in run.tags
    tags = tracked_run(imported_of("pubmed_qa"), with_texts=False).tags
    assert tags["eval_factory.imported_from"] == "inspect_ai 0.3.2"
    assert not {"helm.version", "helm.package"} & set(tags)
    tags = tracked_run(not_reportable(stored_of("pubmed_qa"), "r" * 9000), with_texts=False).tags
    assert tags["eval_factory.reportable"] == "false"
    assert tags["eval_factory.not_reportable"] == "r" * 5000


def test_names_are_what_mlflow_takes_and_numbers_are_finite() -> None:
    stored = stored_of("pubmed_qa")
    score = stored.result.scores["exact_match"]
    odd = replace(
        score, value=float("nan"), stats=replace(score.stats, ci_low=None, ci_high=float("inf"))
    )
    run = tracked_run(
        with_scores(stored, **{"exact_match@test+typos": score, "odd": odd}), with_texts=False
    )
    assert run.metrics["exact_match/test_typos"] == 0.5
    assert {name for name in run.metrics if name.startswith("odd")} == {"odd.count"}
    nested = replace(
        stored, config={"params": {"extra": {"judges": [{"a": 1}], "a:b": {"c@d": 0}}}}
    )
    params = tracked_run(nested, with_texts=False).params
    assert (params["params.extra.judges"], params["params.extra.a_b.c/d"]) == ("[{'a': 1}]", "0")


@pytest.mark.parametrize(
    ("task", "with_texts", "answers"),
    [
        ("pubmed_qa", False, True),
        ("ehrshot", False, False),
        ("custom.x", False, False),
        ("ehrshot", True, True),
    ],
)
def test_of_what_answers_are_sent(
    task: str, with_texts: bool, answers: bool, tmp_path: Path
) -> None:
    stored = load_result(folder_of(tmp_path, task))
    names = [path.name for path in tracked_run(stored, with_texts=with_texts).artifacts]
    assert names == [
        "evaluation_config.yaml",
        "report.md",
        *(["report.html", "results.jsonl"] if answers else []),
    ]
    (stored.folder / "report.md").unlink()
    assert "report.md" not in [
        path.name for path in tracked_run(stored, with_texts=with_texts).artifacts
    ]


def test_the_same_result_is_sent_once(tmp_path: Path) -> None:
    run = tracked_run(load_result(folder_of(tmp_path, "pubmed_qa")), with_texts=False)
    client = Client()
    assert log_mlflow_run(run, client, "mine") == ("0", False)
    assert log_mlflow_run(run, client, "mine") == ("0", True)
    (sent,) = client.runs
    names = [Path(file).name for (file,) in sent.pop("log_artifact")]
    assert names == [path.name for path in run.artifacts]
    assert sent == {
        "experiment": "of mine",
        "status": "FINISHED",
        "tags": dict(run.tags),
        "name": run.name,
        "log_param": list(run.params.items()),
        "log_metric": list(run.metrics.items()),
    }
    assert log_mlflow_run(run, client, "other") == ("1", False)
    stored = stored_of("pubmed_qa")
    other = tracked_run(
        with_scores(stored, other=stored.result.scores["exact_match"]), with_texts=False
    )
    assert log_mlflow_run(other, client, "mine") == ("2", False)


@pytest.mark.parametrize("call", ["log_param", "log_metric", "log_artifact"])
@pytest.mark.parametrize("error", [ServerError, ConnectionError])
def test_what_was_not_sent_whole_is_sent_again(
    call: str, error: type[Exception], tmp_path: Path
) -> None:
    run = tracked_run(load_result(folder_of(tmp_path, "pubmed_qa")), with_texts=False)
    client = Client(fails_at=call, error=error)
    with pytest.raises(
        PrerequisiteError, match=naming("MLflow", "pubmed_qa org/model: no", "--tracking_uri")
    ):
        log_mlflow_run(run, client, "mine")
    assert client.runs[0]["status"] == "FAILED"
    client.fails_at = ""
    assert log_mlflow_run(run, client, "mine") == ("1", False)


def test_a_defect_of_ours_is_not_the_servers() -> None:
    client = Client(fails_at="log_param", error=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        log_mlflow_run(tracked_run(stored_of("pubmed_qa"), with_texts=False), client, "mine")
    assert client.runs[0]["status"] == "FAILED"


def test_a_client_tells_nobody_else_and_gives_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "9")
    assert mlflow_client("http://host.example").uri == "http://host.example"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "9"


def test_without_mlflow_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(PrerequisiteError, match=r"pip install 'mlflow-skinny>=2.14'"):
        mlflow_client("http://host.example")


@pytest.mark.parametrize("error", [ServerError, ImportError])
def test_an_address_not_known(
    error: type[Exception], mlflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def client(tracking_uri: str) -> None:
        raise error("unknown scheme")

    monkeypatch.setattr(mlflow, "MlflowClient", client)
    with pytest.raises(PrerequisiteError, match="--tracking_uri odd://x: unknown scheme\n"):
        mlflow_client("odd://x")


def test_no_inner_host_leaves_in_parameters_or_files(tmp_path: Path) -> None:
    """Neither the model's nor a judge's: not in the configuration, nor in the pages."""
    folder = folder_of(tmp_path, "pubmed_qa")
    stored = load_result(folder)
    hosts = {"llm-3.ward.hospital.internal", "gpu07", "10.1.2.3"}
    judges = [
        {"name": "a", "url": "https://gpu07:8000/v1"},
        {"name": "b", "url": "http://10.1.2.3"},
    ]
    target = {"api_endpoint": {"url": "https://LLM-3.ward.hospital.internal:8443/v1"}}
    named = replace(stored, config={"params": {"extra": {"judges": judges}}}, target=target)
    page = folder / "report.md"
    page.write_text("asked llm-3.ward.hospital.internal:8443; gpu07 is a word, http://gpu07/v1\n")
    run = tracked_run(named, with_texts=True)
    assert set(run.inner_hosts) >= hosts
    assert not any(host in str(run.params) for host in hosts)
    with files_without_hosts(run.artifacts, run.inner_hosts) as files:
        texts = {file.name: file.read_text() for file in files}
    assert list(texts) == [path.name for path in run.artifacts]
    assert texts["report.md"] == "asked inner-host:8443; gpu07 is a word, http://inner-host/v1\n"


@pytest.mark.parametrize("host", ["api.openai.com", "127.0.0.1:8000", "localhost:80"])
def test_a_public_platform_and_this_machine_are_no_inner_hosts(host: str) -> None:
    target = {"api_endpoint": {"url": f"http://{host}/v1"}}
    stored = replace(stored_of("pubmed_qa"), target=target)
    assert host.partition(":")[0] not in inner_hosts(stored)
