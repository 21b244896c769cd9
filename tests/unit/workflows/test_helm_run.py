"""The environment, the settings and the end of helm-run; the executor here starts nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from builders import context, evaluation, plan
from eval_factory.config.resolved import Evaluation
from eval_factory.core import logs
from eval_factory.core.budget import Budget, Spending
from eval_factory.core.errors import (
    ConfigError,
    HelmError,
    InterruptedRunError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.logs import ASKING, JUDGING, LOADING, SCORING
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import REDACTED
from eval_factory.endpoint import sign_in
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.executors.process import FinishedProcess, ProcessSpec
from eval_factory.workflows import helm_run as module
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.helm_run import (
    EndedHelmRun,
    early_failure,
    explained_failure,
    limit_messages,
    run_helm,
)
from facts import each_says, says

ENV = {
    "PATH": "/bin",
    "MY_KEY": "the-key-itself-1",
    "SECRET_OF_OTHERS": "x",
    "https_proxy": "http://proxy:1",
    "HTTP_PROXY": "http://proxy:2",
    "HF_TOKEN": "hub-token-1",
    "OPENAI_TOKEN_URL": "https://tokens.example",
}


class FakeExecutor:
    """Keeps what it was to run, and ends as it is told."""

    def __init__(self, returncode: int | None = 0, told: Sequence[Mapping[str, Any]] = ()) -> None:
        self.specs: list[ProcessSpec] = []
        self.returncode = returncode
        self.told = tuple(told)

    def run(
        self, spec: ProcessSpec, screen: TextIO
    ) -> tuple[FinishedProcess, tuple[Mapping[str, Any], ...]]:
        self.specs.append(spec)
        if self.returncode is None:
            raise KeyboardInterrupt
        return FinishedProcess(self.returncode, ()), self.told


@pytest.fixture
def here(tmp_path: Path) -> RunContext:
    return replace(context(RunDir(tmp_path / "out"), lock=object()), env=ENV)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # tokens are kept in the working folder


def with_key(**flags: Any) -> Evaluation:
    return evaluation({"target.api_endpoint.api_key": "MY_KEY", **flags})


def run(
    here: RunContext, executor: FakeExecutor, settings: Any = None, of: Evaluation | None = None
) -> EndedHelmRun:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eval_factory.workflows.helm_run.run_shown", executor.run)
        return run_helm(
            here, of or with_key(), ["helm-run", "-c", "x"], settings or HelmRunSettings()
        )


def test_it_sees_the_keys_of_its_configuration_and_no_others_and_offline_no_proxies(
    here: RunContext,
) -> None:
    executor = FakeExecutor()
    run(here, executor)
    seen = executor.specs[0].env
    assert seen["MY_KEY"] == "the-key-itself-1"
    assert seen["HF_TOKEN"] == "hub-token-1"
    assert "SECRET_OF_OTHERS" not in seen
    assert seen["OPENAI_TOKEN_URL"] == "https://tokens.example", "where the key is refused"
    keyless = FakeExecutor()
    run(here, keyless, of=with_key(**{"target.api_endpoint.api_key": None}))
    assert "OPENAI_TOKEN_URL" not in keyless.specs[0].env
    run(here, executor, of=with_key(**{"target.api_endpoint.oauth": "openai"}))
    assert executor.specs[1].env["OPENAI_TOKEN_URL"] == "https://tokens.example"
    run(here, executor, HelmRunSettings(allowed=()))
    online = executor.specs[0].env
    offline = executor.specs[2].env
    assert (online["https_proxy"], online["HTTP_PROXY"]) == ("http://proxy:1", "http://proxy:2")
    assert not {"https_proxy", "HTTP_PROXY"} & offline.keys()


def test_events_are_part_of_what_it_came_to(
    here: RunContext, caplog: pytest.LogCaptureFixture
) -> None:
    done = {"event": logs.RUN_DONE, "path": "runs/v1/a"}
    told = [done, {"event": logs.BLOCKED, "place": "github.com:443"}]
    with caplog.at_level(logging.INFO, "test"):
        ended = run(here, FakeExecutor(-9, told))
    assert told == list(ended.events)
    first, second = caplog.messages
    says(first, "helm-run", "-9", "0.0 s")
    says(second, "offline: ", "github.com:443", "not contacted")


def test_an_interruption_says_what_is_kept(
    here: RunContext, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "test"), pytest.raises(InterruptedRunError) as caught:
        run(here, FakeExecutor(None))
    kept = f"interrupted; all answers so far are stored in {here.rundir.cache_db}"
    says(str(caught.value), "same command again")
    assert str(caught.value).startswith(f"{kept}\n")
    assert caplog.messages == ["interrupted"]


def test_a_token_that_helm_run_got_is_redacted_from_now_on(
    here: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"openai": "a-new-token-of-a-service"}
    monkeypatch.setattr(
        sign_in, "cached_token", lambda oauth, env: kept[oauth.service] if "PATH" in env else None
    )
    run(here, FakeExecutor())
    assert here.redactor.redact_text(kept["openai"]) == kept["openai"]
    run(here, FakeExecutor(), of=with_key(**{"target.api_endpoint.oauth": "openai"}))
    assert here.redactor.redact_text(kept["openai"]) == REDACTED


@pytest.mark.parametrize(
    ("error", "phase", "kind", "said"),
    [
        (
            "URLError: <urlopen error>",
            LOADING,
            PrerequisiteError,
            "the data of pubmed_qa are unavailable: URLError",
        ),
        ("GatedRepoError: 401", LOADING, PrerequisiteError, "the data of pubmed_qa"),
        ("ConnectionError: no", SCORING, PrerequisiteError, "while it is scoring"),
        (
            "ModuleNotFoundError: No module named 'sacrebleu.metrics'",
            SCORING,
            PrerequisiteError,
            "-m pip install 'sacrebleu~=2.2'",
        ),
        (
            "ModuleNotFoundError: No module named 'torch'",
            LOADING,
            PrerequisiteError,
            "-m pip install 'torch<3.0.0,>=1.13.1'",
        ),
        (
            "ModuleNotFoundError: this metric needs torch",
            SCORING,
            PrerequisiteError,
            "not installed: torch",
        ),
        (
            "OptionalDependencyNotInstalled: Optional dependency gdown is not installed. Please run",
            LOADING,
            PrerequisiteError,
            "-m pip install 'gdown~=5.1'",
        ),
        (
            "LookupError: **** Resource \\x1b[93mpunkt\\x1b[0m not found. Please use the NLTK Downloader",
            SCORING,
            PrerequisiteError,
            "not found. Please use the NLTK Downloader",
        ),
        ("LookupError: unknown encoding", SCORING, HelmError, "HELM failed while pubmed_qa ran"),
        (
            "NoInstancesError: found no instances",
            LOADING,
            PrerequisiteError,
            "the data of pubmed_qa",
        ),
        (
            "DownloadError: https://x could not be downloaded",
            LOADING,
            PrerequisiteError,
            "the data of pubmed_qa",
        ),
        (
            "TypeError: got an unexpected keyword argument 'x'",
            LOADING,
            HelmError,
            "TypeError",
        ),  # a defect, of no user's
        ("ValueError: odd", LOADING, HelmError, "ValueError: odd"),
        ("OpenAIError: Missing credentials", JUDGING, HelmError, "OpenAIError"),
        ("KeyError: 'x'", ASKING, HelmError, "KeyError"),
    ],
)
def test_explained(error: str, phase: str, kind: type[Exception], said: str) -> None:
    failure = explained_failure(plan(), error, phase)
    assert type(failure) is kind
    assert said in str(failure)


def test_what_cannot_be_built_is_not_advised() -> None:
    """HELM's own words advise an extra of its own, and some of these do not build."""
    said = 'Optional dependency odd_one is not installed. Please run `pip install "crfm-helm[summarization]"`'
    text = str(explained_failure(plan(), f"OptionalDependencyNotInstalled: {said}", LOADING))
    assert "crfm-helm[" not in text
    assert "pip install odd_one\n" in text
    says(text, "holds this module")
    says(
        str(explained_failure(plan(), "ImportError: cannot import name 'x' from 'y'", SCORING)),
        "could not import",
    )


