"""A jury's judgements of one answer, and why a judge gave none."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark.annotation.model_as_judge import LLMAsJuryAnnotator
from helm.common.request import GeneratedOutput, RequestResult

from eval_factory.helm.names import NOT_JUDGED_FIELD
from eval_factory.helm_plugin.patches.patch_registry import patch_named
from eval_factory.helm_plugin.rubric import criterion_judge
from eval_factory.helm_plugin.session import RunRecord
from eval_factory.tasks.jury_form import HELMS_JURY_FORM, JuryForm
from facts import says

GIVEN = '{"accuracy": {"score": 4, "explanation": "x"}}'


def result(text: str | None, error: str | None = None) -> RequestResult:
    completions = [] if text is None else [GeneratedOutput(text=text, logprob=0, tokens=[])]
    return RequestResult(
        success=error is None, cached=False, completions=completions, embedding=[], error=error
    )


DEPLOYMENT = SimpleNamespace(client_spec=SimpleNamespace(args={"role": "r"}))


def annotated(answers: dict[str, Any], answer: str = "an answer") -> dict[str, Any]:
    def ask(request: Any) -> RequestResult:
        said = answers[request.model]
        if isinstance(said, Exception):
            raise said
        given: RequestResult = said
        return given

    annotator = SimpleNamespace(
        name="a_bench",
        _prompt_template="judge {RESPONSE}",
        _interpolate_prompt=lambda _state: "judge this",
        _annotator_models={
            name: SimpleNamespace(model_name=name, model_deployment=name) for name in answers
        },
        _auto_client=SimpleNamespace(make_request=ask),
        _annotation_criteria={"accuracy": {"score", "explanation"}},
    )
    state: Any = SimpleNamespace(result=result(answer))
    return criterion_judge.ask_judges_in_parallel(annotator, state)


def session(**given: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"clients": {}, "limit_reached": None, "jury_form": HELMS_JURY_FORM, **given}
    )


@pytest.fixture(autouse=True)
def _of_a_helm_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criterion_judge, "current_session", session)
    monkeypatch.setattr(criterion_judge, "get_model_deployment", lambda _name: DEPLOYMENT)


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Reasons for which answers were asked anew."""
    told: list[str] = []
    client = SimpleNamespace(forget=lambda _request, reason: told.append(reason))
    monkeypatch.setattr(criterion_judge, "current_session", lambda: session(clients={"r": client}))
    return told


def test_where_all_judge_the_annotations_are_helms() -> None:
    given = json.loads(GIVEN)
    assert annotated({"a": result(GIVEN), "b": result(GIVEN)}) == {
        "prompt_text": "judge this",
        "a": given,
        "b": given,
    }


def test_who_gave_no_judgement_is_written_down_with_the_reason(forgotten: list[str]) -> None:
    found = annotated(
        {
            "good": result(GIVEN),
            "fails": result("", "HTTP 500: boom"),
            "silent": result(None),
            "stopped": ValueError("no\n  such \x1b key"),
            "babbles": result("a four"),
        }
    )
    assert set(found) == {"prompt_text", "good", NOT_JUDGED_FIELD}
    (reason,) = set(forgotten)
    assert found[NOT_JUDGED_FIELD] == {
        "fails": "HTTP 500: boom",
        "silent": "it gave no answer",
        "stopped": "no such \\x1b key",
        "babbles": f"unusable judgement: {reason}",
    }
    assert len(forgotten) == 2
    says(reason, "no JSON object", "criteria accuracy")


def test_no_judge_is_asked_about_an_answer_with_nothing_in_it() -> None:
    helms = {"prompt_text": None, "empty_output_equivalence_judgement": False}
    assert annotated({"a": AssertionError("asked")}, " \n") == helms


def test_the_template_of_the_prompt_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criterion_judge, "run_record", record := RunRecord())
    for answer in ("one", "two"):
        annotated({"a": result(GIVEN)}, answer)
    sha256 = hashlib.sha256(b"judge {RESPONSE}").hexdigest()
    assert record.entries == {"judge_prompts": {"a_bench": [sha256]}}


def test_helms_jury_asks_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LLMAsJuryAnnotator, "annotate", LLMAsJuryAnnotator.annotate)
    patch_named("ask_judges_in_parallel").apply()
    assert LLMAsJuryAnnotator.annotate is criterion_judge.ask_judges_in_parallel


def test_at_a_limit_of_the_run_the_judging_ends(
    forgotten: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others' judgements are kept; a score without this judge's would not be the benchmark's."""
    monkeypatch.setattr(
        criterion_judge, "current_session", lambda: session(limit_reached="max_cost")
    )
    with pytest.raises(ValueError, match="max_cost"):
        annotated({"a": result(GIVEN), "b": ValueError("max_cost")})
    assert forgotten == []


def test_a_judgement_has_the_benchmarks_own_form(
    monkeypatch: pytest.MonkeyPatch, forgotten: list[str]
) -> None:
    form = JuryForm(
        (0, 10), {"poor": 0, "good": 10}, {"accuracy": "it is right"}, states_scale=True
    )
    client = SimpleNamespace(forget=lambda _request, reason: forgotten.append(reason))
    monkeypatch.setattr(
        criterion_judge, "current_session", lambda: session(clients={"r": client}, jury_form=form)
    )
    found = annotated({"words": result(GIVEN.replace("4", '"good"')), "numbers": result(GIVEN)})
    assert found["words"] == {"accuracy": {"score": 10, "explanation": "x"}}
    ((judge, reason),) = found[NOT_JUDGED_FIELD].items()
    assert judge == "numbers"
    says(reason, "unusable judgement", "'accuracy'", '"poor", "good"')
