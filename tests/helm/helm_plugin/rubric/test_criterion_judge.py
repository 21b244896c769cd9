"""Each criterion of each answer is asked apart, all side by side, and what cannot be used is asked once more."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark.scenarios.scenario import Input, Instance, Output, Reference
from helm.common.request import GeneratedOutput, Request, RequestResult

from eval_factory.endpoint import bridge
from eval_factory.endpoint.openai_answers import FILTERED_MESSAGE
from eval_factory.helm import names
from eval_factory.helm_plugin.rubric import criterion_judge
from eval_factory.helm_plugin.rubric.criterion_judge import (
    CriterionAnnotator,
    requests_to_each_judge,
    requests_to_judges,
)
from facts import says

JUDGED = {"criteria_met": True, "explanation": "It does."}
MET = json.dumps(JUDGED)
RUBRICS = [{"criterion": f"c{number}", "points": 1, "tags": []} for number in range(3)]


def result(text: str | None, error: str | None = None) -> RequestResult:
    completions = [] if text is None else [GeneratedOutput(text=text, logprob=0, tokens=[])]
    return RequestResult(
        success=error is None, cached=False, completions=completions, embedding=[], error=error
    )


def state(answer: str = "an answer", error: str | None = None, reference: str | None = None) -> Any:
    messages = [{"role": "user", "content": "Q?"}]
    references = [] if reference is None else [Reference(Output(reference), [])]
    instance = Instance(Input("Q?", messages=messages), references, extra_data={"rubrics": RUBRICS})
    return SimpleNamespace(instance=instance, result=result(answer, error))


class Judges:
    """`said` is what a judge answers: a text, an exception, a result, or a function of the prompt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, parallelism: int = 4, **said: Any) -> None:
        self.said = said
        self.prompts: list[str] = []
        self.expected = Counter[str]()
        self.forgotten: list[str] = []
        client = SimpleNamespace(forget=lambda _request, reason: self.forgotten.append(reason))
        self.session = SimpleNamespace(
            clients={f"role-{name}": client for name in said},
            limit_reached=None,
            expect=lambda role, count: self.expected.update({role: count}),
        )
        monkeypatch.setattr(criterion_judge, "current_session", lambda: self.session)
        specs = {
            name: SimpleNamespace(args={"role": f"role-{name}", "parallelism": parallelism})
            for name in said
        }
        deployments = {name: SimpleNamespace(client_spec=spec) for name, spec in specs.items()}
        monkeypatch.setattr(criterion_judge, "get_model_deployment", deployments.__getitem__)

    def ask(self, request: Request) -> RequestResult:
        self.prompts.append(request.prompt)
        said = self.said[request.model_deployment]
        said = said(request.prompt) if callable(said) else said
        if isinstance(said, Exception):
            raise said
        return said if isinstance(said, RequestResult) else result(said)

    def annotate(self, *states: Any, at_once: int = 1) -> list[list[dict[str, Any]]]:
        client: Any = SimpleNamespace(make_request=self.ask)
        annotator = CriterionAnnotator(client, {name: name for name in self.said}, at_once)
        return [one["rubric"]["criteria"] for one in annotator.annotate_all(list(states))]


def test_each_criterion_is_asked_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges(monkeypatch, a=MET)
    assert judges.annotate(
        state(), state("another"), state(error="HTTP 500"), state("", FILTERED_MESSAGE)
    ) == [
        [{"a": JUDGED}] * 3,
        [{"a": JUDGED}] * 3,
        [{}] * 3,
        [{"a": JUDGED}] * 3,
    ]
    assert len(judges.prompts) == 9
    assert judges.expected == {"role-a": 9}
    assert sum("[1] c1\n" in prompt for prompt in judges.prompts) == 3
    first = ("[1] c0", "[1] c1", "[1] c2")
    for prompt in judges.prompts:
        assert sum(criterion in prompt for criterion in first) == 1


def test_questions_about_all_answers_are_in_flight_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together: Future[None] = Future()
    inside: list[str] = []

    def wait_for_the_others(prompt: str) -> str:
        inside.append(prompt)
        if len(inside) == 6:
            together.set_result(None)
        bridge.wait_for(together)
        return MET

    judges = Judges(monkeypatch, parallelism=6, a=wait_for_the_others)
    assert len(judges.annotate(state("one"), state("two"))) == 2


def test_decisions_stand_in_the_judges_order_whoever_answers_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b_has_answered: Future[None] = Future()

    def second(_prompt: str) -> str:
        if not b_has_answered.done():
            b_has_answered.set_result(None)
        return MET

    def first(_prompt: str) -> str:
        bridge.wait_for(b_has_answered)
        return MET

    judges = Judges(monkeypatch, parallelism=1, a=first, b=second)
    assert [list(one) for one in judges.annotate(state())[0]] == [["a", "b"]] * 3