def test_judges_that_helm_asks_itself() -> None:
    failure = explained_failure(
        plan({"config.type": "helm:harm_bench"}), "OpenAIError: Missing credentials", JUDGING
    )
    assert isinstance(failure, PrerequisiteError)
    assert "openai/gpt-4o-2024-05-13" in str(failure)


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        (
            ["Traceback", '  File "x.py"', "ModuleNotFoundError: No module 'x'"],
            "ModuleNotFoundError: No module 'x'",
        ),
        (["urllib.error.URLError: <urlopen error>"], "URLError: <urlopen error>"),
        (
            ["helm.common.x.OptionalDependencyNotInstalled: Optional"],
            "OptionalDependencyNotInstalled: Optional",
        ),
        (["AssertionError"], "AssertionError"),
        (["KeyError: 'all'", "and a second line"], "KeyError: 'all' and a second line"),
        (["Exception: Unitxt card must be specified"], "Exception: Unitxt card must be specified"),
        (["all is well", "Error rate: 3"], None),
        ([], None),
    ],
)
def test_the_end_of_a_traceback(tail: list[str], found: str | None) -> None:
    assert module.last_exception(tail) == found


def test_a_run_spec_that_helm_does_not_build() -> None:
    here = plan({"config.type": "helm:legalbench:subset=all"})
    wrong = early_failure(here, 1, ["Traceback", "AssertionError: Unknown subset: all"])
    assert isinstance(wrong, ConfigError)
    assert "AssertionError: Unknown subset: all" in str(wrong)
    for said in (
        "ModuleNotFoundError: No module named 'torchvision'",
        "urllib.error.URLError: <urlopen error>",
    ):
        assert isinstance(early_failure(here, 1, ["Traceback", said]), PrerequisiteError)


