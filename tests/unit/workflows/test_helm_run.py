"""What helm-run may see, what it is told, and what its end means; its executor is one that starts nothing."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from eval_factory.config.evaluation import Evaluation
from eval_factory.core import logs
from eval_factory.core.errors import InterruptedRunError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import REDACTED
from eval_factory.endpoint import sign_in
from eval_factory.executors import progress as local_executor
from eval_factory.executors.process import Execution, Finished, ProcessSpec
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.helm_run import HelmRun, run_helm
from unit.builders import context, evaluation

ENV = {
    "PATH": "/bin", "MY_KEY": "the-key-itself-1", "SECRET_OF_OTHERS": "x", "https_proxy": "http://proxy:1",
    "HTTP_PROXY": "http://proxy:2", "HF_TOKEN": "hub-token-1", "OPENAI_TOKEN_URL": "https://tokens.example",
}  # fmt: skip


class FakeExecutor:
    """Keeps what it was to run, and ends as it is told."""

    def __init__(self, returncode: int = 0, told: Sequence[Mapping[str, Any]] = (), tail: Sequence[str] = ()) -> None:
        self.specs: list[ProcessSpec] = []
        self.screens: list[TextIO] = []
        self._ended = Execution(Finished(returncode, tuple(tail)), 2.5, tuple(told))

    def run(self, spec: ProcessSpec, screen: TextIO, on_event: Any = None) -> Execution:
        self.specs.append(spec)
        self.screens.append(screen)
        return self._ended


class Interrupted(FakeExecutor):
    def run(self, spec: ProcessSpec, screen: TextIO, on_event: Any = None) -> Execution:
        raise KeyboardInterrupt


@pytest.fixture
def here(tmp_path: Path) -> RunContext:
    return replace(context(RunDir(tmp_path / "out"), lock=object()), env=ENV)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # tokens are kept in the working folder


def with_key(**flags: Any) -> Evaluation:
    return evaluation({"target.api_endpoint.api_key": "MY_KEY", **flags})


def run(
    here: RunContext, executor: FakeExecutor, settings: HelmRunSettings | None = None, of: Evaluation | None = None
) -> HelmRun:
    return run_helm(here, of or with_key(), ["helm-run", "-c", "x"], settings or HelmRunSettings(), executor=executor)


def test_it_runs_what_it_was_given_in_the_folder_that_is_held(here: RunContext) -> None:
    executor = FakeExecutor(3, tail=["last line"])
    ended = run(here, executor)
    (spec,), (screen,) = executor.specs, executor.screens
    assert (list(spec.argv), spec.rundir, spec.lock, spec.redactor) == (
        ["helm-run", "-c", "x"], here.rundir, here.lock, here.redactor,
    )  # fmt: skip
    assert screen is here.screen
    assert (ended.returncode, ended.wall_s, ended.tail) == (3, 2.5, ("last line",))
    assert ended.run_id == spec.run_id


def test_each_run_has_an_id_of_its_own_and_ends_with_this_process(here: RunContext) -> None:
    executor = FakeExecutor()
    ids = [run(here, executor).run_id for _ in range(2)]
    assert len(set(ids)) == 2
    for spec, run_id in zip(executor.specs, ids, strict=True):
        assert spec.env["EVAL_FACTORY_RUN_ID"] == run_id
        assert spec.env["EVAL_FACTORY_PARENT"] == str(os.getpid())


def test_it_sees_the_keys_of_its_configuration_and_no_others(here: RunContext) -> None:
    executor = FakeExecutor()
    run(here, executor)
    seen = executor.specs[0].env
    assert seen["MY_KEY"] == "the-key-itself-1"
    assert seen["HF_TOKEN"] == "hub-token-1"
    assert "SECRET_OF_OTHERS" not in seen
    assert "OPENAI_TOKEN_URL" not in seen
    run(here, executor, of=with_key(**{"target.api_endpoint.oauth": "openai"}))
    assert executor.specs[1].env["OPENAI_TOKEN_URL"] == "https://tokens.example"


def test_what_it_is_told_is_in_its_environment(here: RunContext) -> None:
    executor = FakeExecutor()
    run(here, executor, HelmRunSettings(probed=frozenset({"model"}), libraries={"HF_HOME": "/data"}))
    seen = executor.specs[0].env
    assert json.loads(seen["EVAL_FACTORY_PROBED"]) == ["model"]
    assert seen["HF_HOME"] == "/data"


def test_offline_it_does_not_see_the_proxies(here: RunContext) -> None:
    executor = FakeExecutor()
    run(here, executor)
    run(here, executor, HelmRunSettings(allowed=()))
    online, offline = (spec.env for spec in executor.specs)
    assert (online["https_proxy"], online["HTTP_PROXY"]) == ("http://proxy:1", "http://proxy:2")
    assert not {"https_proxy", "HTTP_PROXY"} & offline.keys()


def test_events_are_part_of_what_it_came_to(here: RunContext, caplog: pytest.LogCaptureFixture) -> None:
    told = [
        {"event": logs.RUN_DONE, "path": "runs/v1/a"},
        {"event": logs.BLOCKED, "place": "github.com:443"},
        {"event": logs.RUN_DONE, "path": "runs/v1/b"},
    ]
    with caplog.at_level(logging.INFO, "test"):
        ended = run(here, FakeExecutor(-9, told))
    assert told == list(ended.events)
    assert ended.finished_runs(Path("/helm")) == (Path("/helm/runs/v1/a"), Path("/helm/runs/v1/b"))
    assert caplog.messages == [
        "helm-run ended with -9 after 2.5 s",
        "offline: something wanted github.com:443; it was not contacted",
    ]


def test_an_interruption_says_what_is_kept(here: RunContext, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "test"), pytest.raises(InterruptedRunError) as caught:
        run(here, Interrupted())
    assert str(caught.value) == (
        f"interrupted; what was answered is kept in {here.rundir.cache_db}\n  run the same command again to go on"
    )
    assert caplog.messages == ["interrupted"]


def test_a_token_that_helm_run_got_is_redacted_from_now_on(here: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"openai": "a-new-token-of-a-service"}
    monkeypatch.setattr(sign_in, "cached_token", lambda oauth, env: kept[oauth.service] if "PATH" in env else None)
    run(here, FakeExecutor())
    assert here.redactor.text(kept["openai"]) == kept["openai"]
    run(here, FakeExecutor(), of=with_key(**{"target.api_endpoint.oauth": "openai"}))
    assert here.redactor.text(kept["openai"]) == REDACTED


@pytest.mark.parametrize(
    ("returncode", "run_id", "said"),
    [(1, "mine", "the disk is full"), (1, "other", None), (0, "mine", None)],
)
def test_last_words_are_this_runs_and_of_one_that_failed(returncode: int, run_id: str, said: str | None) -> None:
    tail = ("a line", logs.last_words("the disk is full", {"EVAL_FACTORY_RUN_ID": run_id}), "another")
    assert HelmRun("mine", 1.0, returncode, tail, ()).last_words == said


def test_without_an_executor_it_is_the_local_one(here: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    local = FakeExecutor(5)
    monkeypatch.setattr(local_executor, "LocalExecutor", lambda: local)
    ended = run_helm(replace(here, screen=io.StringIO()), with_key(), ["helm-run"], HelmRunSettings())
    assert (ended.returncode, len(local.specs)) == (5, 1)
