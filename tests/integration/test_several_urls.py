"""One client and several servers of the same model: the real program and helm-run, three endpoints on loopback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from eval_factory import api
from facts import says
from faults.test_matrix import IMPATIENT
from integration.test_juries import medication_questions
from jury_endpoint import judgement
from program_runs import CANARY, Outcome, Run
from scripted_endpoint import PROBE
from several_servers import ModelServer, write_questions

QUESTIONS = 200
AT_ONCE = 12
JUDGES_KEY = "sk-canary-of-the-judge-0123456789"

Ask = Callable[..., Outcome]


@pytest.fixture
def servers() -> Iterator[list[ModelServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ModelServer(delay_s=0.01)) for _ in range(3)]


@pytest.fixture
def ask(run_program: Run, tmp_path: Path) -> Ask:
    """Runs the program at these servers."""

    def run(
        servers: Sequence[ModelServer], *arguments: str, questions: int = QUESTIONS, **params: Any
    ) -> Outcome:
        folder = tmp_path / "benchmark"
        benchmark = (
            folder / "benchmark.yaml" if folder.exists() else write_questions(folder, questions)
        )
        urls = [server.url for server in servers]
        env = params.pop("env", {})
        params = {
            "parallelism": AT_ONCE,
            **params,
            "extra": {"benchmark": str(benchmark), **params.get("extra", {})},
        }
        outcome: Outcome = run_program(
            "custom", urls if len(urls) > 1 else urls[0], *arguments, params=params, env=env
        )
        return outcome

    return run


def asked(servers: Sequence[ModelServer]) -> Counter[str]:
    return Counter(chain.from_iterable(server.prompts for server in servers))


def endpoint_of(outcome: Outcome, role: str = "model") -> dict[str, Any]:
    found: dict[str, Any] = outcome.document()["provenance"]["endpoints"][role]
    return found


def test_requests_are_spread_and_the_result_says_who_answered(
    servers: list[ModelServer], ask: Ask
) -> None:
    servers[1].model = "test/model-2024-08-06"
    outcome = ask(servers)
    assert outcome.returncode == 0, outcome.stderr
    assert set(asked(servers).values()) == {1}
    assert asked(servers).total() == QUESTIONS
    assert all(len(server.answered) > QUESTIONS / 5 for server in servers)
    assert [server.probes for server in servers] == [1, 1, 1]
    assert sum(server.most for server in servers) <= AT_ONCE + 3
    told = {one["url"]: one for one in endpoint_of(outcome)["servers"]}
    assert {url: one["answers"] for url, one in told.items()} == {
        one.url: len(one.answered) for one in servers
    }
    assert told[servers[1].url]["stated_models"] == {
        "test/model-2024-08-06": len(servers[1].answered)
    }
    page = (outcome.output_dir / "report.html").read_text("utf-8")
    assert f"{servers[2].url}: {len(servers[2].answered)} answers of test/model" in page
    assert {server.keys == {f"Bearer {CANARY}"} for server in servers} == {True}
    assert (
        api.load_result(outcome.output_dir).result.provenance.endpoints["model"].servers is not None
    )


def test_one_of_three_dies_in_the_middle(servers: list[ModelServer], ask: Ask) -> None:
    servers[0].dies_after = 150
    outcome = ask(servers, questions=1000, max_retries=0, parallelism=32)
    assert outcome.returncode == 0, outcome.stderr
    counted = outcome.document()["validity"]["instances"]
    assert (counted["scored"], counted["failed"]) == (1000, 0)
    counts = asked(servers)
    twice = {prompt for prompt, times in counts.items() if times > 1}
    assert len(counts) == 1000
    assert max(counts.values()) <= 2
    assert twice <= set(servers[0].lost)
    assert 0 < len(servers[0].lost) <= 32
    assert len(servers[0].answered) == 150
    assert min(len(server.answered) for server in servers[1:]) > 300


def test_all_die_and_the_same_command_goes_on(
    servers: list[ModelServer], ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "impatient").mkdir()
    (tmp_path / "impatient" / "sitecustomize.py").write_text(IMPATIENT)
    for server in servers:
        server.dies_after = 30
    outcome = ask(servers, max_retries=1, env={"PYTHONPATH": str(tmp_path / "impatient")})
    assert outcome.returncode == 3, outcome.stderr
    says(outcome.stderr, "no longer answer", "no connection")
    assert all(server.url in outcome.stderr for server in servers)
    answered = list(chain.from_iterable(server.answered for server in servers))
    assert len(answered) == len(set(answered)) == 90
    for server in servers:
        server.come_back()
    again = ask(servers, max_retries=1)
    assert again.returncode == 0, again.stderr
    answered = list(chain.from_iterable(server.answered for server in servers))
    assert len(answered) == len(set(answered)) == QUESTIONS


def test_judges_at_two_servers(
    servers: list[ModelServer], run_program: Run, tmp_path: Path
) -> None:
    """The judge's own key goes to its servers, the model's to the model's; neither goes to the other's."""
    medication_questions(tmp_path / "out" / "helm", 20)
    model, *judges = servers
    for judge in judges:
        judge.answer = lambda prompt: judgement(prompt, 4) if prompt != PROBE else "."
    own = {
        "name": "own",
        "model_id": "j",
        "url": [one.url for one in judges],
        "api_key": "JUDGE_KEY",
    }
    params = {
        "limit_samples": 20,
        "parallelism": 4,
        "extra": {"judges": [own], "num_train_trials": 1},
    }
    env = {"JUDGE_KEY": JUDGES_KEY, "HF_HUB_OFFLINE": "1"}
    outcome = run_program("medication_qa", model.url, params=params, env=env)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.document()["validity"]["judges"]["own"]["scored"] == 20
    assert all(len(judge.answered) >= 5 for judge in judges)
    assert sum(len(judge.answered) for judge in judges) == 20
    assert [one.keys for one in servers] == [{f"Bearer {CANARY}"}, *[{f"Bearer {JUDGES_KEY}"}] * 2]
    assert len(endpoint_of(outcome, "own")["servers"]) == 2
    previewed = run_program("medication_qa", model.url, "--dry_run", params=params, env=env).stdout
    shown = [f"#   own at {one.url.removesuffix('/v1')}: JUDGE_KEY" in previewed for one in servers]
    assert shown == [False, True, True]