def test_an_argument_that_a_scenario_does_not_take() -> None:
    here = plan({"config.type": "helm:mmlu:subject=anatomy,tokenizer=x/y"})
    error = "TypeError: MMLUScenario.__init__() got an unexpected keyword argument 'tokenizer'"
    failure = explained_failure(here, error, LOADING)
    assert isinstance(failure, ConfigError)
    assert "eval-factory ls helm:mmlu" in str(failure)
    assert isinstance(explained_failure(here, error, ASKING), HelmError)


def test_an_end_without_words_is_said_in_one_sentence() -> None:
    """A suite shows the first line, or the first two where that ends with a colon."""
    for tail in ([], ["", " "]):
        killed = str(early_failure(plan(), -9, tail))
        says(killed, "helm-run was killed", "signal 9", "printed nothing", "log: ")
        says(module.program_end_text("helm-run", 0, tail), "ended with 0", "printed nothing")
    failure = early_failure(plan(), -9, ["ValueError: odd"])
    assert isinstance(failure, HelmError), "a task of ours is not the user's mistake"
    says(str(failure), "helm-run was killed", "signal 9", "| ValueError: odd", "log: ")
    each_says(
        module.program_end_text("helm-run", 1, ["", "a", "b"]).splitlines(),
        ["helm-run ended with 1"],
        ["| a"],
        ["| b"],
    )


ASKING_EVENT = {"event": "phase", "phase": "asking the model", "total": 12}
JUDGING_EVENT = {"event": "phase", "phase": "judging", "total": 12}
LOADING_EVENT = {"event": "phase", "phase": "loading data"}
LOG = logging.getLogger("test")


def test_it_ends_with_what_was_used_what_is_missing_and_how_it_goes_on(tmp_path: Path) -> None:
    here = plan(
        {
            "config.output_dir": str(tmp_path),
            "config.params.extra.max_cost": 0.5,
            "target.api_endpoint.model_id": "m",
            "config.params.extra.prices": [
                {"model_id": "m", "input_per_million": 100_000, "output_per_million": 0}
            ],
        }
    )
    module.raise_for_failure(
        here, EndedHelmRun("r", 1.0, 0, (), (LOADING_EVENT, ASKING_EVENT)), LOG, shares_limits=False
    )
    cache = ResponseCache(here.rundir.cache_db, "run")
    attempt = Attempt("k", "model", 1, "answered", 200, None, 1.0, 0.1, 6, 1)
    cache.save(Answer("k", "model", "m", {}, {}, 1.0, 0.1), attempt)
    cache.close()
    reached = {
        "event": "limit_reached",
        "limit": "max_cost",
        "countable": True,
        "answered": {"model": 1},
    }
    ended = EndedHelmRun("r", 1.0, 0, (), (LOADING_EVENT, ASKING_EVENT, reached))
    with pytest.raises(NotReportableError) as stopped:
        module.raise_for_failure(here, ended, LOG, shares_limits=False)
    each_says(
        str(stopped.value).splitlines(),
        ["stopped", "max_cost (0.5)", "1 requests", "7 tokens", "0.6 USD"],
        ["1 of 12 instances", "no score", "every answer is stored"],
        ["raise max_cost", "same command again"],
    )
    assert stopped.value.exit_code == 1


