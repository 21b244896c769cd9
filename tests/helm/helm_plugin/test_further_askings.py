"""Questions asked again by HELM's own augmentation: what becomes of instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.augmentations.data_augmenter import DataAugmenterSpec
from helm.benchmark.augmentations.perturbation import PerturbationSpec
from helm.benchmark.augmentations.perturbation_description import PerturbationDescription
from helm.benchmark.data_preprocessor import DataPreprocessor
from helm.benchmark.run_expander import RUN_EXPANDERS
from helm.benchmark.run_spec import (
    RunSpec,
    discover_run_spec_functions,
    get_run_spec_function,
)
from helm.benchmark.scenarios.scenario import (
    CORRECT_TAG,
    Input,
    Instance,
    Output,
    PassageQuestionInput,
    Reference,
)
from helm.common.request import Request

import eval_factory.helm_plugin.choice_order_expander
import eval_factory.helm_plugin.choice_scenario  # noqa: F401 - registers run specs
from eval_factory.demo.benchmark import sample_medical_qa
from eval_factory.helm_plugin.asking_executor import (
    AskingExecutor,
    AskingKey,
    chance_repeats,
    is_further_turn_needed,
    successful_result,
    with_enough_tokens,
    with_further_turn,
    within_chance_limit,
)
from eval_factory.tasks.asking_forms import I_DO_NOT_KNOW
from eval_factory.tasks.choice_question import NONE_OF_THE_OTHERS_TEXT
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.reasoned import reasoned_tasks

LONG = "The patient has had fever and severe headache for several days."


def question(asked: Input, split: str = "test") -> Instance:
    references = [
        Reference(Output(text), tags=[CORRECT_TAG] if at == 1 else [])
        for at, text in enumerate(("heart", "liver"))
    ]
    return Instance(asked, references, split=split, id="a")


def expanded(*given: tuple[str, object], method: str | None = None) -> RunSpec:
    spec = sample_medical_qa()
    if method is not None:
        spec = replace(spec, adapter_spec=replace(spec.adapter_spec, method=method))
    for key, value in given:
        (spec,) = RUN_EXPANDERS[key](value).expand(spec)
    return spec


def test_confidence_is_not_asked_for_where_no_instructions_are_sent() -> None:
    assert "Confidence" in expanded(("confidence", "stated_only")).adapter_spec.instructions
    with pytest.raises(ValueError, match="stated_only changes the instructions"):
        expanded(("confidence", "stated_only"), method="chat")


def made(spec: RunSpec, instances: Iterable[Instance]) -> list[Instance]:
    found: list[Instance] = DataPreprocessor(spec.data_augmenter_spec).preprocess(list(instances))
    return found


def names(instances: Iterable[Instance]) -> list[str | None]:
    return [one.perturbation and one.perturbation.name for one in instances]


def test_all_ways_stand_side_by_side_and_the_question_as_it_is_comes_first() -> None:
    spec = expanded(
        ("shuffle_choices", 2),
        ("repeats", 3),
        ("perturb", "worried+units"),
        ("pushback", 2),
        ("confidence", "stated"),
        ("cost_of_wrong", 1.0),
        ("blind_control", True),
    )
    given = [question(Input(LONG), "train"), question(Input(LONG))]
    instances = made(spec, given)
    assert names(instances) == [
        None,
        None,
        "choice_order_2",
        "repeat_2",
        "repeat_3",
        "perturb_worried",
        "pushback_1",
        "pushback_2",
        "stated_confidence",
        "may_abstain",
        "blind_blank",
        "blind_other",
    ]
    assert instances[:2] == given
    assert spec.name == sample_medical_qa().name


def test_a_repeat_has_the_same_words_and_other_words_leave_references_alone() -> None:
    _, again, changed = made(
        expanded(("repeats", 2), ("perturb", "typos")), [question(Input(LONG))]
    )
    assert (again.input.text, again.references) == (LONG, question(Input(LONG)).references)
    assert changed.input.text != LONG
    assert changed.references == again.references


@pytest.mark.parametrize(("method", "more"), [(None, [I_DO_NOT_KNOW]), ("generation", [])])
def test_not_to_know_is_an_option_where_there_are_options(
    method: str | None, more: list[str]
) -> None:
    _, abstain = made(
        expanded(("cost_of_wrong", 2.0), method=method), [question(Input(f"{LONG}\n"))]
    )
    assert [one.output.text for one in abstain.references] == ["heart", "liver", *more]
    assert [one.is_correct for one in abstain.references][:2] == [False, True]
    assert abstain.input.text.startswith(
        f"{LONG}\nA right answer scores 1 point, a wrong one costs 2 points"
    )


def asked(number: int, name: str, answer: str | None, granted: int = 5) -> RequestState:
    """A request about a question whose right option, the liver, is A."""
    perturbation = PerturbationDescription(name) if name else None
    instance = replace(question(Input("?")), id=f"q{number}", perturbation=perturbation)
    result = None if answer is None else successful_result(answer)
    request = Request(model="m", model_deployment="m", max_tokens=granted)
    options = {"A": "liver", "B": "heart"}
    return RequestState(instance, None, None, 0, options, request, result, 0, False)


@pytest.mark.parametrize(
    ("name", "granted", "tokens"),
    [
        ("", 1, 1),
        ("repeat_2", 1, 1),
        ("choice_order_2", 5, 5),
        ("perturb_typos", 1, 256),
        ("pushback_1", 5, 256),
        ("may_abstain", 5, 256),
        ("stated_confidence", 5, 256),
        ("same_words_100", 5, 256),
        ("pushback_1", 1000, 1000),
    ],
)
def test_answers_after_the_first_and_to_other_words_have_room(
    name: str, granted: int, tokens: int
) -> None:
    assert with_enough_tokens(asked(1, name, None, granted)).request.max_tokens == tokens


def test_a_doubt_is_sent_without_the_stop_that_would_end_its_answer() -> None:
    first = asked(1, "", "A")
    first = replace(first, request=replace(first.request, stop_sequences=["\n"]))
    followed = with_further_turn(asked(1, "pushback_1", None), {AskingKey("q1", 0, ""): first})
    assert (followed.request.stop_sequences, followed.request.max_tokens) == ([], 256)


def test_right_answers_are_asked_for_once_more_in_the_same_words() -> None:
    answers = ["A", "B", "A", "It is the liver", None]
    states = [asked(number, "same_words_2", None) for number in range(5)]
    done = {
        AskingKey(f"q{number}", 0, ""): asked(number, "", said)
        for number, said in enumerate(answers)
    }
    chosen = [str(one.instance.id) for one in chance_repeats(states, done)]
    assert sorted(chosen) == ["q0", "q2"]
    all_of_them = [replace_limit(one) for one in states]
    assert [str(one.instance.id) for one in chance_repeats(all_of_them, done)][2:] == ["q3"]
    assert len(within_chance_limit([*done.values(), *states])) == 5 + 2


def replace_limit(state: RequestState) -> RequestState:
    perturbation = PerturbationDescription("same_words_100")
    return replace(state, instance=replace(state.instance, perturbation=perturbation))


def test_inputs_of_their_own_kind_and_conversations_are_changed_too() -> None:
    spec = expanded(("perturb", "worried"), ("repeats", 2))
    passage = PassageQuestionInput(passage=LONG, question="Is it likely?")
    _, changed, again = made(spec, [question(passage)])
    assert (LONG in changed.input.text, again.input.text) == (True, passage.text)
    assert len(changed.input.text) > len(passage.text)
    turns = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": LONG},
    ]
    _, changed, again = made(spec, [question(Input(messages=turns))])
    assert (changed.input.messages[:2], again.input.messages) == (turns[:2], turns)
    assert changed.input.messages[2]["content"].endswith(LONG)
    assert changed.input.messages[2] != turns[2]


def test_a_run_whose_inputs_helm_perturbs_is_refused() -> None:
    spec = replace(
        sample_medical_qa(), data_augmenter_spec=DataAugmenterSpec([PerturbationSpec("x", {})])
    )
    with pytest.raises(ValueError, match="cannot be used with"):
        RUN_EXPANDERS["repeats"](2).expand(spec)


def test_more_metrics_stand_beside_those_of_the_run() -> None:
    own = sample_medical_qa().metric_specs
    *before, added = expanded(
        ("more_metrics", "exact_match+f1_score"), method="generation"
    ).metric_specs
    assert (before, added.args) == (own, {"names": ["f1_score"]})
    assert expanded(("more_metrics", "exact_match"), method="generation").metric_specs == own
    with pytest.raises(ValueError, match="has options"):
        expanded(("more_metrics", "f1_score"))


def test_reasoned_answers_are_asked_for_in_place_of_the_benchmarks_form() -> None:
    own = sample_medical_qa().adapter_spec
    adapter = expanded(("answer_style", "sample_medical_qa")).adapter_spec
    assert "nothing else" in own.instructions
    assert "nothing else" not in adapter.instructions
    assert "`Answer: X`" in adapter.output_prefix
    assert (adapter.max_tokens, adapter.stop_sequences) == (2048, [])


@pytest.mark.parametrize("task", sorted(reasoned_tasks()))
def test_each_task_says_what_its_entry_takes_out(task: str) -> None:
    entry = load_framework().task(task)
    assert entry is not None
    arguments = dict(entry.helm.arguments)
    for name, rule in entry.helm.parameters.items():
        if rule.required or rule.fixed:
            arguments[rule.helm_name or name] = rule.fixed or (rule.allowed or ("/data",))[0]
    discover_run_spec_functions()
    function = get_run_spec_function(entry.helm.run_spec)
    assert function is not None
    own = function(**arguments)
    (spec,) = RUN_EXPANDERS["answer_style"](task).expand(own)
    assert spec.adapter_spec.output_prefix == reasoned_tasks()[task].request
    shows_examples = own.adapter_spec.max_train_instances > 0
    assert shows_examples is (reasoned_tasks()[task].why_examples_left_out is not None)
    assert spec.adapter_spec.max_train_instances == 0


def test_the_choices_are_shown_without_the_question() -> None:
    _, alone = made(expanded(("options_only", True)), [question(Input(LONG))])
    assert LONG not in alone.input.text
    assert [one.output.text for one in alone.references] == ["heart", "liver"]


@pytest.mark.parametrize(
    "text",
    [
        "Which is NOT a vein?",
        "All are true except",
        "It isn't a vein?",
        "It isn\u2019t a vein?",
        "Qual n\u00e3o \u00e9 uma veia?",
    ],
)
def test_the_right_choice_is_replaced_but_for_a_question_for_what_is_not_so(text: str) -> None:
    spec = expanded(("none_of_the_others", True))
    _, changed = made(spec, [question(Input(LONG))])
    assert [one.output.text for one in changed.references] == ["heart", NONE_OF_THE_OTHERS_TEXT]
    assert [one.is_correct for one in changed.references] == [False, True]
    assert len(made(spec, [question(Input(text))])) == 1
    others = replace(question(Input(LONG)), references=[*changed.references])
    assert len(made(spec, [others])) == 1


@pytest.mark.parametrize("text", ["Which is the functional unit of the kidney?", LONG])
def test_a_unit_is_no_denial(text: str) -> None:
    spec = expanded(("none_of_the_others", True))
    assert names(made(spec, [question(Input(text))])) == [None, "none_of_the_others"]


def test_a_letter_is_asked_for_where_no_rule_reads_an_answer() -> None:
    answers = ["A", "I choose option B.", "Let me think", None]
    done = {
        AskingKey(f"q{number}", 0, ""): asked(number, "", said)
        for number, said in enumerate(answers)
    }
    states = [asked(number, "asked_for_letter", None) for number in range(4)]
    now = [one for one in states if is_further_turn_needed(one, done)]
    assert [one.instance.id for one in now] == ["q2"]
    turns = with_further_turn(now[0], done).request.messages
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[1]["content"] == "Let me think"


class _NotesWhoIsAsked:
    """In the place of HELM's executor."""

    execution_spec = None

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    def execute(self, state: ScenarioState) -> ScenarioState:
        self.asked += [request.instance.id for request in state.request_states]
        return state


@pytest.mark.parametrize("has_answers", [True, False])
def test_a_column_named_answer_is_no_answer_of_the_model(has_answers: bool, tmp_path: Path) -> None:
    instance = replace(question(Input("?")), id="q1", extra_data={"answer": "a cell"})
    state = replace(asked(1, "", None), instance=instance)
    helms = _NotesWhoIsAsked()
    executor = AskingExecutor(helms, tmp_path, has_answers=has_answers)
    executed = executor.execute(ScenarioState(AdapterSpec(), [state], []))
    result = executed.request_states[0].result
    if has_answers:
        assert helms.asked == []
        assert result is not None
        assert result.completions[0].text == "a cell"
    else:
        assert helms.asked == ["q1"]
        assert result is None