def test_several_in_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [
        {"criterion": n, "explanation": "x", "criteria_met": met}
        for n, met in ((1, True), (2, False))
    ]
    both = json.dumps({"judgements": listed})
    judges = Judges(monkeypatch, a=lambda prompt: both if "<criteria>" in prompt else MET)
    (found,) = judges.annotate(state(), at_once=2)
    assert [one["a"]["criteria_met"] for one in found] == [True, False, True]
    assert len(judges.prompts) == 2


def test_what_cannot_be_used_is_asked_once_more_with_the_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judges = Judges(
        monkeypatch,
        a=lambda prompt: MET if "could not be used: it holds no JSON" in prompt else "Well.",
    )
    (found,) = judges.annotate(state())
    assert [one["a"]["criteria_met"] for one in found] == [True] * 3
    assert (len(judges.prompts), judges.forgotten) == (6, [])
    assert judges.expected == {"role-a": 6}, (
        "those that are asked again are among what the screen expects"
    )


def test_then_it_is_unjudged_and_asked_anew_in_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judges = Judges(monkeypatch, a="Well.", b=MET)
    (found,) = judges.annotate(state())
    (reason,) = set(judges.forgotten)
    assert found == [{"a": {"error": f"unusable judgement: {reason}"}, "b": JUDGED}] * 3
    assert len(judges.forgotten) == 6
    says(reason, "no JSON object", '"criteria_met"')


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (RuntimeError("no\nanswer"), "no answer"),
        (result(None, "HTTP 500"), "HTTP 500"),
        (result(None), "it gave no answer"),
    ],
)
def test_a_judge_that_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, said: Any, reason: str
) -> None:
    judges = Judges(monkeypatch, a=said, b=MET)
    (found,) = judges.annotate(state(reference="So."))
    assert [one["a"] for one in found] == [{"error": reason}] * 3
    assert all(one["b"]["criteria_met"] for one in found)
    assert len(judges.prompts) == 6
    assert all("<reference>\nSo." in prompt for prompt in judges.prompts)


def test_a_judge_whose_answer_a_filter_withheld_is_asked_anew_in_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judges = Judges(monkeypatch, a=result("", FILTERED_MESSAGE), b=result("", "HTTP 500"))
    (found,) = judges.annotate(state())
    assert [one["a"] for one in found] == [{"error": FILTERED_MESSAGE}] * 3
    assert judges.forgotten == [FILTERED_MESSAGE] * 3, "what failed was never kept"


def test_a_limit_of_the_run_ends_the_judging(monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges(monkeypatch, a=RuntimeError("max_requests"))
    judges.session.limit_reached = "max_requests"
    with pytest.raises(RuntimeError, match="max_requests"):
        judges.annotate(state(), state("b"))


def answer(criteria: int, success: bool = True) -> Any:
    rubrics = [{"criterion": f"c{number}", "points": 1, "tags": []} for number in range(criteria)]
    given = SimpleNamespace(success=success, error=None if success else "HTTP 500")
    return SimpleNamespace(instance=SimpleNamespace(extra_data={"rubrics": rubrics}), result=given)


def counted(class_name: str, answers: list[Any], **args: Any) -> tuple[int, int]:
    """Requests to all judges about the answers that came, and to each of a rubric's if all come."""
    spec = SimpleNamespace(class_name=class_name, args=args)
    state: Any = SimpleNamespace(
        request_states=answers, annotator_specs=[spec] if class_name else None
    )
    return requests_to_judges(state), requests_to_each_judge(state)


@pytest.mark.parametrize(("at_once", "each"), [(1, 8), (2, 5), (3, 3), (9, 2)])
def test_requests_about_criteria_are_counted_before_they_are_sent(at_once: int, each: int) -> None:
    """5 and 3 criteria, two judges; an answer that did not come is not judged, and was expected to come."""
    answers = [answer(5), answer(3)]
    rubric: dict[str, Any] = {"judges": {"a": "a", "b": "b"}, "criteria_per_request": at_once}
    assert counted(names.RUBRIC_ANNOTATOR_CLASS, answers, **rubric) == (2 * each, each)
    answers.append(answer(1, success=False))
    assert counted(names.RUBRIC_ANNOTATOR_CLASS, answers, **rubric) == (2 * each, each + 1)


def test_a_jury_is_asked_once_for_each_answer() -> None:
    answers = [answer(0), answer(0), answer(0, success=False)]
    assert counted("helm.Jury", answers, annotator_models={"a": 1, "b": 2, "c": 3}) == (6, 0)
    assert counted("helm.Other", answers)[0] == 2
    assert counted("", answers) == (0, 0)