SENT = "sent so far: 5 requests, 9 tokens"
AGAIN = "run the same command again: only unanswered questions are asked"
OVER = (
    "run the same command again (raise max_wall_s first if the run cannot even start within it): "
    "only unanswered questions are asked"
)


@pytest.mark.parametrize(
    ("limit", "budget", "countable", "shared", "cost", "used_up", "next_step"),
    [
        (
            "max_requests",
            Budget(max_requests=5),
            True,
            False,
            0,
            f"max_requests (5) is reached; {SENT}",
            f"raise max_requests and {AGAIN}",
        ),
        (
            "max_requests",
            Budget(max_requests=5),
            True,
            False,
            0.25,
            f"max_requests (5) is reached; {SENT}, 0.25 USD",
            f"raise max_requests and {AGAIN}",
        ),
        (
            "max_requests",
            Budget(),
            True,
            False,
            0,
            f"max_requests is reached; {SENT}",
            f"raise max_requests and {AGAIN}",
        ),
        (
            "max_requests",
            Budget(max_requests=6),
            True,
            True,
            0,
            "max_requests of the suite is reached; sent so far by this cell: 5 requests, 9 tokens",
            f"raise suite.max_requests and {AGAIN}",
        ),
        (
            "max_requests",
            Budget(max_requests=5),
            True,
            True,
            0,
            f"max_requests (5) is reached; {SENT}",
            f"raise max_requests and {AGAIN}",
        ),
        (
            "max_cost",
            Budget(max_cost=1.5),
            True,
            False,
            0,
            f"max_cost (1.5) is reached; {SENT}, 0 USD",
            f"raise max_cost and {AGAIN}",
        ),
        (
            "max_cost",
            Budget(max_cost=1.5),
            False,
            False,
            0,
            f"max_cost (1.5) cannot be enforced, because an answer came without its cost; {SENT}",
            f"remove max_cost, or set max_requests in its place, and {AGAIN}",
        ),
        (
            "max_tokens_total",
            Budget(max_tokens_total=8),
            False,
            True,
            0,
            (
                "max_tokens_total (8) cannot be enforced, because an answer came without its "
                f"tokens; {SENT}"
            ),
            f"remove max_tokens_total, or set max_requests in its place, and {AGAIN}",
        ),
        (
            "max_wall_s",
            Budget(max_wall_s=5),
            True,
            True,
            0,
            f"max_wall_s (5) is reached; {SENT}",
            OVER,
        ),
        (
            "max_wall_s",
            Budget(),
            True,
            True,
            0,
            "max_wall_s of the suite is reached; sent so far by this cell: 5 requests, 9 tokens",
            OVER,
        ),
    ],
)
def test_what_was_used_and_what_to_do(
    limit: str,
    budget: Budget,
    countable: bool,
    shared: bool,
    cost: float,
    used_up: str,
    next_step: str,
) -> None:
    assert limit_messages(
        limit, budget, Spending(5, 9, cost), countable=countable, shares_limits=shared
    ) == (
        used_up,
        next_step,
    )


def test_how_far_the_judges_came() -> None:
    each_says(module.answered_lines([LOADING_EVENT], {}), ["0 of 0 instances"])
    each_says(
        module.answered_lines([ASKING_EVENT, JUDGING_EVENT], {"model": 12}),
        ["12 of 12 instances"],
        ["12 requests to judges", "none"],
    )
    told = module.answered_lines([ASKING_EVENT, JUDGING_EVENT], {"odd": 2, "model": 12, "gpt": 3})
    says(told[1], "12 requests to judges", "gpt 3, odd 2")
    of_data = {**ASKING_EVENT, "total": 0}
    each_says(
        module.answered_lines([of_data, JUDGING_EVENT], {"gpt": 3}),
        ["12 requests to judges", "gpt 3"],
    )
