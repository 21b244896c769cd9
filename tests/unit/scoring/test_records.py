"""The kept answers behind HELM's requests, and what is said of an instance because of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.results import TaskResult
from eval_factory.endpoint.openai_api import with_changes
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.helm import output
from eval_factory.helm.names import NOT_JUDGED_FIELD
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.collect import collect
from eval_factory.scoring.instance_records import InstanceRecords
from eval_factory.scoring.journal import CachedAnswer, StoredAnswers, cached_answer
from eval_factory.scoring.readability import Readability
from eval_factory.scoring.request_states import key_of
from eval_factory.scoring.rubric import RubricTally
from eval_factory.scoring.tally import Tally
from facts import says
from known import near, there
from unit.scoring.test_collect import JURY, state, write_run
from unit.scoring.test_collect import result_of as jury_result_of

THOUGHT = "<think>hm</think>yes"


def keep(here: Plan, *asked: dict[str, Any], content: str = THOUGHT, role: str = "model") -> None:
    """An answer to each request of these states."""
    here.rundir.cache_db.parent.mkdir(parents=True, exist_ok=True)
    with closing(ResponseCache(here.rundir.cache_db, "run")) as cache:
        for one in asked:
            body = here.model.body_of(one["request"])
            key = here.model.key_of(body, None)
            usage = {"prompt_tokens": 3, "completion_tokens": 4}
            response = {
                "choices": [{"message": {"content": content}, "finish_reason": "stop"}],
                "usage": usage,
            }
            answer = Answer(key, role, "org/model", body, response, 1.0, 0.5)
            cache.save(answer, Attempt(key, role, 1, "answered", 200, None, 1.0, 0.5, 3, 4), None)


@pytest.fixture
def here(tmp_path: Path) -> Plan:
    return plan({"config.output_dir": str(tmp_path / "out")})


def result_of(here: Plan, *states: dict[str, Any]) -> TaskResult:
    folder = here.rundir.helm / "runs" / "s" / "r"
    write_run(folder, list(states), {"exact_match": [1.0] * len(states)})
    return collect(here, [folder], run_id="run", wall_s=1.0, git_hash=None)


def test_thinking_that_was_taken_out_is_known_from_what_was_kept(here: Plan) -> None:
    states = [state(number, "yes") for number in range(3)]
    keep(here, states[0])
    keep(here, states[1], content="yes")
    result = result_of(here, *states)
    assert result.validity.instances.thinking_stripped == 1
    assert result.provenance.endpoints["model"].first_answer == "1970-01-01T00:00:01Z", (
        "as cache.db has it"
    )
    lines = list(result.instances)
    thoughts = [(("thinking_stripped",), "hm"), ((), None), ((), None)]
    assert [(line.signs, line.reasoning) for line in lines] == thoughts
    spent = [(line.prompt_tokens, line.completion_tokens, line.latency_s) for line in lines]
    assert spent == [(3, 4, 0.5), (3, 4, 0.5), (None, None, None)]
    says(result.validity.notes, "taken out of", "1 of 3 answers")


def test_an_answer_is_found_by_its_request_and_what_a_judge_thought_is_no_matter_of_the_models(
    here: Plan,
) -> None:
    keep(here, state(0, "yes"))
    keep(here, state(1, "yes"), role="gpt")
    asked = [output.RequestState.model_validate(state(number, "yes")) for number in range(3)]
    answers = StoredAnswers.of(here)
    first, of_a_judge, none = map(answers.answer_to, asked)
    assert (there(first).stripped, there(of_a_judge), none) == (
        True,
        CachedAnswer((3, 4), 0.5),
        None,
    )


def test_an_answer_is_found_by_its_request_as_the_endpoint_took_it(here: Plan) -> None:
    asked = output.RequestState.model_validate(state(0, "yes"))
    key = here.model.key_of(
        with_changes(here.model.body_of(asked.request), {"temperature": None}), None
    )
    known = CachedAnswer((3, 4), 0.5)
    for variants, found in (
        ([{"nothing": None}, {"temperature": None}], known),
        ([{"top_p": None}], None),
        ([], None),
    ):
        assert (
            StoredAnswers(here.model, {key: known}, variants, here.rundir.cache_db).answer_to(asked)
            is found
        )


def test_options_have_a_lenient_score_beside_helms(here: Plan) -> None:
    mapping: dict[str, Any] = {"output_mapping": {"A": "yes", "B": "no"}}
    states = [
        state(0, "A.", **mapping),
        state(1, "A", **mapping),
        state(2, "B", **mapping),
        state(3, None, **mapping),
    ]
    folder = here.rundir.helm / "runs" / "s" / "r"
    write_run(folder, states, {"exact_match": [0.0, 1.0, 0.0, 0.0]})
    spec = '{"name": "r", "metric_specs": [], "adapter_spec": {"method": "multiple_choice_joint"}}'
    (folder / "run_spec.json").write_text(spec)
    result = collect(here, [folder], run_id="run", wall_s=1.0, git_hash=None)
    values = {name: score.value for name, score in result.scores.items()}
    assert values == near({"exact_match": 1 / 3, "exact_match.lenient": 2 / 3})
    assert result.validity.bounds["exact_match.lenient"] == (0.5, 0.75)
    assert (result.validity.instances.unparsed, result.main_metric) == (1, "exact_match")
    assert next(iter(result.instances)).metrics == {"exact_match": 0.0, "exact_match.lenient": 1.0}
    assert any(note.startswith("exact_match.lenient is 0.6667") for note in result.validity.notes)


def test_thinking_is_between_the_markers_or_in_a_field_of_its_own(here: Plan) -> None:
    for message, thought in (
        ({"content": "yes", "reasoning_content": " long "}, "long"),
        ({"content": "<think>half"}, "half"),
        ({"content": THOUGHT, "reasoning": "first"}, "first\n\nhm"),
        ({"content": "<think> </think>yes"}, None),
        ({"content": "yes"}, None),
    ):
        response = {"choices": [{"message": message, "finish_reason": "stop"}]}
        assert (
            cached_answer(Answer("k", "model", "m", {}, response, 1.0, 0.5), here.model)[1]
            == thought
        )
    unusable = Answer("k", "model", "m", {}, {"choices": []}, 1.0, 0.5)
    assert cached_answer(unusable, here.model) == (CachedAnswer(latency_s=0.5), None)


def test_turns_are_told_where_the_prompt_is_not_all_that_was_sent(tmp_path: Path) -> None:
    alone = state(0, "yes")
    several = state(1, "yes")
    turns = [{"role": "user", "content": "Hello"}, {"role": "user", "content": "Who?"}]
    several["request"] = {**several["request"], "messages": turns, "prompt": ""}
    records = result_of(
        plan({"config.output_dir": str(tmp_path / "out")}), alone, several
    ).instances
    assert [record.turns for record in records] == [(), tuple(turns)]
    told = {"target.api_endpoint.adapter_config.custom_system_prompt": "be brief"}
    (record,) = result_of(
        plan({"config.output_dir": str(tmp_path / "other"), **told}), alone
    ).instances
    assert [turn["role"] for turn in record.turns] == ["system", "user"]
    assert record.prompt == "prompt 0"


def test_what_each_judge_said_is_in_the_record(tmp_path: Path) -> None:
    given = {"accuracy": {"score": 4, "explanation": "fine"}}
    said = {
        "aci_bench": {"prompt_text": "p", "a": given, NOT_JUDGED_FIELD: {"b": "HTTP 500: boom"}}
    }
    result = jury_result_of(
        tmp_path,
        states=[state(0, "text", annotations=said), state(1, None, annotations=said)],
        values={"aci_bench_accuracy": [4.0, None]},
        metric_specs=[JURY],
    )
    first, failed = result.instances
    assert first.judgements == {"a": given, "b": {"error": "HTTP 500: boom"}}
    assert failed.judgements == {}


def test_a_case_of_a_rubric_is_grouped_by_its_tags(here: Plan) -> None:
    rubrics = [{"criterion": "good", "points": 8, "tags": []}]
    case = state(0, "yes")
    case["instance"]["extra_data"] = {
        "rubrics": rubrics,
        "tags": ["theme:care", "urgent"],
        "canary": "c",
    }
    folder = here.rundir.helm / "runs" / "s" / "r"
    write_run(folder, [case], {"exact_match": [1.0]})
    made = output.RequestState.model_validate(case)
    tally = RubricTally("exact_match", (), {})
    tally.see(key_of(made), made)
    records = InstanceRecords(
        output.read_run(folder),
        (),
        StoredAnswers.of(here),
        Tally(),
        None,
        Readability(None, lambda _: None),
        rubric=tally,
    )
    assert [one.categories for one in records] == [
        {"theme": "care", "tag": "urgent", "canary": "c"}
    ]
    assert [one.categories for one in replace(records, rubric=None)] == [{"canary": "c"}]
