"""HELM's own metrics machinery with metrics that raise on some answers."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import Any

import pytest
from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.annotation_executor import AnnotationExecutor, AnnotationExecutorError
from helm.benchmark.metrics import basic_metrics
from helm.benchmark.metrics.evaluate_instances_metric import EvaluateInstancesMetric
from helm.benchmark.metrics.metric import Metric
from helm.benchmark.metrics.metric_name import MetricName
from helm.benchmark.metrics.statistic import Stat
from helm.benchmark.scenarios.scenario import Input, Instance
from helm.common.request import GeneratedOutput, Request, RequestResult

from eval_factory.core.errors import PrerequisiteError
from eval_factory.helm import names
from eval_factory.helm_plugin import unscorable_answers
from eval_factory.helm_plugin.patches.patch_registry import patch_named
from eval_factory.helm_plugin.unscorable_answers import UnscorableTracker

ODD = "odd"


@cache
def isolate_once() -> None:
    """As helm-run does; what is patched stays patched."""
    for name in (
        "isolate_unscorable_annotations",
        "isolate_unscorable_answers",
        "isolate_among_all_answers",
        "leave_out_infinite_perplexity",
    ):
        patch_named(name).apply()


def scenario(answers: list[str]) -> ScenarioState:
    states = [
        RequestState(
            instance=Instance(Input(text=f"q{number}"), [], split="test", id=f"id{number}"),
            reference_index=None,
            request_mode=None,
            train_trial_index=0,
            output_mapping=None,
            request=Request(model="a/b", model_deployment="a/b", prompt=f"p{number}"),
            result=RequestResult(
                success=True,
                embedding=[],
                completions=[GeneratedOutput(answer, 0.0, [])],
                cached=True,
            ),
            num_train_instances=0,
            prompt_truncated=False,
        )
        for number, answer in enumerate(answers)
    ]
    return ScenarioState(AdapterSpec(method="generation", num_train_trials=1), states, [])


def text_of(state: RequestState) -> str:
    assert state.result is not None
    return str(state.result.completions[0].text)


class Lengths(Metric):  # type: ignore[misc]
    """The length of the answer; raises on odd ones, and on empty ones where it is told to."""

    def __init__(self, error: Exception | None = None, *, bears_empty: bool = True) -> None:
        self.error = ValueError("that was odd") if error is None else error
        self.bears_empty = bears_empty

    def evaluate_generation(
        self, adapter_spec: Any, request_state: RequestState, *_: Any
    ) -> list[Stat]:
        text = text_of(request_state)
        if text == ODD or not (text or self.bears_empty):
            raise self.error
        return [Stat(MetricName("length")).add(len(text))]


class Longest(EvaluateInstancesMetric):  # type: ignore[misc]
    def evaluate_instances(
        self, request_states: list[RequestState], eval_cache_path: str
    ) -> list[Stat]:
        if any(text_of(state) == ODD for state in request_states):
            raise RecursionError
        return [
            Stat(MetricName("longest")).add(max(len(text_of(state)) for state in request_states))
        ]


def evaluated(
    metric: Any, state: ScenarioState, told: list[str] | None = None, parallelism: int = 3
) -> Any:
    isolate_once()
    with UnscorableTracker(
        lambda _state, reason: told.append(reason) if told is not None else None
    ) as here:
        here.watch(state)
        return metric.evaluate(state, None, "", parallelism)


def failed(state: ScenarioState) -> dict[str, str]:
    lost = [(one.instance.id, one.result) for one in state.request_states]
    return {str(name): str(result.error) for name, result in lost if result and not result.success}


def test_one_that_raises_fails_alone_and_has_the_value_of_an_empty_answer() -> None:
    state = scenario(["a", ODD, "abc", "x"])
    told = list[str]()
    result = evaluated(Lengths(), state, told)
    values = {one.instance_id: one.stats[0].mean for one in result.per_instance_stats}
    assert values == {"id0": 1, "id1": 0, "id2": 3, "id3": 1}
    assert list(failed(state)) == ["id1"]
    assert failed(state)["id1"].startswith(
        f"{names.UNSCORABLE_PREFIX}ValueError in Lengths (test_unscorable_answers.py:"
    )
    assert "odd" not in failed(state)["id1"]  # the error's own text may quote the answer
    assert told == [failed(state)["id1"]]
    assert text_of(state.request_states[1]) == ""


def test_one_that_bears_no_empty_answer_either_has_no_value() -> None:
    state = scenario(["a", ODD, "abc"])
    result = evaluated(Lengths(bears_empty=False), state)
    assert [one.instance_id for one in result.per_instance_stats] == ["id0", "id2"]
    assert list(failed(state)) == ["id1"]


def test_who_is_known_to_be_unscorable_is_replaced_in_what_is_watched_next() -> None:
    isolate_once()
    answers = [ODD, "a", ODD, "abc", "x"]
    again = scenario(answers)
    with UnscorableTracker(lambda *_: None) as here:
        first = scenario(answers)
        here.watch(first)
        Lengths().evaluate(first, None, "", 3)
        here.watch(again)
    assert list(failed(again)) == ["id0", "id2"]
    assert failed(again) == failed(first)


@pytest.mark.parametrize(
    ("odd", "plain", "fails"),
    [
        (1, 0, True),
        (2, 0, True),
        (1, 1, False),
        (2, 1, True),
        (2, 2, False),
        (3, 2, True),
        (3, 3, False),
        (9, 8, True),
    ],
)
def test_more_than_half_fail_the_run_with_what_was_raised(
    odd: int, plain: int, fails: bool
) -> None:
    state = scenario([ODD] * odd + ["plain"] * plain)
    if fails:
        with pytest.raises(ValueError, match="that was odd"):
            evaluated(Lengths(), state)
    else:
        evaluated(Lengths(), state)
        assert len(failed(state)) == odd


class Missing(LookupError):
    """A kind of LookupError, as KeyError is."""


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("nltk_data"),
        ModuleNotFoundError("no"),
        LookupError("Resource punkt_tab not found"),
        PrerequisiteError("no key"),
        MemoryError(),
        caused(RuntimeError("x"), ImportError("y")),
    ],
    ids=repr,
)
def test_what_no_answer_sets_off_fails_the_run_at_once(error: Exception) -> None:
    state = scenario([ODD] + ["plain"] * 30)
    with pytest.raises(type(error)):
        evaluated(Lengths(error), state)
    assert failed(state) == {}


@pytest.mark.parametrize(
    "error", [KeyError("x"), Missing(), RecursionError(), AssertionError(), OverflowError()]
)
def test_what_an_answer_can_set_off(error: Exception) -> None:
    state = scenario([ODD] + ["plain"] * 30)
    evaluated(Lengths(error), state)
    assert list(failed(state)) == ["id0"]


def test_a_metric_of_all_answers_leaves_out_the_one_that_it_does_not_bear() -> None:
    state = scenario(["a", ODD, "abcd", "x"])
    assert [stat.mean for stat in evaluated(Longest(), state).aggregated_stats] == [4]
    assert list(failed(state)) == ["id1"]


def test_where_nothing_raises_all_is_as_helm_has_it() -> None:
    isolate_once()
    answers = ["a", "", "abc"]
    for metric in (Lengths(), Longest()):
        state = scenario(answers)
        before = list(state.request_states)
        bare = metric.evaluate(scenario(answers), None, "", 1)
        assert json.dumps(asdict(evaluated(metric, state))) == json.dumps(asdict(bare))
        assert state.request_states == before


def test_outside_a_run_nothing_is_hidden() -> None:
    isolate_once()
    for metric in (Lengths(), Longest()):
        with pytest.raises((ValueError, RecursionError)):
            metric.evaluate(scenario([ODD, "a", "b"]), None, "", 1)
    assert unscorable_answers._active_trackers == []
    executor: Any = object.__new__(AnnotationExecutor)
    (odd,) = scenario([ODD]).request_states
    with pytest.raises(AnnotationExecutorError, match="that was odd Request: "):
        executor.process([Annotator()], odd)


def test_a_perplexity_that_overflows_is_left_out() -> None:
    isolate_once()
    values = {"logprob": -1e6, "num_perplexity_tokens": 1, "num_bytes": 1}
    stats = {MetricName(name): Stat(MetricName(name)).add(value) for name, value in values.items()}
    assert basic_metrics.compute_perplexity_metrics(stats) == []
    stats[MetricName("logprob")] = Stat(MetricName("logprob")).add(-1.0)
    assert len(basic_metrics.compute_perplexity_metrics(stats)) == 3


class Annotator:
    name = "lengths"

    def __init__(self, *, bears_empty: bool = True) -> None:
        self.bears_empty = bears_empty

    def annotate(self, state: RequestState) -> dict[str, Any]:
        if text_of(state) == ODD or not (text_of(state) or self.bears_empty):
            raise ValueError("that was odd")
        return {"length": len(text_of(state))}


class Judge(Annotator):
    name = "judge"
    _auto_client = None


def annotated(annotator: Any) -> tuple[list[Any], dict[str, str]]:
    """By HELM's executor, of the run in hand."""
    isolate_once()
    executor: Any = object.__new__(AnnotationExecutor)
    asked = scenario(["abc", ODD, "a"])
    with UnscorableTracker(lambda _state, _reason: None) as here:
        here.watch(asked)
        done = [executor.process([annotator], state) for state in list(asked.request_states)]
    return [state.annotations for state in done], failed(asked)


@pytest.mark.parametrize(
    "annotator", [Judge(), Annotator(bears_empty=False)], ids=["judge", "bears nothing"]
)
def test_annotators_that_fail_the_run(annotator: Any) -> None:
    with pytest.raises((AnnotationExecutorError, ValueError), match="that was odd"):
        annotated(annotator)


def test_an_annotator_that_raises_costs_the_instance() -> None:
    annotations, lost = annotated(Annotator())
    assert annotations == [{"lengths": {"length": n}} for n in (3, 0, 1)]
    assert list(lost) == ["id1"]
    assert "ValueError in Annotator" in lost["id1"]
