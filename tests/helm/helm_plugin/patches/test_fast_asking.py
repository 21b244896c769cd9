"""HELM's executor asks in one thread."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

import pytest
from helm.benchmark import executor
from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.executor import ExecutionSpec, Executor, ExecutorError
from helm.benchmark.scenarios.scenario import Input, Instance
from helm.common.authentication import Authentication
from helm.common.request import ErrorFlags, GeneratedOutput, Request, RequestResult

from eval_factory.endpoint import bridge
from eval_factory.helm_plugin.patches.patch_registry import patch_named


class Context:
    """Answers with the prompt, but for some."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()
        self.inside: set[bool] = set()
        self.asked = 0

    def make_request(self, request: Request) -> RequestResult:
        self.threads.add(threading.current_thread())
        self.inside.add(bridge.is_in_loop())
        self.asked += 1
        failed = request.prompt in ("5", "fatal")
        return RequestResult(
            success=not failed,
            cached=False,
            embedding=[],
            error="so it is" if failed else None,
            error_flags=ErrorFlags(is_retriable=False, is_fatal=request.prompt == "fatal"),
            completions=[]
            if failed
            else [GeneratedOutput(text=request.prompt, logprob=0, tokens=[])],
        )


def asked(parallelism: int, prompts: list[str]) -> tuple[ScenarioState, Context]:
    asking = Executor(ExecutionSpec(None, Authentication(""), "unused", parallelism))
    context = Context()
    asking.context = context
    states = [
        RequestState(
            instance=Instance(Input(prompt), []),
            reference_index=None,
            request_mode=None,
            train_trial_index=0,
            output_mapping=None,
            request=Request(model="m/m", model_deployment="m/m", prompt=prompt),
            result=None,
            num_train_instances=0,
            prompt_truncated=False,
        )
        for prompt in prompts
    ]
    spec = AdapterSpec()
    return asking.execute(ScenarioState(adapter_spec=spec, request_states=states)), context


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what is kept of what was loaded; nothing is kept in this process, whose HELM is put back."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("frozen"))
    monkeypatch.setattr(executor, "parallel_map", executor.parallel_map)
    monkeypatch.setattr(executor, "LocalContext", lambda **_: None)
    return calls


def test_the_result_is_that_of_threads(frozen: list[str]) -> None:
    """With an answer that failed, as HELM has it."""
    prompts = [str(number) for number in range(40)]
    in_threads, of_threads = asked(4, prompts)
    assert threading.current_thread() not in of_threads.threads
    assert (of_threads.inside, frozen) == ({False}, [])
    patch_named("asked_in_one_thread").apply()
    in_one, of_one = asked(4, prompts)
    assert (len(of_one.threads), of_one.inside) == (1, {True})
    assert asdict(in_one) == asdict(in_threads)
    texts = [state.result.completions[0].text for state in in_one.request_states if state.result]
    assert texts == ["" if prompt == "5" else prompt for prompt in prompts]
    assert frozen == ["frozen"]


def test_one_at_a_time_has_no_loop(frozen: list[str]) -> None:
    patch_named("asked_in_one_thread").apply()
    _, context = asked(1, ["a", "b"])
    assert (context.inside, context.asked, frozen) == ({False}, 2, [])


def test_what_is_fatal_is_raised_as_helm_raises_it(frozen: list[str]) -> None:
    patch_named("asked_in_one_thread").apply()
    with pytest.raises(ExecutorError, match="so it is"):
        asked(2, ["a", "fatal", *"bcdefgh"])
    assert frozen


def test_as_many_as_helm_is_told(frozen: list[str]) -> None:
    patch_named("asked_in_one_thread").apply()
    everybody: Future[None] = Future()
    inside: list[int] = []

    def meet(number: int) -> int:
        inside.append(number)
        if len(inside) == 6:
            everybody.set_result(None)
        bridge.wait_for(everybody)
        return number

    run: Any = executor.parallel_map
    assert run(meet, list(range(6)), 6) == list(range(6))
    assert frozen
