"""Trivial answers scored by HELM's own metrics, on states made here; no request is sent."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.annotation import ehr_sql_annotator
from helm.benchmark.augmentations.perturbation_description import PerturbationDescription
from helm.benchmark.metrics.evaluate_reference_metrics import get_rouge_function
from helm.benchmark.metrics.metric import MetricSpec
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.run_specs import medhelm_run_specs
from helm.benchmark.scenarios.scenario import (
    CORRECT_TAG,
    Input,
    Instance,
    Output,
    Reference,
    ScenarioSpec,
)
from helm.common.request import Request

from eval_factory.helm import names, trivial_answers
from eval_factory.helm.trivial_answers import REFUSAL, TrivialScores, read_trivial_scores
from eval_factory.helm_plugin import concordance_scenario
from eval_factory.helm_plugin import score_trivial_answers as module
from eval_factory.helm_plugin.patches import executed_queries
from eval_factory.helm_plugin.score_trivial_answers import (
    _FORMS,
    BASIC,
    SQL,
    SUMMARIES,
    score_trivial_answers,
)
from eval_factory.tasks.framework import load_framework
from facts import naming

EXACT = MetricSpec(class_name=BASIC, args={"names": ["exact_match", "quasi_exact_match"]})
VALUE = MetricSpec(
    class_name=next(name for name, form in _FORMS.items() if form == "value"), args={}
)
LIMITS = {"lower_limit": "1", "upper_limit": "2"}
OPTIONS = {"A": "yes", "B": "no"}


def state_of(
    instance: Instance, options: dict[str, str] | None = None, **changes: Any
) -> RequestState:
    usual: dict[str, Any] = {
        "reference_index": None,
        "request_mode": None,
        "train_trial_index": 0,
        "output_mapping": options,
        "request": Request(model="a/b", model_deployment="a/b", prompt="never looked at"),
        "result": None,
        "num_train_instances": 0,
        "prompt_truncated": False,
    }
    return RequestState(instance=instance, **{**usual, **changes})


def question(number: int, right: str, *, wrong: tuple[str, ...] = (), **fields: Any) -> Instance:
    references = [
        Reference(Output(right), [CORRECT_TAG]),
        *(Reference(Output(text), []) for text in wrong),
    ]
    return Instance(Input(text=f"q{number}"), references, split="test", id=f"id{number}", **fields)


def yes_no(*right: str) -> list[RequestState]:
    return [state_of(question(number, text), OPTIONS) for number, text in enumerate(right)]


def spec_of(*metrics: MetricSpec, name: str = "pubmed_qa:model=m") -> RunSpec:
    adapter = AdapterSpec(method="multiple_choice_joint", model="a/b", model_deployment="a/b")
    return RunSpec(
        name=name,
        scenario_spec=ScenarioSpec("none"),
        adapter_spec=adapter,
        metric_specs=list(metrics),
    )


def scored_as(run_spec: RunSpec, folder: Path, states: list[RequestState]) -> TrivialScores:
    state = ScenarioState(run_spec.adapter_spec, states, [])
    score_trivial_answers(run_spec, state, None, folder)
    found = read_trivial_scores(folder)
    assert found is not None
    return found


def scored(folder: Path, states: list[RequestState], *metrics: Any, **spec: Any) -> TrivialScores:
    return scored_as(spec_of(*(metrics or (EXACT,)), **spec), folder, states)


def means(found: TrivialScores, metric: str = "exact_match") -> dict[str, float]:
    return {
        one.name: sum(filter(None, one.values[metric])) / len(found.questions)
        for one in found.strategies
    }


def test_every_answer_is_scored_by_every_metric(tmp_path: Path) -> None:
    found = scored(tmp_path, yes_no("yes", "no", "yes", "yes"))
    assert means(found) == {
        "empty": 0.0,
        "refusal": 0.0,
        "majority": 0.75,
        "always A": 0.75,
        "always B": 0.25,
        "random": 0.5,
    }
    (by_random,) = (one for one in found.strategies if one.name == "random")
    assert (by_random.values["exact_match"], by_random.answer, by_random.answers) == (
        [0.5] * 4,
        None,
        None,
    )
    assert means(found, "quasi_exact_match") == means(found)
    assert found.questions == [(f"id{number}", 0, "test") for number in range(4)]
    assert (found.run, found.error) == ("pubmed_qa:model=m", None)


def test_an_instance_is_scored_once_and_only_as_it_is(tmp_path: Path) -> None:
    plain = yes_no("yes")[0]
    typos = replace(plain.instance, id="p", perturbation=PerturbationDescription(name="typos"))
    states = [
        plain,
        replace(plain, train_trial_index=1),
        replace(plain, instance=typos),
        replace(plain, instance=replace(plain.instance, id="option"), reference_index=0),
        replace(
            plain,
            instance=replace(plain.instance, id="prompt"),
            request=replace(plain.request, max_tokens=0),
        ),
        replace(plain, instance=replace(plain.instance, id="open", references=[])),
    ]
    assert scored(tmp_path, states).questions == [("id0", 0, "test")]
    assert scored(tmp_path, states[2:]).strategies == []


def different() -> list[RequestState]:
    """Questions that share what is right, or the options, or neither."""
    other = {"A": "no", "B": "yes", "C": "The heart."}
    asked = [
        ("yes", OPTIONS),
        ("no", OPTIONS),
        ("yes", OPTIONS),
        ("yes", other),
        ("heart", other),
        ("yes", None),
        ("yes", {}),
        ("refusal", None),
        ("yes", None),
    ]
    return [
        state_of(question(n, right, wrong=("wrong",)), options)
        for n, (right, options) in enumerate(asked)
    ]


def computed_for(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Question and answer of each computation of HELM's."""
    made: list[tuple[str, str]] = []
    helms_own = module._Scorer._values

    def values(self: Any, state: RequestState) -> dict[str, float]:
        made.append(
            (str(state.instance.id), state.result.completions[0].text if state.result else "")
        )
        return helms_own(self, state)

    monkeypatch.setattr(module._Scorer, "_values", values)
    return made


