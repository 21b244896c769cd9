"""Which tasks and settings the keys go with that ask again, in another order or with reasoning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders import evaluation, plan
from eval_factory.core.errors import ConfigError
from eval_factory.helm.command import run_entry
from facts import naming

EXTRA = "config.params.extra"
ORDERS = "config.params.extra.shuffle_choices"


def shuffled(type_: str, orders: Any = 3, **more: Any) -> dict[str, Any]:
    return {"config.type": type_, ORDERS: orders, **more}


@pytest.mark.parametrize(
    "type_",
    [
        "sample_medical_qa",
        "head_qa",
        "medbullets",
        "medhelm_med_qa",
        "medhelm_med_mcqa",
        "helm:mmlu:subject=anatomy",
    ],
)
def test_questions_with_lettered_options_take_it(type_: str) -> None:
    assert evaluation(shuffled(type_)).task.helm.letter_meaning == "by place"


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        ("pubmed_qa", "say what each letter stands for"),
        ("race_based_med", "say what each letter stands for"),
        ("medec", "does not put letters before the options"),
        ("aci_bench", "does not put letters before the options"),
        ("helm:med_qa:data_augmentation=canonical", "cannot be used with data_augmentation"),
        (
            "helm:mmlu:subject=anatomy,method=multiple_choice_separate_original",
            "method=multiple_choice_separate_orig",
        ),
    ],
)
def test_others_say_why_not(type_: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"extra.shuffle_choices: .*{why}"):
        evaluation(shuffled(type_))
    assert evaluation({"config.type": type_}).run.config.params.extra.shuffle_choices is None


@pytest.mark.parametrize("orders", [1, 25, 0, 2.5, True, "many"])
def test_how_many_orders_there_may_be(orders: Any) -> None:
    with pytest.raises(ConfigError, match="shuffle_choices"):
        evaluation(shuffled("sample_medical_qa", orders))
    for allowed in (2, 24):
        assert (
            evaluation(
                shuffled("sample_medical_qa", allowed)
            ).run.config.params.extra.shuffle_choices
            == allowed
        )


def test_it_makes_another_run_and_helm_run_is_told() -> None:
    plain, three, four = (plan(shuffled("sample_medical_qa", orders)) for orders in (None, 3, 4))
    assert len({plain.identity, three.identity, four.identity}) == 3
    assert run_entry(three).startswith("sample_medical_qa:shuffle_choices=3,")
    assert "shuffle_choices" not in run_entry(plain)


@pytest.mark.parametrize("task", ["medi_qa", "healthbench", "aci_bench", "helm:live_qa"])
@pytest.mark.parametrize("key", ["pushback", "confidence", "allow_abstain"])
def test_what_needs_an_answer_that_is_right_or_wrong_is_refused_where_judges_read(
    task: str, key: str
) -> None:
    value = {"pushback": 2, "confidence": "stated", "allow_abstain": True}[key]
    with pytest.raises(
        ConfigError,
        match=naming(f"extra.{key}", str(task), "right or wrong"),
    ):
        evaluation({"config.type": task, f"{EXTRA}.{key}": value})
    repeated = evaluation({"config.type": task, f"{EXTRA}.repeats": 3})
    assert repeated.run.config.params.extra.repeats == 3


@pytest.mark.parametrize(
    "task",
    ["pubmed_qa", "head_qa", "medec", "medcalc_bench", "ehr_sql", "helm:mmlu:subject=anatomy"],
)
def test_short_answers_can_be_doubted(task: str) -> None:
    asked = plan(
        {
            "config.type": task,
            f"{EXTRA}.pushback": 2,
            f"{EXTRA}.confidence": "stated",
            f"{EXTRA}.repeats": 3,
        }
    )
    assert asked.askings == 1 + 2 + 2 + 1
    assert "repeats=3,pushback=2," in run_entry(asked)
    assert "confidence=stated," in run_entry(asked)
    with pytest.raises(
        ConfigError,
        match=naming("confidence", "stated_only cannot", "with pushback", "take stated"),
    ):
        evaluation(
            {"config.type": task, f"{EXTRA}.pushback": 2, f"{EXTRA}.confidence": "stated_only"}
        )
    alone = plan(
        {
            "config.type": task,
            f"{EXTRA}.confidence": "stated_only",
            "config.params.max_new_tokens": 9,
        }
    )
    assert (
        alone.askings,
        run_entry(alone).index("num_output_tokens") < run_entry(alone).index("confidence"),
    ) == (
        1,
        True,
    )


def test_conversations_have_no_place_for_stated_only(tmp_path: Path) -> None:
    row = {
        "messages": [{"role": "user", "content": "A. a B. b"}],
        "correct_answer": "A",
        "incorrect_answers": ["B"],
    }
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    about = {
        "name": "mine",
        "description": "d",
        "dataset_file": "c.jsonl",
        "metrics": [{"name": "exact_match"}],
    }
    (tmp_path / "b.yaml").write_text(json.dumps(about))
    custom = {"config.type": "custom", f"{EXTRA}.benchmark": str(tmp_path / "b.yaml")}
    assert evaluation({**custom, f"{EXTRA}.confidence": "stated"}).task.name == "custom.mine"
    with pytest.raises(
        ConfigError, match=naming("changes the instructions", "stated_only", "take stated")
    ):
        evaluation({**custom, f"{EXTRA}.confidence": "stated_only"})


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("repeats", 1, "repeats"),
        ("repeats", 101, "repeats"),
        ("pushback", 0, "pushback"),
        ("pushback", 7, "pushback"),
        ("perturb", [], "perturb"),
        ("perturb", ["typos", "typos"], "names typos twice"),
        ("perturb", ["typo"], "no family is called 'typo', did you mean 'typos'"),
        ("confidence", "guessed", "confidence"),
        (
            "perturb",
            ["gender", "race", "typos"],
            r"perturb: gender, race may change the right answers of pubmed_qa",
        ),
        ("perturb", ["dialect", "typos"], r"perturb: dialect: .*perturb_unchecked"),
        ("cost_of_wrong", -1, "cost_of_wrong"),
    ],
)
def test_a_slip_in_what_is_asked_again(key: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        evaluation({"config.type": "pubmed_qa", f"{EXTRA}.{key}": value})


def test_families_that_a_clinician_has_to_read_are_allowed_by_name() -> None:
    allowed = {f"{EXTRA}.perturb": ["dialect"], f"{EXTRA}.perturb_unchecked": True}
    made = evaluation({"config.type": "pubmed_qa", **allowed})
    assert made.run.config.params.extra.perturb == ["dialect"]


def test_two_ways_of_changing_questions_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="cannot be used with data_augmentation"):
        evaluation(
            {"config.type": "helm:pubmed_qa:data_augmentation=robustness", f"{EXTRA}.repeats": 2}
        )


def test_log_probabilities_are_asked_for_once() -> None:
    asked = plan({"config.type": "pubmed_qa", f"{EXTRA}.confidence": "logprobs"})
    assert (asked.model.adapter.params_to_add, asked.askings) == ({"logprobs": True}, 1)
    assert "confidence" not in run_entry(asked)
    completions = {
        "config.type": "pubmed_qa",
        f"{EXTRA}.confidence": "logprobs",
        "target.api_endpoint.type": "completions",
    }
    assert plan(completions).model.adapter.params_to_add == {"logprobs": 1}
    with pytest.raises(ConfigError, match=naming("confidence", "logprobs")):
        evaluation(
            {**completions, "target.api_endpoint.adapter_config.params_to_add": {"logprobs": 5}}
        )


def test_what_is_asked_again_makes_another_run_and_a_cost_that_nobody_is_told_does_not() -> None:
    base = {"config.type": "pubmed_qa"}
    plain = plan(base).identity
    others = [
        ("repeats", 2),
        ("perturb", ["typos"]),
        ("pushback", 1),
        ("confidence", "stated"),
        ("allow_abstain", True),
    ]
    identities = {plan({**base, f"{EXTRA}.{name}": value}).identity for name, value in others}
    assert len(identities | {plain}) == 6
    assert plan({**base, f"{EXTRA}.cost_of_wrong": 5}).identity == plain
    told = {**base, f"{EXTRA}.allow_abstain": True}
    assert plan({**told, f"{EXTRA}.cost_of_wrong": 5}).identity != plan(told).identity


REASONED = {f"{EXTRA}.answer_style": "reasoned"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"config.type": "mmlu_pro_health"}, "mmlu_pro_health"),
        ({"config.type": "medec"}, "medec"),
        ({"config.type": "head_qa", "target.api_endpoint.type": "completions"}, "completions"),
        ({"config.type": "head_qa", f"{EXTRA}.confidence": "logprobs"}, "logprobs"),
        ({"config.type": "med_qa", f"{EXTRA}.num_train_trials": 2}, "num_train_trials"),
    ],
)
def test_reasoned_answers_are_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=naming(named)):
        evaluation({**given, **REASONED})


def test_reasoned_answers_are_another_run_with_the_users_tokens_last() -> None:
    tokens = {f"{EXTRA}.num_output_tokens": 4096}
    asked = plan({"config.type": "head_qa", **REASONED, **tokens})
    assert asked.identity != plan({"config.type": "head_qa", **tokens}).identity
    assert "answer_style=head_qa,num_output_tokens=4096" in run_entry(asked)


@pytest.mark.parametrize(
    ("task", "key"),
    [
        ("pubmed_qa", "options_only"),
        ("pubmed_qa", "none_of_the_others"),
        ("medec", "options_only"),
        ("medcalc_bench", "ask_unread"),
        ("medi_qa", "ask_unread"),
    ],
)
def test_what_needs_choices_is_refused_where_there_are_none(task: str, key: str) -> None:
    with pytest.raises(ConfigError, match=naming(f"extra.{key}", task)):
        evaluation({"config.type": task, f"{EXTRA}.{key}": True})
