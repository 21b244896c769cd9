"""Which tasks take `extra.shuffle_choices`, and what the others say."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.config.rules import option_texts_of
from eval_factory.core.errors import ConfigError
from eval_factory.helm.command import run_entry
from unit.builders import evaluation, plan

KEY = "config.params.extra.shuffle_choices"


def shuffled(type_: str, orders: Any = 3, **more: Any) -> dict[str, Any]:
    return {"config.type": type_, KEY: orders, **more}


@pytest.mark.parametrize(
    "type_",
    ["sample_medical_qa", "head_qa", "medbullets", "medhelm_med_qa", "medhelm_med_mcqa", "helm:mmlu:subject=anatomy"],
)
def test_questions_with_lettered_options_take_it(type_: str) -> None:
    assert option_texts_of(evaluation(shuffled(type_)).task) == "by place"


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        ("pubmed_qa", "say what each letter stands for"), ("race_based_med", "say what each letter stands for"),
        ("medec", "no questions with lettered options .its answers are free text"),
        ("ehr_sql", "no questions with lettered options .its answers are free text"), ("aci_bench", "judged by a jury"),
        ("healthbench", "judged by a rubric"),
        ("helm:med_qa:data_augmentation=canonical", "excludes data_augmentation"),
        ("helm:mmlu:subject=anatomy,method=multiple_choice_separate_original", "method=multiple_choice_separate_orig"),
    ],
)  # fmt: skip
def test_others_say_why_not(type_: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"extra.shuffle_choices: .*{why}"):
        evaluation(shuffled(type_))
    assert evaluation({"config.type": type_}).run.config.params.extra.shuffle_choices is None


@pytest.mark.parametrize("orders", [1, 25, 0, 2.5, True, "many"])
def test_how_many_orders_there_may_be(orders: Any) -> None:
    with pytest.raises(ConfigError, match="shuffle_choices"):
        evaluation(shuffled("sample_medical_qa", orders))
    for allowed in (2, 24):
        assert evaluation(shuffled("sample_medical_qa", allowed)).run.config.params.extra.shuffle_choices == allowed


def test_it_makes_another_run_and_helm_run_is_told() -> None:
    plain, three, four = (plan(shuffled("sample_medical_qa", orders)) for orders in (None, 3, 4))
    assert len({plain.identity, three.identity, four.identity}) == 3
    assert run_entry(three).startswith("sample_medical_qa:shuffle_choices=3,")
    assert "shuffle_choices" not in run_entry(plain)