def test_what_helm_would_say_again_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = computed_for(monkeypatch)
    quick = scored(tmp_path, different())
    once = made.copy()
    made.clear()
    monkeypatch.setattr(
        module._Scorer, "_score_key", lambda _self, state, answer: (state.instance.id, answer)
    )
    slow = scored(tmp_path, different())
    assert slow.strategies == quick.strategies
    assert len(set(once)) == len(once) < len(made)


def test_an_answer_that_a_pattern_is_applied_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for nothing."""
    made = computed_for(monkeypatch)
    run_spec = spec_of(EXACT)
    run_spec = replace(
        run_spec, adapter_spec=replace(run_spec.adapter_spec, output_mapping_pattern="(.).*answer")
    )
    state = ScenarioState(run_spec.adapter_spec, [state_of(question(0, "yes"), {"I": "yes"})], [])
    score_trivial_answers(run_spec, state, None, tmp_path)
    assert [text for _, text in made] == ["", REFUSAL, "I"]


def test_a_metric_that_may_look_at_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = computed_for(monkeypatch)
    states = [
        state_of(question(number, "1", extra_data=LIMITS | {"category": "physical"}))
        for number in range(3)
    ]
    scored(tmp_path, states, VALUE, EXACT)
    assert [id_ for id_, text in made if text == ""] == ["id0", "id1", "id2"]


@pytest.mark.parametrize(
    "spec",
    [
        MetricSpec(class_name=BASIC, args={"names": []}),
        MetricSpec(class_name=BASIC, args={"names": ["exact_match", "code_eval_acc"]}),
        MetricSpec(class_name="helm.benchmark.metrics.llm_jury_metrics.LLMJuryMetric", args={}),
    ],
)
def test_who_asks_or_executes_is_left_alone(
    spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "create_metric", lambda _spec: pytest.fail("it is not made"))
    assert scored(tmp_path, yes_no("yes"), spec).strategies == []


DIALOGUE = "{Doctor: How are you? Patient: I cough.}"
NOTE = "{Patient coughs.}"


def of_a_dialogue() -> list[RequestState]:
    one = Instance(
        Input(text=DIALOGUE), [Reference(Output(NOTE), [CORRECT_TAG])], split="test", id="id0"
    )
    return [state_of(one)]


def test_a_summary_against_first_sentences_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As HELM's own metric has it, of which neither the download nor the models are touched."""
    monkeypatch.setattr(module, "create_metric", lambda _spec: pytest.fail("it is not made"))
    summaries = MetricSpec(class_name=SUMMARIES, args={"task": "x"})
    found = scored(tmp_path, of_a_dialogue(), summaries, name="x:model=m")
    assert [one.name for one in found.strategies] == ["first sentences", "empty", "refusal"], (
        "what matters most first"
    )
    assert found.strategies[0].answer == "{Doctor: How are you?"
    assert set(means(found, "rouge_1").values()) == {0.0}
    monkeypatch.setattr(trivial_answers, "_SENTENCE_END", re.compile("$^"))
    found = scored(tmp_path, of_a_dialogue(), summaries, name="x:model=m")
    helms = get_rouge_function("rouge1")(NOTE[1:-1], DIALOGUE[1:-1])
    assert means(found, "rouge_1")["first sentences"] == helms == pytest.approx(2 * 2 / (2 + 7))
    assert found.strategies[0].values.keys() == {"rouge_1", "rouge_2", "rouge_l"}


def test_words_in_common_are_measured_against_the_first_sentences_too(tmp_path: Path) -> None:
    spec = MetricSpec(class_name=BASIC, args={"names": ["exact_match", "rouge_l"]})
    found = scored(tmp_path, of_a_dialogue(), spec, name="x:model=m")
    assert "first sentences" in means(found, "rouge_l")
    assert "first sentences" not in means(
        scored(tmp_path, of_a_dialogue(), EXACT, name="x:model=m")
    )


def test_questions_that_share_a_source_are_known_by_the_framework_or_a_field(
    tmp_path: Path,
) -> None:
    limits = LIMITS | {"category": "risk"}

    def states(text: str, **extra: str) -> list[RequestState]:
        made = [
            replace(question(n, "1", extra_data=limits | extra), input=Input(text=text))
            for n in range(4)
        ]
        return [state_of(one) for one in made]

    asked = states("note\nQuestion: What is the score?")
    found = scored(tmp_path, asked, VALUE, name="medcalc_bench:model=m")
    assert means(found, "medcalc_bench_accuracy")["majority by calculator"] == 1.0
    other = scored(tmp_path, asked, VALUE, name="of_nobody:model=m")
    assert not any(one.name.startswith("majority by") for one in other.strategies)
    own = scored(tmp_path, states("q", cluster="note 7"), VALUE, name="of_nobody:model=m")
    assert means(own, "medcalc_bench_accuracy")["majority by cluster"] == 1.0


def test_forms_are_those_of_the_framework() -> None:
    assert module.EXECUTED.isdisjoint(EXACT.args["names"])
    declared = {task.helm.run_spec: task.helm.answer_form for task in load_framework().evaluations}
    specs = {
        "medec": medhelm_run_specs.get_medec_run_spec(),
        "ehr_sql": medhelm_run_specs.get_ehr_sql_run_spec(),
        "medcalc_bench": medhelm_run_specs.get_medcalc_bench_spec(),
        "script_concordance": concordance_scenario.script_concordance("cases.csv"),
    }
    known = {
        name: [_FORMS.get(one.class_name) for one in spec.metric_specs]
        for name, spec in specs.items()
    }
    found = {name: list(filter(None, forms)) for name, forms in known.items()}
    assert found == {name: [form] for name, form in declared.items() if form is not None}


def test_what_is_executed_is_executed_once_for_all_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []

    def annotation_of(text: str) -> dict[str, Any]:
        executed.append(text)
        rows = [(1,)] if text == "SELECT 1" else []
        return {
            "predicted_result": rows,
            "query_error": None if rows else "no",
            "query_written": bool(text),
        }

    monkeypatch.setattr(executed_queries, "query_annotation_of", annotation_of)
    gold = [{"ehr_sql": {"ground_truth_result": [(number,)]}} for number in range(2)]
    states = [
        state_of(question(number, "SELECT 1"), annotations=given)
        for number, given in enumerate(gold)
    ]
    found = scored(tmp_path, states, MetricSpec(class_name=SQL, args={}), name="ehr_sql:model=m")
    assert means(found, "ehr_sql_execution_accuracy") == {
        "empty": 0.0,
        "refusal": 0.0,
        "always SELECT 1": 0.5,
    }
    assert executed == ["", REFUSAL, "SELECT 1"]
    assert found.strategies[2].annotation == {
        "predicted_result": [[1]],
        "query_error": None,
        "query_written": True,
    }


def test_an_annotation_of_an_answer_alone_is_that_of_helm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "scenarios" / "ehr_sql"
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "eicu.sqlite") as database:
        database.execute("create table t (x)")
    database.close()
    monkeypatch.setattr(ehr_sql_annotator, "get_benchmark_output_path", lambda: str(tmp_path))
    for text in ("", "SELECT 1", "no query"):
        result = SimpleNamespace(completions=[SimpleNamespace(text=text)])
        whole = executed_queries.execute_ehr_sql_read_only(
            None, replace(state_of(question(0, "SELECT 2")), result=result)
        )
        alone = executed_queries.query_annotation_of(text)
        assert alone == {name: whole[name] for name in alone}
    assert len(alone) == 3
    with pytest.raises(ValueError, match=naming("would change the query")):
        executed_queries.query_annotation_of("SELECT current_time")


def failing(*_: Any) -> None:
    raise RuntimeError("a prompt may stand here")


def test_what_goes_wrong_is_written_down_without_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "create_metric", failing)
    run_spec = spec_of(EXACT)
    state = ScenarioState(run_spec.adapter_spec, yes_no("yes"), [])
    score_trivial_answers(run_spec, state, None, tmp_path)
    found = read_trivial_scores(tmp_path)
    assert found is not None
    assert str(found.error).startswith("RuntimeError in test_score_trivial_answers.py:")
    assert (found.strategies, found.run) == ([], "pubmed_qa:model=m")
    assert "prompt" not in (tmp_path / names.TRIVIAL_SCORES_FILE).read_text()
